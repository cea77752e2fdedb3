/** Tests that members detect each attack by a hostile broker on state and history. */
import {
  generateIdentity,
  hash256,
  keyLink,
  NO_LINK,
  newSpaceKey,
  openGrant,
  readSpace,
  type SignedEntry,
  sealEntry,
  sealGrant,
  signSpace,
} from '@sealpost/identity'
import { expect, test } from 'vitest'
import { MemoryStore } from '../stores/memory-store.ts'
import { all, type Member, Space, take } from '../test/states.ts'
import { openState } from './index.ts'

const code = (of: string) => expect.objectContaining({ code: of })
const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64')

async function world(terms = {}) {
  const space = await Space.make(terms)
  const [ann, bob] = [await space.open(space.owner), await space.open()]
  await ann.state.maintainKeys()
  for (const text of ['one', 'two', 'three']) await ann.state.set('topic', text)
  await ann.state.set('other', 'x')
  const { broker } = space
  const [one, two, three, other] = broker.events.map(({ value }) => value) as [Uint8Array, ...Uint8Array[]]
  return { space, broker, ann, bob, values: { one, two: two!, three: three!, other: other! } }
}

function handOut({ broker }: { broker: Space['broker'] }, value: Uint8Array | null): void {
  broker.bend = (lines) => (value ? lines.slice(0, 1).map((line) => ({ ...line, value: base64(value) })) : [])
}

async function caught(member: Member, reading: Promise<unknown>, expected: string): Promise<void> {
  await expect(reading).rejects.toThrow(code(expected))
  expect(member.told.map(({ type }) => type)).toContain(expected)
}

test('an older value is reported as a rollback by a member that has seen a newer one', async () => {
  const its = await world()
  expect((await its.bob.state.get('topic'))?.text()).toBe('three')
  handOut(its, its.values.two)
  await caught(its.bob, its.bob.state.get('topic'), 'state_rolled_back')
  await caught(its.bob, all(its.bob.state.list()), 'state_rolled_back')
  // Cat has never seen the newer value, so she can't detect the rollback (docs/SECURITY.md).
  const cat = await its.space.open()
  await its.ann.state.maintainKeys()
  expect((await cat.state.get('topic'))?.text()).toBe('two')
})

test('a later process with the same store detects a rollback, and accepts the state after `forget`', async () => {
  const its = await world()
  const store = new MemoryStore()
  const before = await its.space.open(its.bob.identity, store)
  await before.state.get('topic')
  await before.state.close()
  handOut(its, its.values.one)
  const after = await its.space.open(its.bob.identity, new MemoryStore(store.records))
  await caught(after, after.state.get('topic'), 'state_rolled_back')
  await after.state.forget('topic')
  expect((await after.state.get('topic'))?.text()).toBe('one')
})

test('a value that disappears without a deletion is reported as a rollback', async () => {
  const its = await world()
  await all(its.bob.state.list())
  handOut(its, null)
  await caught(its.bob, its.bob.state.get('topic'), 'state_rolled_back')
  its.broker.bend = (lines) => lines.slice(1)
  await caught(its.bob, all(its.bob.state.list()), 'state_rolled_back')
})

test('a space with fewer events than before is reported as a rollback', async () => {
  const its = await world()
  await its.bob.state.maintainKeys()
  its.broker.bendAnswer = (answer) => ('lastSeq' in answer ? { ...answer, lastSeq: 2 } : answer)
  await caught(its.bob, its.bob.state.status(), 'state_rolled_back')
})

test('a space with an older key epoch is reported as a rollback; after `forget`, the member makes a new key', async () => {
  const its = await world()
  const cat = await its.space.open()
  await its.ann.state.maintainKeys()
  its.broker.leave(cat.identity)
  const former = its.broker.grants.map((grant) => ({ ...grant }))
  await its.ann.state.maintainKeys()
  await its.bob.state.maintainKeys()
  const turned = { keyEpoch: its.broker.keyEpoch, grants: its.broker.grants }
  Object.assign(its.broker, { keyEpoch: 1, grants: former })
  await caught(its.bob, its.bob.state.maintainKeys(), 'state_rolled_back')
  await its.bob.state.forget()
  await its.bob.state.maintainKeys()
  expect([turned.keyEpoch, its.broker.keyEpoch]).toEqual([2, 3])
  await its.bob.state.set('topic', 'four')
  expect((await its.ann.state.get('topic'))?.text()).toBe('four')
})

