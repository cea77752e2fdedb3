import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isSameBytes } from './bytes.ts'
import { fromHex, HEX_CODECS, isHex, toHex } from './encodings.ts'

test('hex round-trips', () => {
  const bytes = Uint8Array.from({ length: 256 }, (_, i) => i)
  expect(fromHex(toHex(bytes))).toEqual(bytes)
  expect(fromHex('')).toEqual(new Uint8Array(0))
})

test.each(['A0', 'a', 'abz1', '0x', ' 00', '00 ', 'ä0', '\u0130\u0130', '0g'])('%j is refused', (text) => {
  expect(() => fromHex(text)).toThrow(SyntaxError)
  expect(isHex(text, Math.ceil(text.length / 2))).toBe(false)
})

test('hex of another length is not accepted for a fixed one', () => {
  expect(isHex('00ff', 2)).toBe(true)
  expect(isHex('00ff', 1)).toBe(false)
  expect(isHex(1234, 2)).toBe(false)
})

test('the codec for older platforms behaves like the native one', () => {
  const { native, table } = HEX_CODECS
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 100 }), fc.string(), (bytes, text) => {
      expect(table.encode(bytes)).toBe(native.encode(bytes))
      expect(table.decode(native.encode(bytes))).toEqual(bytes)
      expect(table.decode(text)).toEqual(native.decode(text))
    }),
  )
})

test('bytes are equal if they have the same values and the same length', () => {
  const bytes = Uint8Array.of(1, 2, 3)
  const others = [Uint8Array.of(1, 2, 3), Uint8Array.of(1, 2, 4), Uint8Array.of(1, 2), Uint8Array.of(1, 2, 3, 0)]
  expect(others.map((other) => isSameBytes(bytes, other))).toEqual([true, false, false, false])
  expect(isSameBytes(new Uint8Array(), new Uint8Array())).toBe(true)
})
