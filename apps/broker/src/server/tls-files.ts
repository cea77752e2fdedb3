/** Reads and checks the public port's certificate and key, at startup and every five seconds. */
import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { createSecureContext } from 'node:tls'
import { type Millis, OperatingError } from '@sealpost/std'
import type { Config } from '../config/config.ts'
import { errorFields, type Log } from '../telemetry/log.ts'

/** A certificate and its key in PEM form. */
export interface Tls {
  readonly cert: string
  readonly key: string
  readonly notAfterMs: Millis
}

type Settings = Pick<Config, 'TLS_CERT' | 'TLS_KEY'>

const LOOK_EVERY_MS: Millis = 5_000

/**
 * Reads and checks the files. Returns `null` without TLS.
 * @throws OperatingError `tls_certificate_unreadable`, `tls_certificate_malformed`, `tls_certificate_expired`,
 * `tls_certificate_not_yet_valid`, `tls_key_unreadable`, `tls_key_malformed`, `tls_key_mismatched`; the sentence ends
 * with the code
 */
export async function readTls(settings: Settings): Promise<Tls | null> {
  return settings.TLS_CERT === '' ? null : checked(settings, await textsOf(settings))
}

/** Reads the files regularly. Calls `renew` if the pair has changed and is valid; logs each failure once. */
export class TlsWatch {
  current: Tls
  readonly #settings: Settings
  readonly #log: Log
  readonly #renew: (tls: Tls) => void
  readonly #timer: ReturnType<typeof setInterval>
  /** The last failure, which is logged once. */
  #refused: string | null = null

  constructor(settings: Settings, current: Tls, parts: { readonly log: Log; readonly renew: (tls: Tls) => void }) {
    this.current = current
    this.#settings = settings
    this.#log = parts.log
    this.#renew = parts.renew
    this.#timer = setInterval(() => void this.look(), LOOK_EVERY_MS)
  }

  async look(): Promise<void> {
    try {
      const texts = await textsOf(this.#settings)
      const isKnown = texts.cert === this.current.cert && texts.key === this.current.key
      if (!isKnown) this.#serve(checked(this.#settings, texts))
      this.#refused = null
    } catch (error) {
      const { message } = error as Error
      if (message !== this.#refused) this.#log.error('tls.not_renewed', errorFields(error))
      this.#refused = message
    }
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #serve(tls: Tls): void {
    this.#renew(tls)
    this.current = tls
    this.#log.info('tls.renewed', { until: new Date(tls.notAfterMs).toISOString() })
  }
}

type Texts = Pick<Tls, 'cert' | 'key'>

async function textsOf({ TLS_CERT, TLS_KEY }: Settings): Promise<Texts> {
  const text = (name: string, path: string, code: string) =>
    readFile(path, 'utf8').catch((cause) => refuse(code, `Can't read the file in ${name}: ${path}`, cause))
  return {
    cert: await text('TLS_CERT', TLS_CERT, 'tls_certificate_unreadable'),
    key: await text('TLS_KEY', TLS_KEY, 'tls_key_unreadable'),
  }
}

function checked({ TLS_CERT, TLS_KEY }: Settings, { cert, key }: Texts): Tls {
  const certificate = attempt(
    () => new X509Certificate(cert),
    (cause) => refuse('tls_certificate_malformed', `TLS_CERT is not a PEM certificate: ${TLS_CERT}`, cause),
  )
  const privateKey: KeyObject = attempt(
    () => createPrivateKey(key),
    (cause) =>
      refuse(
        'tls_key_malformed',
        `TLS_KEY is not a PEM private key, or it is encrypted with a passphrase: ${TLS_KEY}`,
        cause,
      ),
  )
  if (!certificate.checkPrivateKey(privateKey))
    refuse('tls_key_mismatched', `TLS_KEY does not match the certificate in TLS_CERT: ${TLS_KEY}`)
  const [notBeforeMs, notAfterMs] = [Date.parse(certificate.validFrom), Date.parse(certificate.validTo)]
  if (Date.now() > notAfterMs)
    refuse('tls_certificate_expired', `The certificate ${TLS_CERT} expired at ${new Date(notAfterMs).toISOString()}`)
  if (Date.now() < notBeforeMs)
    refuse(
      'tls_certificate_not_yet_valid',
      `The certificate ${TLS_CERT} is valid from ${new Date(notBeforeMs).toISOString()}`,
    )
  attempt(
    () => createSecureContext({ cert, key }),
    (cause) => refuse('tls_certificate_malformed', `The chain of the certificate is invalid: ${TLS_CERT}`, cause),
  )
  return { cert, key, notAfterMs }
}

function attempt<T>(act: () => T, failed: (cause: unknown) => never): T {
  try {
    return act()
  } catch (cause) {
    return failed(cause)
  }
}

function refuse(code: string, sentence: string, cause?: unknown): never {
  throw new OperatingError(code, `${sentence} (${code}).`, { cause })
}
