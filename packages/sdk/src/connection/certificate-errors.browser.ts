/** Replaces `certificate-errors.ts` in bundles for browsers, which never report why a connection failed. */
import { SealpostError } from '../errors.ts'

export const certificateErrorCode = (): null => null

export const certificateUntrusted = (): SealpostError =>
  new SealpostError('certificate_untrusted', "The browser does not trust the broker's TLS certificate.")
