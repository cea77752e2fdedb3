/** Ids, errors, encodings and rules for names, for every package. Imports nothing. */
export { fromBase64url, toBase64url } from './base64url.ts'
export { isSameBytes } from './bytes.ts'
export * from './errors.ts'
export { fromHex, isHex, toHex } from './hex.ts'
export * from './ids.ts'
export * from './names.ts'
export * from './random.ts'
