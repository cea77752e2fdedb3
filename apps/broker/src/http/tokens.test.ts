/** Tests how tokens are parsed before they are looked up. */
import { ready } from '@sealpost/identity'
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import { readTokenHeader } from './tokens.ts'

const bytes = fc.uint8Array({ minLength: 48, maxLength: 48 })
const headerOf = (token: Uint8Array) => `Bearer spt_${Buffer.from(token).toString('base64url')}`

beforeAll(() => ready())

test('a token contains its mesh, determines its hash, and has a single spelling', () => {
  return fc.assert(
    fc.property(bytes, (token) => {
      const read = readTokenHeader(headerOf(token))!
      expect(read.meshId).toBe(Buffer.from(token.subarray(0, 16)).toString('hex'))
      expect(read.hash.length).toBe(32)
    }),
  )
})

test('a header with a changed, missing or added character is invalid or contains another token', () => {
  const letters = fc.string({ unit: 'binary-ascii', minLength: 1, maxLength: 3 })
  return fc.assert(
    fc.property(bytes, fc.nat(75), letters, fc.nat(3), (token, at, put, cut) => {
      const header = headerOf(token)
      const changed = header.slice(0, at) + put + header.slice(at + cut)
      const read = readTokenHeader(changed)
      if (read) expect([changed.length, changed.slice(0, 11)]).toEqual([header.length, 'Bearer spt_'])
    }),
    { numRuns: 1000 },
  )
})

test('arbitrary text is parsed or refused, and never throws', () => {
  expect(readTokenHeader(undefined)).toBeUndefined()
  return fc.assert(
    fc.property(fc.string(), (text) => {
      expect(readTokenHeader(text)).toBeUndefined()
    }),
  )
})