test('two concurrent reads of the space whose replies are swapped are not reported as a rollback', async () => {
  const its = await world()
  const held = Promise.withResolvers<void>()
  const { fetch, isAsked } = holdingBack(its.broker, held.promise)
  const place = its.broker.placeOf(its.broker.join())
  await its.ann.state.maintainKeys()
  const state = await openState({ ...place, ports: { ...place.ports, fetch } })
  const first = state.status()
  await isAsked
  await its.ann.state.set('topic', 'four')
  expect(await state.status()).toMatchObject({ lastSeq: 5 })
  held.resolve()
  expect(await first).toMatchObject({ lastSeq: 4 })
})

/** Delays the second reply about the space until `then` resolves. The first one opens the state. */
function holdingBack(broker: Space['broker'], then: Promise<void>) {
  const asked = Promise.withResolvers<void>()
  let looks = 0
  const fetch: typeof broker.fetch = async (url, init) => {
    const answer = await broker.fetch(url, init)
    const isLook = init.method === 'GET' && url.endsWith(`/spaces/${broker.spaceId}`)
    looks += isLook ? 1 : 0
    if (!isLook || looks !== 2) return answer
    asked.resolve()
    await then
    return answer
  }
  return { fetch, isAsked: asked.promise }
}

test('a different value for a known revision, or a successor of a different value, is reported as a rollback', async () => {
  const its = await world()
  await its.bob.state.get('topic')
  const { ring, place } = keysOf(its.space)
  const forged = (change: object): SignedEntry =>
    sealEntry(
      its.ann.identity.signing,
      {
        ...place,
        key: 'topic',
        value: new Uint8Array(3),
        sentAtMs: 1,
        prevHash: new Uint8Array(32).fill(7),
        revision: 3,
        ...change,
      },
      ring,
    )
  handOut(its, forged({}).bytes)
  await caught(its.bob, its.bob.state.get('topic'), 'state_rolled_back')
  handOut(its, forged({ revision: 4 }).bytes)
  await caught(its.bob, its.bob.state.get('topic'), 'state_rolled_back')
})

test('a value with a changed byte or a different author is reported as forged', async () => {
  const its = await world()
  for (const at of [4, 20, 60, 120, 150, 200, its.values.three.length - 1]) {
    handOut(
      its,
      its.values.three.map((byte, i) => (i === at ? byte ^ 1 : byte)),
    )
    await caught(its.bob, its.bob.state.get('topic'), 'entry_forged')
  }
})

test('a value of another key, space or mesh is reported as forged, regardless of its signer', async () => {
  const its = await world()
  handOut(its, its.values.other)
  await caught(its.bob, its.bob.state.get('topic'), 'entry_forged')
  const elsewhere = await world()
  handOut(its, elsewhere.values.three)
  await caught(its.bob, its.bob.state.get('topic'), 'entry_forged')
  await caught(its.bob, all(its.bob.state.list()), 'entry_forged')
  // Someone who has the keys may have created the value for another key, space or mesh.
  const { ring, place } = keysOf(its.space)
  const { signing } = its.ann.identity
  const fields = { key: 'topic', value: new Uint8Array(3), sentAtMs: 1, revision: 1, prevHash: new Uint8Array(32) }
  for (const other of [{ spaceId: 'cd'.repeat(16) as never }, { meshId: 'cd'.repeat(16) as never }]) {
    handOut(its, sealEntry(signing, { ...place, ...fields, ...other }, ring).bytes)
    await caught(its.bob, its.bob.state.get('topic'), 'entry_forged')
  }
})

