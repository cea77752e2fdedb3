/** Defines the types of settings, and the settings of traces, TLS, ports, history and attachments. */

import { CHUNK_BYTES_MAX } from '@sealpost/identity'
import { z } from 'zod'

/** A setting's schema, and the end of its error after "NAME must be". */
export interface SettingKind<T> {
  readonly parse: z.ZodType<T>
  readonly expects: string
}

/** The maximum number. Longer timers fire immediately, and most numbers have four bytes. */
export const COUNT_MAX = 2 ** 31 - 1
const wholeNumber = (min: number, max: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/)
    .transform(Number)
    .pipe(z.number().min(min).max(max))

export const count = (unit: string, max = COUNT_MAX, min = 1): SettingKind<number> => ({
  parse: wholeNumber(min, max),
  expects: `a whole number of ${unit}, ${max === COUNT_MAX ? `at least ${min}` : `from ${min} to ${max}`}`,
})
export const PORT_MAX = 65_535
export const port: SettingKind<number> = { parse: wholeNumber(0, PORT_MAX), expects: `a port (0-${PORT_MAX})` }
export const words = (expects: string): SettingKind<string> => ({ parse: z.string(), expects })
export const oneOf = <const Word extends string>(...choices: readonly Word[]): SettingKind<Word> => ({
  parse: z.enum(choices),
  expects: `${choices.slice(0, -1).join(', ')} or ${choices.at(-1)}`,
})
export const list = (expects: string, item: z.ZodType<string, string>): SettingKind<string[]> => ({
  parse: z
    .string()
    .transform((text) => text.split(',').flatMap((part) => part.trim() || []))
    .pipe(z.array(item)),
  expects,
})
export const onOff = oneOf('on', 'off')
export const ms = (max?: number) => count('milliseconds', max)

export interface Setting<T> extends SettingKind<T> {
  readonly unit: string
  /** The default as in the environment; `null` for a required setting. */
  readonly fallback: string | null
  readonly meaning: string
  readonly isSecret?: boolean
}

interface Words {
  readonly fallback: string | number | null
  readonly unit: string
  readonly meaning: string
  readonly isSecret?: boolean
}
export const setting = <T>(kind: SettingKind<T>, { fallback, ...words }: Words): Setting<T> => ({
  ...kind,
  ...words,
  fallback: fallback === null ? null : String(fallback),
})

const receiver: SettingKind<string> = {
  parse: z.string().refine((text) => text === '' || (/^https?:\/\/\S+$/.test(text) && URL.canParse(text))),
  expects: 'an address such as http://collector.example:4318',
}
const share: SettingKind<number> = {
  parse: z
    .string()
    .regex(/^(0|1|0?\.\d{1,9}|1\.0{1,9})$/)
    .transform(Number),
  expects: 'a share from 0 to 1',
}

/** The settings of traces. Their names are OpenTelemetry's. */
export const traceSettings = {
  OTEL_EXPORTER_OTLP_ENDPOINT: setting(receiver, {
    fallback: '',
    unit: 'URL',
    meaning:
      'the base URL of the collector; the broker exports spans to `/v1/traces` there, with OTLP over HTTP. If it is not set, tracing is off',
  }),
  OTEL_SERVICE_NAME: setting(words('a name'), {
    fallback: 'sealpost',
    unit: 'name',
    meaning: 'the name of this service in traces',
  }),
  OTEL_TRACES_SAMPLER: setting(
    oneOf(
      'always_on',
      'always_off',
      'traceidratio',
      'parentbased_always_on',
      'parentbased_always_off',
      'parentbased_traceidratio',
    ),
    {
      fallback: 'parentbased_always_on',
      unit: 'sampler',
      meaning:
        'the sampler that selects which spans are exported; with a `parentbased_…` sampler, the sampling decision of the incoming request applies to its spans',
    },
  ),
  OTEL_TRACES_SAMPLER_ARG: setting(share, {
    fallback: 1,
    unit: 'share',
    meaning: 'the fraction of traces that a `…traceidratio` sampler selects',
  }),
} satisfies Record<string, Setting<unknown>>

export const tlsSettings = {
  TLS_CERT: setting(words('a path'), {
    fallback: '',
    unit: 'path',
    meaning:
      'the certificate of the public port, as PEM, followed by its chain. If it is set, `PORT` serves only `wss://` and `https://`. When the file changes, new connections use the new certificate within five seconds',
  }),
  TLS_KEY: setting(words('a path'), {
    fallback: '',
    unit: 'path',
    meaning: 'the private key of `TLS_CERT`, as PEM, without a passphrase',
  }),
}

