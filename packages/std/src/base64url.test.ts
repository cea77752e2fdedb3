import fc from 'fast-check'
import { expect, test } from 'vitest'
import { BASE64_CODECS, decodeStrictly, fromBase64url, toBase64url } from './encodings.ts'

test("the output equals Node's, and is decoded again", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 20_000 }), (bytes) => {
      const text = toBase64url(bytes)
      expect(text).toBe(Buffer.from(bytes).toString('base64url'))
      expect(fromBase64url(text)).toEqual(bytes)
    }),
  )
})

test('a mebibyte does not fill the stack', () => {
  expect(fromBase64url(toBase64url(new Uint8Array(1 << 20)))).toHaveLength(1 << 20)
})

test.each([
  ['padding', 'AA=='],
  ['the other alphabet', '+/+/'],
  ['white space', 'AA AA'],
  ['bits beyond the last byte', 'AB'],
  ['one digit', 'A'],
  ['another letter', 'AAÄ'],
])('%s is refused', (_, text) => {
  expect(() => fromBase64url(text)).toThrow(SyntaxError)
  for (const codec of Object.values(BASE64_CODECS)) expect(() => decodeStrictly(text, codec)).toThrow(SyntaxError)
})

test('the codec for older platforms behaves like the native one', () => {
  const { native, atob } = BASE64_CODECS
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 20_000 }), (bytes) => {
      expect(atob.encode(bytes)).toBe(native.encode(bytes))
      expect(decodeStrictly(native.encode(bytes), atob)).toEqual(bytes)
    }),
  )
})