test('a non-member can neither sign an entry that a member sealed nor seal its own entry', async () => {
  const its = await world()
  const stranger = generateIdentity()
  const { ring, place } = keysOf(its.space)
  const keys = { nameKey: ring.nameKey, spaceKey: newSpaceKey() }
  const draft = {
    ...place,
    key: 'topic',
    value: new Uint8Array(3),
    sentAtMs: 1,
    revision: 1,
    prevHash: new Uint8Array(32),
  }
  handOut(its, sealEntry(stranger.signing, draft, keys).bytes)
  await caught(its.bob, its.bob.state.get('topic'), 'entry_forged')
})

test('a value reported as deleted, or a deletion reported as a value, is reported as forged', async () => {
  const its = await world()
  its.broker.bend = (lines) => lines.map((line) => ({ ...line, kind: 2 }))
  await caught(its.bob, its.bob.state.get('topic'), 'entry_forged')
})

test('a conflict is accepted only with a plausible current entry', async () => {
  const its = await world()
  await its.bob.state.get('topic')
  const answer = (entry: string | null) => {
    its.broker.bendAnswer = (said) => ('outcomes' in said ? { outcomes: [{ outcome: 'conflict', entry }] } : said)
  }
  answer(base64(its.values.one))
  await caught(its.bob, its.bob.state.set('topic', 'mine'), 'state_rolled_back')
  answer(null)
  await caught(its.bob, its.bob.state.set('topic', 'mine'), 'state_rolled_back')
  answer(base64(its.values.other))
  await caught(its.bob, its.bob.state.set('topic', 'mine'), 'entry_forged')
  // The broker repeats this reply forever; the member must stop retrying.
  answer(base64(its.values.three))
  await expect(its.bob.state.set('topic', 'mine')).rejects.toThrow(code('state_conflict'))
})

test('omitted, repeated and reordered events are reported', async () => {
  const its = await world()
  its.broker.bend = (lines) => lines.filter(({ seq }) => seq !== 2)
  expect(await all(its.bob.state.history())).toHaveLength(3)
  const gap = { type: 'history_gap', keyHash: expect.any(String), author: its.ann.identity.signing.publicKey }
  expect(its.bob.told).toMatchObject([{ type: 'history_gap' }, gap])
  // The numbers are adjusted, so only the entries themselves reveal the change.
  its.bob.told.length = 0
  its.broker.bend = (lines) => lines.filter(({ seq }) => seq !== 2).map((line, n) => ({ ...line, seq: n + 1 }))
  const cat = await its.space.open()
  await its.ann.state.maintainKeys()
  await all(cat.state.history())
  expect(cat.told).toMatchObject([gap, { type: 'history_gap', reason: 'events 4 to 4 are missing' }])
  its.broker.bend = (lines) => [lines[0]!, lines[0]!]
  await caught(its.bob, all(its.bob.state.history()), 'state_rolled_back')
  its.broker.bend = (lines) => [lines[1]!, { ...lines[0]!, seq: 9 }]
  await caught(its.bob, all(its.bob.state.history()), 'state_rolled_back')
  its.broker.bend = (lines) => lines
  await caught(its.bob, take(replaced(its, 2).state.watch({ after: 0 }), 4), 'state_rolled_back')
})

test('a member that knows of later events reports a truncated history as a gap', async () => {
  const its = await world()
  expect((await its.bob.state.status()).lastSeq).toBe(4)
  its.broker.bend = (lines) => lines.filter(({ seq }) => Number(seq) <= 2)
  expect(await all(its.bob.state.history())).toHaveLength(2)
  expect(its.bob.told).toMatchObject([{ type: 'history_gap', reason: 'events 3 to 4 are missing' }])
  its.bob.told.length = 0
  await all(its.bob.state.history({ limit: 2 }))
  await all(its.bob.state.history({ to: { us: its.broker.events[2]!.atUs } }))
  expect(its.bob.told).toEqual([])
})

test('an author detects at its next read that the broker confirmed a change and dropped it', async () => {
  const its = await world()
  await its.bob.state.get('topic')
  its.broker.bendAnswer = (said) => ('outcomes' in said ? { outcomes: [{ outcome: 'done', seq: 5, at: 9e15 }] } : said)
  await its.bob.state.set('topic', 'mine')
  handOut(its, its.values.three)
  await caught(its.bob, its.bob.state.get('topic'), 'state_rolled_back')
})

