import { fromHex, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { bindBoxKey, checkKeyBinding, identityFromSeeds, type KeyBinding, ready } from '../index.ts'
import { MESH, OTHER_MESH, peerNumber, readVector } from '../test/fixtures.ts'

beforeAll(ready)

const NOT_AFTER_MS = 1_800_000_000_000
const nowMs = NOT_AFTER_MS - 1

function world() {
  const [alice, bob] = [peerNumber(1), peerNumber(2)]
  const binding = bindBoxKey(alice, MESH, NOT_AFTER_MS)
  return { alice, bob, binding, expected: { meshId: MESH, peerKey: alice.signing.publicKey, nowMs } }
}

test('a binding is valid for its mesh and peer, up to its expiry', () => {
  const { binding, expected } = world()
  expect(checkKeyBinding(binding, expected)).toBe('ok')
  expect(checkKeyBinding(binding, { ...expected, nowMs: NOT_AFTER_MS })).toBe('ok')
  expect(checkKeyBinding(binding, { ...expected, nowMs: NOT_AFTER_MS + 1 })).toBe('binding_expired')
})

test('a genuine binding of another mesh or peer is foreign', () => {
  const { alice, bob, expected } = world()
  expect(checkKeyBinding(bindBoxKey(alice, OTHER_MESH, NOT_AFTER_MS), expected)).toBe('binding_foreign')
  expect(checkKeyBinding(bindBoxKey(bob, MESH, NOT_AFTER_MS), expected)).toBe('binding_foreign')
})

const FORGERIES: Record<string, (binding: KeyBinding, other: KeyBinding) => Partial<KeyBinding>> = {
  'another box key': (_, other) => ({ boxKey: other.boxKey }),
  'another epoch': () => ({ boxEpoch: 2 }),
  'another expiry': () => ({ notAfterMs: NOT_AFTER_MS + 1 }),
  'another signature': (_, other) => ({ signature: other.signature }),
  'a flipped bit in the signature': ({ signature }) => ({
    signature: signature.map((byte, i) => (i === 9 ? byte ^ 1 : byte)),
  }),
  'a short box key': ({ boxKey }) => ({ boxKey: boxKey.subarray(1) }),
  'a short signature': ({ signature }) => ({ signature: signature.subarray(1) }),
  'a negative epoch': () => ({ boxEpoch: -1 }),
  'an expiry that is not a number': () => ({ notAfterMs: Number.NaN }),
}

test.each(Object.keys(FORGERIES))('a binding with %s is forged', (name) => {
  const { bob, binding, expected } = world()
  const change = FORGERIES[name]!(binding, bindBoxKey(bob, MESH, NOT_AFTER_MS))
  expect(checkKeyBinding({ ...binding, ...change }, expected)).toBe('binding_forged')
})

test('a binding of another mesh relabelled as this one is forged', () => {
  const { alice, expected } = world()
  const relabelled = { ...bindBoxKey(alice, OTHER_MESH, NOT_AFTER_MS), meshId: MESH }
  expect(checkKeyBinding(relabelled, expected)).toBe('binding_forged')
})

test('the frozen vector is reproduced', () => {
  const { seeds, keyBinding } = readVector('handshake.json')
  const peer = identityFromSeeds({ signing: fromHex(seeds.peerSigningSeed), box: fromHex(seeds.peerBoxSeed) })
  const binding = bindBoxKey(peer, keyBinding.meshId, keyBinding.notAfterMs)
  expect({ ...binding, boxKey: toHex(binding.boxKey), signature: toHex(binding.signature) }).toEqual(keyBinding)
})
