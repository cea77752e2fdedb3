/**
 * Writes one line of JSON per event. It contains only the fields below, so that no driver error, frame or key can leak.
 */
import { OperatingError } from '@sealpost/std'
import pino from 'pino'

interface Fields {
  readonly free?: number
  readonly url?: string
  readonly httpUrl?: string
  readonly adminUrl?: string
  readonly brokerKey?: string
  readonly shard?: string
  readonly name?: string
  readonly version?: string
  readonly postgres?: string
  readonly durability?: string
  readonly limits?: string
  readonly signal?: string
  readonly until?: string
  readonly code?: string
  readonly message?: string
  readonly sqlstate?: string
  readonly stack?: string
  readonly socket?: number
  readonly appends?: number
  readonly expired?: number
  readonly dead?: number
  readonly tookMs?: number
  readonly reason?: string
  readonly lagMs?: number
  readonly memoryBytes?: number
  readonly forSeconds?: number
  readonly incarnation?: string
  /** Postgres' system identifier and timeline. */
  readonly server?: string
  readonly host?: string
  readonly deadRows?: number
  readonly forgotten?: number
  readonly trimmed?: number
  readonly rows?: number
  readonly bytes?: number
}

export interface Log {
  debug(event: string, fields?: Fields): void
  info(event: string, fields?: Fields): void
  warn(event: string, fields?: Fields): void
  error(event: string, fields?: Fields): void
}

export function openLog(level: string): Log {
  const logger = pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: ['*.token', '*.secret', '*.password'], censor: '(hidden)' },
    },
    // By default, pino uses Bun's `process.stdout`, which fails unnoticed once its reader is gone.
    pino.destination({ dest: 1, sync: true }),
  )
  const line =
    (at: 'debug' | 'info' | 'warn' | 'error') =>
    (event: string, fields: Fields = {}) =>
      logger[at]({ event, ...fields })
  return { debug: line('debug'), info: line('info'), warn: line('warn'), error: line('error') }
}

/** Returns the safe fields of an error, without cause and parameters. */
export function errorFields(error: unknown): Fields {
  if (error instanceof OperatingError) return { code: error.code, message: error.message }
  if (!(error instanceof Error)) return { code: 'unknown' }
  return { code: error.name, stack: ownFrames(error.stack) }
}

/** Keeps only the lines of a stack that refer to code, because the message may quote input. */
const ownFrames = (stack = ''): string => stack.split('\n').filter((line) => /^\s+at /.test(line)).join('\n') // biome-ignore format: one thing
