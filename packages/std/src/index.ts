/** Ids, errors, encodings and rules for names, for every package. Imports nothing. */
export { fromBase64url, toBase64url } from './base64url.ts'
export * from './errors.ts'
export { fromHex, isHex, isSameBytes, toHex } from './hex.ts'
export * from './ids.ts'