/** Replaces the value of the event with this number. */
function replaced(its: Awaited<ReturnType<typeof world>>, seq: number): Member {
  its.broker.bend = (lines) => lines.map((line) => (line.seq === seq ? { ...line, value: lines[0]!.value } : line))
  return its.bob
}

test('two swapped entries in a list are reported as a rollback by a member that has seen both', async () => {
  const its = await world()
  await all(its.bob.state.list())
  its.broker.bend = (lines) => lines.map((line, n) => ({ ...line, value: lines[lines.length - 1 - n]!.value }))
  await caught(its.bob, all(its.bob.state.list()), 'state_rolled_back')
})

test('a replay that contains a later value is reported as forged', async () => {
  const its = await world()
  const [first, second] = its.broker.events
  its.broker.bend = (lines) =>
    lines.map((line) => ({ ...line, seq: 2, at: second!.atUs, value: base64(second!.value) }))
  await caught(its.bob, all(its.bob.state.replay({ at: { us: first!.atUs } })), 'entry_forged')
})

test('a replay that contains a key twice is reported as forged', async () => {
  const its = await world()
  its.broker.bend = ([three]) => [{ ...three!, seq: 2, value: base64(its.values.two) }, three!]
  const at = { us: its.broker.events.at(-1)!.atUs }
  await expect(all(its.bob.state.replay({ at }))).rejects.toThrow(code('entry_forged'))
})

test('unsigned and outdated terms are rejected', async () => {
  const its = await world({ historyFor: 'joined' })
  const mallory = its.broker.join()
  const real = its.broker.statement!
  const by = (identity: typeof mallory, epoch: number) =>
    signSpace(identity.signing, { ...real, owner: identity.signing.publicKey, epoch, historyFor: 'all' })
  its.broker.statement = by(mallory, 9)
  await caught(its.bob, its.bob.state.maintainKeys(), 'space_forged')
  its.broker.statement = by(its.space.owner, 9)
  await its.bob.state.maintainKeys()
  its.broker.statement = real
  await caught(its.bob, its.bob.state.maintainKeys(), 'space_forged')
  its.broker.statement = readSpace(real.bytes)
  its.broker.bendAnswer = (said) => ('statement' in said ? { ...said, statement: 'AAAA' } : said)
  await caught(its.bob, its.bob.state.maintainKeys(), 'space_forged')
})

test('the signer of a group owns its space, even for a member that opens the space for the first time', async () => {
  const space = await Space.make({}, { inGroup: 1 })
  const [, bob] = [...space.broker.members.values()]
  const mallory = space.broker.join()
  const real = space.broker.statement!
  space.broker.statement = signSpace(mallory.signing, { ...real, owner: mallory.signing.publicKey })
  await expect(space.open(bob)).rejects.toThrow(code('space_forged'))
})

test('keys granted by a non-member, to another member or for another space are rejected', async () => {
  const space = await Space.make({}, { inGroup: 1 })
  const [, bobsKeys] = [...space.broker.members.values()] as [never, never]
  const { broker } = space
  broker.keyEpoch = 1
  const stranger = broker.join()
  const grantOf = (granter: typeof stranger, change: object = {}) =>
    sealGrant(
      granter.signing,
      {
        ...{ meshId: broker.meshId, spaceId: broker.spaceId, keyEpoch: 1, granter: granter.signing.publicKey },
        ...{
          member: (bobsKeys as typeof stranger).signing.publicKey,
          groupEpoch: 0,
          link: NO_LINK,
          nameKey: newSpaceKey(),
        },
        ...{ keys: [{ keyEpoch: 1, key: newSpaceKey() }], ...change },
      },
      (bobsKeys as typeof stranger).box.publicKey,
    )
  const boxes = [
    grantOf(stranger),
    grantOf(space.owner, { member: stranger.signing.publicKey }),
    grantOf(space.owner, { spaceId: broker.meshId }),
    new Uint8Array(80),
  ]
  for (const box of boxes) {
    broker.grants = []
    broker.give((bobsKeys as typeof stranger).signing.publicKey, box, 1)
    const bob = await space.open(bobsKeys)
    expect([bob.state.hasKeys, bob.told.map(({ type }) => type)]).toEqual([false, ['grant_forged']])
    expect(broker.grants).toEqual([]) // The broker has dropped the grants, so a member must grant again.
  }
})

