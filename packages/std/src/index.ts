/** The leaf: words and small truths that every package may use; no noun of the broker beyond its ids. */
export * from './assert.ts'
export { fromBase64url, toBase64url } from './base64url.ts'
export { fromHex, isHex, toHex } from './hex.ts'
export * from './ids.ts'
export * from './names.ts'
export * from './operating-error.ts'
export * from './random.ts'
