/** Exports ids, errors, encodings and rules for names for every package. Imports no other package. */
export { copyBytes, holdsBytes, isSameBytes } from './bytes.ts'
export { withResolvers } from './deferred.ts'
export { fromBase64url, fromHex, hexByteAt, isHex, toBase64url, toHex, writeHex } from './encodings.ts'
export * from './errors.ts'
export * from './ids.ts'
export * from './names.ts'
