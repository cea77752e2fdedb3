/** Exports ids, errors, encodings and rules for names for every package. Imports no other package. */
export { withResolvers } from './deferred.ts'
export { fromBase64url, fromHex, isHex, isSameBytes, toBase64url, toHex } from './encodings.ts'
export * from './errors.ts'
export * from './ids.ts'
export * from './names.ts'
