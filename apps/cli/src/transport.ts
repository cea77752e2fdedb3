/** What commands say where a connection to the broker is not encrypted beyond this machine. */
import { isExposed } from '@sealpost/identity'

/** Scripts rely on it: it stands in each warning, and in the check of `doctor`. */
export const UNENCRYPTED = 'unencrypted_transport'

const READABLE =
  'bodies of messages are sealed end to end, but tokens, unused invites, names, and who writes to whom and when can be read on the way'

/** Of an address that is dialled; null: it is encrypted, or on this machine. */
export function dialWarning(url: string): string | null {
  return isExposed(url) ? `${url} is not encrypted: ${READABLE} (${UNENCRYPTED}). Use wss://.` : null
}

/** Of an address that is listened on. */
export const listenWarning = (host: string): string =>
  `The broker listens on ${host} without TLS: ${READABLE} (${UNENCRYPTED}). Use --tls-cert and --tls-key, or a proxy with TLS and --host 127.0.0.1.`
