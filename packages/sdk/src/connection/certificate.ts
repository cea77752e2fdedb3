/** A broker whose TLS certificate the platform does not trust. Browsers don't say so: there it is a lost connection. */
import { SealpostError } from '../errors.ts'

/** RFC 6455: the TLS handshake failed. No broker can send this number. */
export const TLS_FAILED = 1015

/** As OpenSSL, Node and Bun name what is wrong with a certificate. */
const CODES =
  /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_(GET|VERIFY|DECODE|DECRYPT)_\w+|CERT_\w+|ERR_TLS_CERT_\w+|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE)|PATH_LENGTH_EXCEEDED)$/
const DEPTH_MAX = 4

/** The platform's code in what a socket or a request failed with; null for any other failure. */
export function certificateErrorCode(failure: unknown, depth = 0): string | null {
  if (typeof failure !== 'object' || failure === null || depth > DEPTH_MAX) return null
  const { code, error, cause } = failure as { code?: unknown; error?: unknown; cause?: unknown }
  if (typeof code === 'string' && CODES.test(code)) return code
  return certificateErrorCode(error, depth + 1) ?? certificateErrorCode(cause, depth + 1)
}

export const certificateUntrusted = (trouble: string): SealpostError =>
  new SealpostError(
    'certificate_untrusted',
    `This machine does not trust the broker's TLS certificate (${trouble}). NODE_EXTRA_CA_CERTS names a file of further authorities.`,
  )
