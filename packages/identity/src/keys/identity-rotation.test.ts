import { fromHex, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { readIdentityRotation, ready, signIdentityRotation } from '../index.ts'
import { MESH, peerNumber } from '../test/fixtures.ts'

beforeAll(ready)

const former = () => peerNumber(1).signing
const successor = () => peerNumber(2).signing
const signed = () => signIdentityRotation({ former: former(), successor: successor() }, { meshId: MESH, atMs: 7 })

test('a succession names both keys and contains both signatures', () => {
  const [from, to] = [former().publicKey, successor().publicKey]
  expect(readIdentityRotation(signed())).toEqual({ meshId: MESH, former: from, successor: to, atMs: 7 })
})

test('a succession with a changed, missing or additional byte is refused', () => {
  const bytes = signed()
  for (let at = 0; at < bytes.length; at++) {
    const other = bytes.slice()
    other[at]! ^= 1
    expect(readIdentityRotation(other)).toBe(null)
    expect(readIdentityRotation(bytes.subarray(0, at))).toBe(null)
  }
  expect(readIdentityRotation(Uint8Array.of(...bytes, 0))).toBe(null)
})

test('one of the two signatures is not enough', () => {
  const thief = peerNumber(3).signing
  const keys = { former: former(), successor: successor() }
  for (const forged of [
    { ...keys, former: { ...thief, publicKey: former().publicKey } },
    { ...keys, successor: { ...thief, publicKey: successor().publicKey } },
  ])
    expect(readIdentityRotation(signIdentityRotation(forged, { meshId: MESH, atMs: 7 }))).toBe(null)
  const swapped = signed()
  const halves = [swapped.slice(-128, -64), swapped.slice(-64)]
  swapped.set(halves[1]!, swapped.length - 128)
  swapped.set(halves[0]!, swapped.length - 64)
  expect(readIdentityRotation(swapped)).toBe(null)
})

test('a key cannot succeed itself', () => {
  expect(() => signIdentityRotation({ former: former(), successor: former() }, { meshId: MESH, atMs: 7 })).toThrow()
})

test('the bytes match the protocol', () => {
  const fields = `0010${MESH}0020${former().publicKey}0020${successor().publicKey}${'0'.repeat(15)}7`
  expect(toHex(signed())).toMatch(new RegExp(`^${fields}[0-9a-f]{256}$`))
  expect(fromHex(fields).length + 128).toBe(signed().length)
})