interface TlsValues {
  readonly TLS_CERT?: string
  readonly TLS_KEY?: string
  readonly PUBLIC_URL?: string
}

/** Returns an error sentence per invalid combination of settings. */
export function tlsErrors({ TLS_CERT = '', TLS_KEY = '', PUBLIC_URL = '' }: TlsValues): string[] {
  if ((TLS_CERT === '') !== (TLS_KEY === ''))
    return [`TLS_CERT and TLS_KEY must be set together: ${TLS_CERT === '' ? 'TLS_CERT' : 'TLS_KEY'} is missing.`]
  if (TLS_CERT !== '' && /^(ws|http):/i.test(PUBLIC_URL))
    return ['PUBLIC_URL must begin with wss:// if TLS_CERT is set, because the port then serves only TLS.']
  return []
}

const address = words('an address or a host name')
/** A default for each of several brokers on a machine. */
const BESIDE_PORT = 'PORT + 1'

export const portSettings = {
  HOST: setting(address, {
    fallback: '127.0.0.1',
    unit: 'address',
    meaning: 'the address on which the WebSocket and HTTP server listens',
  }),
  PORT: setting(port, {
    fallback: 7450,
    unit: 'port',
    meaning: 'the port of the WebSocket and HTTP server; 0 selects a free port',
  }),
  ADMIN_HOST: setting(address, {
    fallback: '127.0.0.1',
    unit: 'address',
    meaning: 'the address on which the private server listens: `/metrics`, health checks and the operator API',
  }),
  ADMIN_PORT: setting(
    { ...port, parse: z.union([z.literal(BESIDE_PORT), port.parse]) },
    {
      fallback: BESIDE_PORT,
      unit: 'port',
      meaning: 'the port of the private server; 0 selects a free port, which is also the default if `PORT` is 0',
    },
  ),
}

/** Replaces `PORT + 1` with the number. @returns an error sentence if that is not a port */
export function resolvePorts(values: Record<string, unknown>): string[] {
  const { PORT, ADMIN_PORT } = values
  if (ADMIN_PORT !== BESIDE_PORT || typeof PORT !== 'number') return []
  values.ADMIN_PORT = PORT === 0 ? 0 : PORT + 1
  return PORT < PORT_MAX ? [] : [`ADMIN_PORT must be set if PORT is ${PORT_MAX}.`]
}

const bytes = (max = Number.MAX_SAFE_INTEGER) => count('bytes', max)
const ENTRY_BYTES = 68 * 1024

export const historySettings = {
  REPLAYS_AT_ONCE: setting(count('replays', 64), {
    fallback: 2,
    unit: 'replays',
    meaning:
      'the number of long responses with state or history that one broker sends at the same time; further requests are queued',
  }),
  HISTORY_MS: setting(count('milliseconds'), {
    fallback: 60_000,
    unit: 'milliseconds',
    meaning:
      'how often the broker checks whether snapshots are due and whether to create or drop daily partitions of the history',
  }),
  STATE_ENTRY_BYTES_MAX: setting(bytes(ENTRY_BYTES), {
    fallback: ENTRY_BYTES,
    unit: 'bytes',
    meaning: 'the maximum size of an entry of shared state',
  }),
  STATE_ENTRIES_MAX: setting(count('entries'), {
    fallback: 500_000,
    unit: 'entries',
    meaning: 'the maximum number of keys in one space, including deleted keys',
  }),
  STATE_BYTES_MAX: setting(bytes(), {
    fallback: 1024 ** 3,
    unit: 'bytes',
    meaning: 'the maximum total size of the current entries in one space',
  }),
  HISTORY_BYTES_MAX: setting(bytes(), {
    fallback: 16 * 1024 ** 3,
    unit: 'bytes',
    meaning: 'the maximum total size of the entries and the history of one mesh, across all of its spaces',
  }),
  STATE_WRITES_PER_SECOND: setting(count('entries'), {
    fallback: 100,
    unit: 'entries/s',
    meaning: "the number of state entries per second that a user can write, across all of the user's devices",
  }),
  STATE_WRITES_BURST: setting(count('entries'), {
    fallback: 2000,
    unit: 'entries',
    meaning: 'the number of state entries that a user can write at once before `STATE_WRITES_PER_SECOND` applies',
  }),
}

