/** Recognizes the errors of TLS certificates that Node, Bun and Deno report. */
import { SealpostError } from '../errors.ts'

/** The codes of OpenSSL, Node and Bun for certificate errors. */
const CODES =
  /^(DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_(GET|VERIFY|DECODE|DECRYPT)_\w+|CERT_\w+|ERR_TLS_CERT_\w+|HOSTNAME_MISMATCH|INVALID_(CA|PURPOSE)|PATH_LENGTH_EXCEEDED)$/
const DEPTH_MAX = 4

/**
 * Returns the platform's code from the error of a socket or request; null if it is not a certificate error. @internal
 */
export function certificateErrorCode(failure: unknown, depth = 0): string | null {
  if (typeof failure !== 'object' || failure === null || depth > DEPTH_MAX) return null
  const { code, error, cause } = failure as { code?: unknown; error?: unknown; cause?: unknown }
  if (typeof code === 'string' && CODES.test(code)) return code
  return certificateErrorCode(error, depth + 1) ?? certificateErrorCode(cause, depth + 1)
}

/** @internal */
export const certificateUntrusted = (trouble: string): SealpostError =>
  new SealpostError(
    'certificate_untrusted',
    `This machine does not trust the broker's TLS certificate (${trouble}). Set NODE_EXTRA_CA_CERTS to a file with its certificate authority.`,
  )
