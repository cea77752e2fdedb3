/** The settings of the public port's certificate. */
import { setting, words } from './kinds.ts'

export const tlsSettings = {
  TLS_CERT: setting(words('a path'), {
    fallback: '',
    unit: 'path',
    meaning:
      'the certificate of the public port, as PEM, followed by its chain; `PORT` then serves `wss://` and `https://` only. A changed file applies to new connections within five seconds',
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

/** Returns the errors of their combination, one sentence each. */
export function tlsErrors({ TLS_CERT = '', TLS_KEY = '', PUBLIC_URL = '' }: TlsValues): string[] {
  if ((TLS_CERT === '') !== (TLS_KEY === ''))
    return [`TLS_CERT and TLS_KEY must be set both or neither: ${TLS_CERT === '' ? 'TLS_CERT' : 'TLS_KEY'} is missing.`]
  if (TLS_CERT !== '' && /^(ws|http):/i.test(PUBLIC_URL))
    return ['PUBLIC_URL must begin with wss:// if TLS_CERT is set: the port serves nothing else.']
  return []
}
