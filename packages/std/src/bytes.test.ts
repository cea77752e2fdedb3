import { expect, test } from 'vitest'
import { isSameBytes } from './bytes.ts'

test('bytes are equal if their values and their lengths are', () => {
  const bytes = Uint8Array.of(1, 2, 3)
  const others = [Uint8Array.of(1, 2, 3), Uint8Array.of(1, 2, 4), Uint8Array.of(1, 2), Uint8Array.of(1, 2, 3, 0)]
  expect(others.map((other) => isSameBytes(bytes, other))).toEqual([true, false, false, false])
  expect(isSameBytes(new Uint8Array(), new Uint8Array())).toBe(true)
})
