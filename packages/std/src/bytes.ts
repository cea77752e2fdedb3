/** Compares in a time that depends on the bytes: don't use it for secrets. */
export function isSameBytes(a: Uint8Array, b: Uint8Array): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false
  return a.length === b.length
}
