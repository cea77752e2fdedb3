/** The settings of attachments: how much of them there may be, and where they are kept. */
import { CHUNK_BYTES_MAX } from '@sealpost/identity'
import { z } from 'zod'
import { count, type Kind, type Setting, setting, words } from './kinds.ts'

const bytes = count('bytes', Number.MAX_SAFE_INTEGER)
const endpoint: Kind<string> = {
  parse: z.string().refine((text) => text === '' || /^https?:\/\/[^/]+\/?$/.test(text)),
  expects: 'an address like https://s3.example:9000',
}
const GIB = 1024 ** 3
const DAY = 86_400

export const attachmentSettings = {
  ATTACHMENT_BYTES_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER, 0), {
    fallback: GIB,
    unit: 'bytes',
    meaning: 'the largest attachment, sealed; 0 takes none',
  }),
  ATTACHMENTS_PER_PEER: setting(count('attachments'), {
    fallback: 1000,
    unit: 'attachments',
    meaning: 'that one person may have at a time, on all its devices',
  }),
  ATTACHMENT_BYTES_PER_PEER: setting(bytes, { fallback: 4 * GIB, unit: 'bytes', meaning: 'and their bytes' }),
  ATTACHMENTS_PER_MESH: setting(count('attachments'), {
    fallback: 10_000,
    unit: 'attachments',
    meaning: 'that the peers of one mesh may have at a time',
  }),
  ATTACHMENT_BYTES_PER_MESH: setting(bytes, { fallback: 32 * GIB, unit: 'bytes', meaning: 'and their bytes' }),
  ATTACHMENT_SECONDS: setting(count('seconds'), {
    fallback: 7 * DAY,
    unit: 's',
    meaning: 'an attachment that names no time is kept for so long from its completion',
  }),
  ATTACHMENT_SECONDS_MAX: setting(count('seconds'), {
    fallback: 30 * DAY,
    unit: 's',
    meaning: 'the longest it may name',
  }),
  ATTACHMENT_FINISH_SECONDS: setting(count('seconds'), {
    fallback: DAY,
    unit: 's',
    meaning: 'one that is not complete by then is given up',
  }),
  ATTACHMENT_TRANSIT_BYTES: setting(count('bytes', GIB, CHUNK_BYTES_MAX), {
    fallback: 16 * 1024 ** 2,
    unit: 'bytes',
    meaning: 'chunks on their way through this broker at a time; more are told to come later',
  }),
  CHUNKS_PER_SECOND: setting(count('chunks'), {
    fallback: 100,
    unit: 'chunks/s',
    meaning: 'chunks of attachments that one address, and one person, may say or fetch each second',
  }),
  CHUNKS_BURST: setting(count('chunks'), { fallback: 200, unit: 'chunks', meaning: 'and in a burst' }),
  S3_BUCKET: setting(words('the name of a bucket'), {
    fallback: '',
    unit: 'name',
    meaning: 'where chunks of attachments are kept, in an S3 store; without it they are kept in the database',
  }),
  S3_ENDPOINT: setting(endpoint, {
    fallback: '',
    unit: 'URL',
    meaning: 'of a store that is not of Amazon; buckets are named in its paths',
  }),
  S3_REGION: setting(words('a region'), { fallback: 'us-east-1', unit: 'region', meaning: 'of the bucket' }),
  S3_PREFIX: setting(words('the beginning of a key'), {
    fallback: 'sealpost/',
    unit: 'text',
    meaning: 'with which the key of each chunk begins',
  }),
  S3_ACCESS_KEY_ID: setting(words('the id of a key'), {
    fallback: '',
    unit: 'id',
    meaning: "of the store; without it the client's own ways are taken, as the role of a machine",
    isSecret: true,
  }),
  S3_SECRET_ACCESS_KEY: setting(words('the secret of that key'), {
    fallback: '',
    unit: 'secret',
    meaning: 'of that key',
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