const endpoint: SettingKind<string> = {
  parse: z.string().refine((text) => text === '' || /^https?:\/\/[^/]+\/?$/.test(text)),
  expects: 'an address such as https://s3.example:9000',
}
const GIB = 1024 ** 3
const DAY = 86_400

export const attachmentSettings = {
  ATTACHMENT_BYTES_MAX: setting(count('bytes', Number.MAX_SAFE_INTEGER, 0), {
    fallback: GIB,
    unit: 'bytes',
    meaning: 'the maximum sealed size of an attachment; 0 disables attachments',
  }),
  ATTACHMENTS_PER_PEER: setting(count('attachments'), {
    fallback: 1000,
    unit: 'attachments',
    meaning: "the maximum number of attachments that one user can store, across all of the user's devices",
  }),
  ATTACHMENT_BYTES_PER_PEER: setting(bytes(), {
    fallback: 4 * GIB,
    unit: 'bytes',
    meaning: "the maximum total size of one user's stored attachments",
  }),
  ATTACHMENTS_PER_MESH: setting(count('attachments'), {
    fallback: 10_000,
    unit: 'attachments',
    meaning: 'the maximum number of stored attachments in one mesh',
  }),
  ATTACHMENT_BYTES_PER_MESH: setting(bytes(), {
    fallback: 32 * GIB,
    unit: 'bytes',
    meaning: 'the maximum total size of the stored attachments in one mesh',
  }),
  ATTACHMENT_SECONDS: setting(count('seconds'), {
    fallback: 7 * DAY,
    unit: 's',
    meaning:
      'how long an attachment is stored after its upload is complete, unless its owner requests a different time',
  }),
  ATTACHMENT_SECONDS_MAX: setting(count('seconds'), {
    fallback: 30 * DAY,
    unit: 's',
    meaning: 'the longest storage time that the owner of an attachment can request',
  }),
  ATTACHMENT_FINISH_SECONDS: setting(count('seconds'), {
    fallback: DAY,
    unit: 's',
    meaning: 'the time limit for an upload; the broker deletes an attachment that is still incomplete after this time',
  }),
  ATTACHMENT_TRANSIT_BYTES: setting(count('bytes', GIB, CHUNK_BYTES_MAX), {
    fallback: 16 * 1024 ** 2,
    unit: 'bytes',
    meaning:
      'the maximum total size of the chunks in transit through this broker; the broker refuses further chunks with `try_later`',
  }),
  CHUNKS_PER_SECOND: setting(count('chunks'), {
    fallback: 100,
    unit: 'chunks/s',
    meaning: 'the number of attachment chunks per second that one address can transfer, and that one user can transfer',
  }),
  CHUNKS_BURST: setting(count('chunks'), {
    fallback: 200,
    unit: 'chunks',
    meaning: 'the number of chunks that an address or a user can transfer at once before `CHUNKS_PER_SECOND` applies',
  }),
  S3_BUCKET: setting(words('the name of a bucket'), {
    fallback: '',
    unit: 'name',
    meaning: 'the S3 bucket that stores attachment chunks; if it is not set, the database stores them',
  }),
  S3_ENDPOINT: setting(endpoint, {
    fallback: '',
    unit: 'URL',
    meaning:
      "the endpoint of an S3-compatible store, if you don't use Amazon S3; the store must support path-style bucket names",
  }),
  S3_REGION: setting(words('a region'), { fallback: 'us-east-1', unit: 'region', meaning: 'the region of the bucket' }),
  S3_PREFIX: setting(words('the beginning of a key'), {
    fallback: 'sealpost/',
    unit: 'text',
    meaning: "the prefix of each chunk's object key",
  }),
  S3_ACCESS_KEY_ID: setting(words('the id of a key'), {
    fallback: '',
    unit: 'id',
    meaning: 'the access key id for the store; required if `S3_BUCKET` is set',
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
    errors.push(`ATTACHMENT_SECONDS (${usual}) must not exceed ATTACHMENT_SECONDS_MAX (${longest}).`)
  if (values.S3_BUCKET && (values.S3_ACCESS_KEY_ID === '' || values.S3_SECRET_ACCESS_KEY === ''))
    errors.push('S3_BUCKET requires S3_ACCESS_KEY_ID and S3_SECRET_ACCESS_KEY.')
  return errors
}
