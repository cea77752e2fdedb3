/** The settings of attachments: limits and the store. */
import { CHUNK_BYTES_MAX } from '@sealpost/identity'
import { z } from 'zod'
import { count, type Setting, type SettingKind, setting, words } from './sections.ts'

const bytes = count('bytes', Number.MAX_SAFE_INTEGER)
const endpoint: SettingKind<string> = {
  parse: z.string().refine((text) => text === '' || /^https?:\/\/[^/]+\/?$/.test(text)),
  expects: 'an address like https://s3.example:9000',
}
const GIB = 1024 ** 3
const DAY = 86_400

export const attachmentSettings = {
  ATTACHMENT_BYTES_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER, 0), {
    fallback: GIB,
    unit: 'bytes',
    meaning: 'the maximum size of an attachment, sealed; 0 disables attachments',
  }),
  ATTACHMENTS_PER_PEER: setting(count('attachments'), {
    fallback: 1000,
    unit: 'attachments',
    meaning: 'the maximum number of stored attachments of one user, on all its devices',
  }),
  ATTACHMENT_BYTES_PER_PEER: setting(bytes, {
    fallback: 4 * GIB,
    unit: 'bytes',
    meaning: 'the maximum bytes of these attachments',
  }),
  ATTACHMENTS_PER_MESH: setting(count('attachments'), {
    fallback: 10_000,
    unit: 'attachments',
    meaning: 'the maximum number of stored attachments of one mesh',
  }),
  ATTACHMENT_BYTES_PER_MESH: setting(bytes, {
    fallback: 32 * GIB,
    unit: 'bytes',
    meaning: 'the maximum bytes of these attachments',
  }),
  ATTACHMENT_SECONDS: setting(count('seconds'), {
    fallback: 7 * DAY,
    unit: 's',
    meaning: 'how long an attachment is kept after its completion, unless its owner sets another time',
  }),
  ATTACHMENT_SECONDS_MAX: setting(count('seconds'), {
    fallback: 30 * DAY,
    unit: 's',
    meaning: 'the longest time that an owner can set',
  }),
  ATTACHMENT_FINISH_SECONDS: setting(count('seconds'), {
    fallback: DAY,
    unit: 's',
    meaning: 'the time limit for completing an upload; an incomplete attachment is then deleted',
  }),
  ATTACHMENT_TRANSIT_BYTES: setting(count('bytes', GIB, CHUNK_BYTES_MAX), {
    fallback: 16 * 1024 ** 2,
    unit: 'bytes',
    meaning:
      'the maximum total size of chunks in transit through this broker; further chunks are refused with `try_later`',
  }),
  CHUNKS_PER_SECOND: setting(count('chunks'), {
    fallback: 100,
    unit: 'chunks/s',
    meaning: 'the rate of attachment chunks that one address, and one user, can upload or fetch',
  }),
  CHUNKS_BURST: setting(count('chunks'), { fallback: 200, unit: 'chunks', meaning: 'the burst of these chunks' }),
  S3_BUCKET: setting(words('the name of a bucket'), {
    fallback: '',
    unit: 'name',
    meaning: 'the S3 bucket that stores attachment chunks; without it they are stored in the database',
  }),
  S3_ENDPOINT: setting(endpoint, {
    fallback: '',
    unit: 'URL',
    meaning: "the endpoint of an S3-compatible store other than Amazon's; it must support path-style bucket names",
  }),
  S3_REGION: setting(words('a region'), { fallback: 'us-east-1', unit: 'region', meaning: 'the region of the bucket' }),
  S3_PREFIX: setting(words('the beginning of a key'), {
    fallback: 'sealpost/',
    unit: 'text',
    meaning: 'the prefix of the key of each chunk',
  }),
  S3_ACCESS_KEY_ID: setting(words('the id of a key'), {
    fallback: '',
    unit: 'id',
    meaning:
      'the access key id for the store; without it the S3 client uses its default credentials, such as the role of the machine',
    isSecret: true,
  }),
  S3_SECRET_ACCESS_KEY: setting(words('the secret of that key'), {
    fallback: '',
    unit: 'secret',
    meaning: 'the secret access key for `S3_ACCESS_KEY_ID`',
    isSecret: true,
  }),
} satisfies Record<string, Setting<unknown>>

export type AttachmentConfig = {
  readonly [N in keyof typeof attachmentSettings]: z.output<(typeof attachmentSettings)[N]['parse']>
}

export function attachmentErrors(values: Partial<AttachmentConfig>): string[] {
  const { ATTACHMENT_SECONDS: usual, ATTACHMENT_SECONDS_MAX: longest } = values
  const errors: string[] = []
  if (usual && longest && usual > longest)
    errors.push(`ATTACHMENT_SECONDS (${usual}) must not be over ATTACHMENT_SECONDS_MAX (${longest}).`)
  if ((values.S3_ACCESS_KEY_ID === '') !== (values.S3_SECRET_ACCESS_KEY === ''))
    errors.push('S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY go together.')
  return errors
}
