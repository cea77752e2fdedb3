import { databaseOfFile } from '@sealpost/schema/testing'
import type { PeerKey, PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import { newKey, newMeshOf, randomBinding, revokeMember } from '../test/members.ts'
import { changeConsent, findConsent, NAMED_MAX } from './membership.ts'

const db = await databaseOfFile({ connections: 4 })

/** Creates a mesh, whose first member's consent the tests change. */
async function mesh(count: number) {
  const keys = Array.from({ length: count }, newKey).sort()
  const { meshId, owner } = await newMeshOf(
    db,
    keys.map((key) => randomBinding(key)),
  )
  const found = async () => {
    const { policy, named } = (await findConsent(db, owner))!
    return [policy, ...named.map(({ peerKey, isBlocked }) => [keys.indexOf(peerKey), isBlocked])]
  }
  return { meshId, keys, owner, found }
}
const all = (verdict: 'allowed' | 'blocked' | 'forgotten', peers: PeerKey[]) => peers.map((peer) => ({ peer, verdict }))

test('a new member accepts mail from all', async () => {
  const { owner, found } = await mesh(1)
  expect(await found()).toEqual(['open'])
  expect((await findConsent(db, owner))!.version).toBe(0)
  expect(await findConsent(db, { ...owner, peer: (owner.peer + 1) as PeerNo })).toBe(null)
})

test('peers are allowed, blocked and forgotten; the policy changes only if given', async () => {
  const { owner, keys, found } = await mesh(4)
  const [, a, b, c] = keys as [PeerKey, PeerKey, PeerKey, PeerKey]
  const verdicts = [...all('allowed', [a, b]), ...all('blocked', [c])]
  expect(await changeConsent(db, owner, { policy: 'contacts', verdicts })).toEqual({ isDone: true, unknown: [] })
  expect(await found()).toEqual(['contacts', [1, false], [2, false], [3, true]])
  const rotated = [...all('blocked', [a]), ...all('forgotten', [b]), ...all('allowed', [c])]
  await changeConsent(db, owner, { policy: null, verdicts: rotated })
  expect(await found()).toEqual(['contacts', [1, true], [3, false]])
  await changeConsent(db, owner, { policy: 'open', verdicts: [] })
  expect(await found()).toEqual(['open', [1, true], [3, false]])
  expect((await findConsent(db, owner))!.version).toBe(3)
})

test('the last verdict about a peer counts, unknown keys are returned, and the peer itself is ignored', async () => {
  const { owner, keys, found } = await mesh(2)
  const stranger = newKey()
  const verdicts = [...all('blocked', [keys[1]!, stranger, keys[0]!, stranger]), ...all('allowed', [keys[1]!])]
  expect(await changeConsent(db, owner, { policy: null, verdicts })).toEqual({ isDone: true, unknown: [stranger] })
  expect(await found()).toEqual(['open', [1, false]])
})

test('a key of another mesh is unknown, and each member has its own consent', async () => {
  const [here, there] = [await mesh(2), await mesh(2)]
  const verdicts = all('blocked', [here.keys[1]!, there.keys[1]!])
  expect((await changeConsent(db, here.owner, { policy: null, verdicts })).unknown).toEqual([there.keys[1]])
  expect(await here.found()).toEqual(['open', [1, true]])
  expect(await there.found()).toEqual(['open'])
})

test('a change beyond the limit is not applied at all, and listed peers do not count twice', async () => {
  const { owner, keys, found } = await mesh(NAMED_MAX + 2)
  await changeConsent(db, owner, { policy: null, verdicts: all('blocked', keys.slice(1, -1)) })
  const verdicts = [...all('allowed', keys.slice(1, 3)), ...all('blocked', keys.slice(-1))]
  expect(await changeConsent(db, owner, { policy: 'contacts', verdicts })).toMatchObject({ isDone: false })
  expect((await found()).slice(0, 2)).toEqual(['open', [1, true]])
  const swap = [...verdicts, ...all('forgotten', keys.slice(5, 6))]
  expect(await changeConsent(db, owner, { policy: null, verdicts: swap })).toMatchObject({ isDone: true })
  expect(await found()).toHaveLength(NAMED_MAX + 1)
})

test('a revoked member changes nothing', async () => {
  const { meshId, owner, keys, found } = await mesh(2)
  await revokeMember(db, meshId, keys[0]!)
  const change = { policy: 'contacts', verdicts: all('blocked', keys.slice(1)) } as const
  expect(await changeConsent(db, owner, change)).toMatchObject({ isDone: false })
  expect(await found()).toEqual(['open'])
})

test('concurrent changes are all applied, each with its own version', async () => {
  const { owner, keys, found } = await mesh(9)
  await Promise.all(
    keys.slice(1).map((key) => changeConsent(db, owner, { policy: null, verdicts: all('blocked', [key]) })),
  )
  expect(await found()).toHaveLength(9)
  expect((await findConsent(db, owner))!.version).toBe(8)
})