test('an old grant presented as new, a key that does not follow the known one, and a different name key are rejected', async () => {
  const its = await world()
  const mallory = its.broker.join()
  const bob = its.bob.identity
  await its.bob.state.maintainKeys()
  const { ring, place } = keysOf(its.space)
  const next = { ...place, keyEpoch: 2 }
  const key = newSpaceKey()
  const grant = (nameKey: Uint8Array, link: Uint8Array) =>
    sealGrant(
      mallory.signing,
      {
        ...{ ...next, granter: mallory.signing.publicKey, member: bob.signing.publicKey, groupEpoch: 0, link, nameKey },
        keys: [{ keyEpoch: 2, key }],
      },
      bob.box.publicKey,
    )
  const link = keyLink(ring.spaceKey, key, next)
  const stale = its.broker.grants.find(({ peer }) => peer === bob.signing.publicKey)!.box
  for (const box of [stale, grant(ring.nameKey, new Uint8Array(32).fill(9)), grant(newSpaceKey(), link)]) {
    its.bob.told.length = 0
    its.broker.keyEpoch = 2
    its.broker.give(bob.signing.publicKey, box, 2)
    await its.bob.state.maintainKeys()
    expect(its.bob.told).toMatchObject([{ type: 'grant_forged' }])
  }
})

test('a former member cannot write under the key that it had, even if the broker accepts the entry', async () => {
  const its = await world()
  const before = keysOf(its.space)
  const cat = await its.space.open()
  await its.ann.state.maintainKeys()
  its.broker.leave(cat.identity)
  await its.ann.state.maintainKeys()
  expect(its.broker.keyEpoch).toBe(2)
  await its.ann.state.set('topic', 'without her')
  await its.bob.state.get('topic')
  const newest = its.broker.events.at(-1)!.value
  const draft = {
    ...before.place,
    key: 'topic',
    value: new Uint8Array(3),
    sentAtMs: 1,
    revision: 5,
    prevHash: hash256(newest),
  }
  handOut(its, sealEntry(cat.identity.signing, draft, before.ring).bytes)
  await caught(its.bob, its.bob.state.get('topic'), 'entry_forged')
})

test('a watch reports an outdated value as a rollback, even at its start', async () => {
  const its = await world()
  await its.bob.state.get('topic')
  its.broker.bend = (lines) => [{ ...lines[0]!, seq: 9 }]
  await caught(its.bob, all(its.bob.state.history()), 'state_rolled_back')
})

test('a group member that the broker fabricated gets no keys', async () => {
  const space = await Space.make({}, { inGroup: 1 })
  const ann = await space.open(space.owner)
  const mallory = space.broker.join()
  space.broker.bendAnswer = (said) =>
    'lacking' in said ? { ...said, lacking: [{ peer: mallory.signing.publicKey, keyEpoch: 0 }] } : said
  await ann.state.maintainKeys()
  expect(space.broker.grants.map(({ peer }) => peer)).not.toContain(mallory.signing.publicKey)
})

test('a malformed reply ends in an error, not in a crash', async () => {
  const its = await world()
  for (const line of [{ seq: -1 }, { kind: 7 }, { value: 5 }, { value: '*' }, { at: 'now' }]) {
    its.broker.bend = (lines) => lines.map((one) => ({ ...one, ...line }))
    await expect(its.bob.state.get('topic')).rejects.toThrow(code('answer_malformed'))
  }
})

function keysOf(space: Space) {
  const { owner, broker } = space
  const mine = broker.grants.find(({ peer }) => peer === owner.signing.publicKey)!
  const { nameKey, keys } = openGrant(mine.box, owner.signing.publicKey, [owner.box])!
  const place = { meshId: broker.meshId, spaceId: broker.spaceId, keyEpoch: keys.at(-1)!.keyEpoch }
  const ring = { nameKey, spaceKey: keys.at(-1)!.key }
  return { ring, place }
}
