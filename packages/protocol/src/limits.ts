/** What the wire itself bounds. An operator's smaller limits are told in `welcome`. */

/** Nonce (24) and authenticator (16): no envelope is shorter. */
export const ENVELOPE_BYTES_MIN = 40
export const ENVELOPE_BYTES_MAX = 128 * 1024
/** The largest body an SDK seals: header, box and frame fit around it. */
export const BODY_BYTES_MAX = 64 * 1024
/** Items in one frame. */
export const BATCH_MAX = 1000
export const LOOKUP_MAX = 256
export const FRAME_BYTES_MAX = 256 * 1024
