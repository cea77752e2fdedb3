/** Returns a new envelope id: 16 random bytes as hex. */
export function freshId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return hexOf(bytes)
}

export const hexOf = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')

export const bytesOfHex = (hex: string): Uint8Array =>
  Uint8Array.from(hex.match(/../g) ?? [], (digits) => Number.parseInt(digits, 16))
