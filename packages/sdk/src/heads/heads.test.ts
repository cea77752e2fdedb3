/** Tests what peers that exchange heads detect: the end of a stream that a broker withholds, and split views. */
import {
  changeGroup,
  changePool,
  createGroup,
  createPool,
  type GroupStatement,
  generateIdentity,
  type Identity,
  type PoolStatement,
  ready,
} from '@sealpost/identity'
import { beforeAll, describe, expect, test } from 'vitest'
import { groupsOf } from '../groups/groups.ts'
import { poolsOf } from '../pools/pools.ts'
import type { PeerEvent } from '../ports.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import { alarmsOf, HostileScene, type Side } from '../test/hostile.ts'
import { exchangeHeads, type HeadsOptions, type WitnessedLog } from './heads.ts'

beforeAll(() => ready())

const keyOf = ({ signing }: Identity) => signing.publicKey

async function joined(scene: HostileScene, identity: Identity, store = new MemoryStore(), options: HeadsOptions = {}) {
  const side = await scene.join(identity, { store })
  exchangeHeads(side.peer, options)
  return Object.assign(side, { store })
}

/** Ends the process, and starts the next one with what it stored. */
async function restarted(scene: HostileScene, side: Side & { store: MemoryStore }) {
  await scene.leave(side)
  return joined(scene, side.identity, new MemoryStore(side.store.records))
}

const kindsOf = ({ seen }: Side): PeerEvent['type'][] => alarmsOf({ seen } as Side).map(({ type }) => type)

describe('the end of a stream', () => {
  test('that the broker withholds is reported with the first message of the next process', async () => {
    await using scene = new HostileScene()
    const [alice, bob] = [await joined(scene, scene.alice), await joined(scene, scene.bob)]
    const [one] = await scene.mail(alice, scene.bob, '1', '2', '3')
    scene.push(bob, one!)
    await bob.shows(1)
    const later = await restarted(scene, alice)
    const [four] = await scene.mail(later, scene.bob, '4')
    scene.push(bob, four!)
    expect(await bob.next('message_withheld')).toMatchObject({
      ...{ sender: alice.peer.key, envelopeId: four!.envelopeId, missing: 2 },
    })
    await scene.sentinel(bob)
    expect([kindsOf(bob), bob.shown]).toEqual([['message_withheld'], ['1', '4', 'the end']])
  })

  test('that the broker withholds completely is reported too, also after the recipient has restarted', async () => {
    await using scene = new HostileScene()
    const [alice, early] = [await joined(scene, scene.alice), await joined(scene, scene.bob)]
    await scene.mail(alice, scene.bob, '1', '2')
    const bob = await restarted(scene, early)
    const later = await restarted(scene, alice)
    scene.push(bob, ...(await scene.mail(later, scene.bob, '3')))
    expect(await bob.next('message_withheld')).toMatchObject({ missing: 2 })
  })

  test('that arrived is not reported, also if both restart', async () => {
    await using scene = new HostileScene()
    let [alice, bob] = [await joined(scene, scene.alice), await joined(scene, scene.bob)]
    for (const text of ['1', '2', '3']) {
      scene.push(bob, ...(await scene.mail(alice, scene.bob, text)))
      await bob.shows(1)
      expect(kindsOf(bob)).toEqual([])
      alice = await restarted(scene, alice)
      bob = await restarted(scene, bob)
    }
    await scene.sentinel(bob)
    expect(kindsOf(bob)).toEqual([])
  })

  test('is not reported to a peer without a store, or whose store is younger, because it may have forgotten', async () => {
    await using scene = new HostileScene()
    const alice = await joined(scene, scene.alice)
    await scene.mail(alice, scene.bob, '1')
    const later = await restarted(scene, alice)
    const bob = await scene.join(scene.bob)
    exchangeHeads(bob.peer)
    const [two] = await scene.mail(later, scene.bob, '2')
    scene.push(bob, two!)
    await bob.shows(1)
    await scene.leave(bob)
    const other = await joined(scene, scene.bob)
    scene.push(other, two!)
    await scene.sentinel(other)
    expect([kindsOf(bob), kindsOf(other)]).toEqual([['closed'], []])
  })

  test('is reported if the broker refuses a message to make the sender begin a new stream', async () => {
    await using scene = new HostileScene()
    const [alice, bob] = [await joined(scene, scene.alice), await joined(scene, scene.bob)]
    await scene.mail(alice, scene.bob, 'withheld')
    let isRefusing = true
    scene.cheat = (socket, frame) => {
      if (frame.type !== 'send' || !isRefusing) return false
      isRefusing = false
      const items = frame.envelopes.map(({ envelopeId }) => ({
        envelopeId,
        code: 'too_many_hops' as const,
        retryAfterMs: 0,
      }))
      socket.say({ type: 'nack', items })
      return true
    }
    await expect(alice.peer.send(keyOf(scene.bob), 'refused')).rejects.toMatchObject({ code: 'too_many_hops' })
    scene.push(bob, ...(await scene.mail(alice, scene.bob, 'after it')))
    expect(await bob.next('message_withheld')).toMatchObject({ missing: 1 })
  })
})

/** Returns a scene whose broker shows each peer other statements. */
function splitScene(shownTo: (side: Identity) => readonly (GroupStatement | PoolStatement)[]) {
  const scene = new HostileScene()
  scene.cheat = (socket, frame) => {
    if (frame.type !== 'groups' && frame.type !== 'pools') return false
    const reader = [scene.alice, scene.bob].find((identity) => keyOf(identity) === socket.peer)!
    const statements = shownTo(reader).map(({ bytes }) => bytes)
    socket.say({ type: 'groupList', ref: frame.ref, statements, isLast: true })
    return true
  }
  return scene
}

describe('a split view', () => {
  test('of a group is detected by the recipient that sees the older statement', async () => {
    const dan = generateIdentity()
    const shown: GroupStatement[] = []
    await using scene = splitScene((reader) =>
      shown.slice(reader === scene.alice ? 1 : 0, reader === scene.alice ? 2 : 1),
    )
    const members = [scene.alice, scene.bob, scene.carol].map(keyOf)
    const old = createGroup(dan.signing, { meshId: scene.broker.meshId, name: 'crew', members })
    shown.push(old, changeGroup(dan.signing, old, { members: members.slice(0, 2) }))
    const [alice, bob] = [await joined(scene, scene.alice), await joined(scene, scene.bob)]
    for (const { peer } of [alice, bob]) await groupsOf(peer).list()
    scene.push(bob, ...(await scene.mail(alice, scene.bob, 'hello')))
    expect(await bob.next('view_split')).toMatchObject({
      sender: alice.peer.key,
      view: { subject: 'group', id: old.groupId, shown: { epoch: 1 }, reported: { epoch: 2 } },
    })
    expect(kindsOf(alice)).toEqual([])
  })

  test('is detected by the sender of the older statement with the reply', async () => {
    const dan = generateIdentity()
    const shown: PoolStatement[] = []
    await using scene = splitScene((reader) => (reader === scene.alice ? shown.slice(0, 1) : shown.slice(1)))
    const members = [scene.alice, scene.bob, scene.carol].map(keyOf)
    const old = createPool(dan.signing, { meshId: scene.broker.meshId, name: 'work', members })
    shown.push(old, changePool(dan.signing, old, { members: members.slice(0, 2) }))
    const [alice, bob] = [await joined(scene, scene.alice), await joined(scene, scene.bob)]
    for (const { peer } of [alice, bob]) await poolsOf(peer).list()
    scene.push(alice, ...(await scene.mail(bob, scene.alice, 'to begin with')))
    expect(await alice.next('view_split')).toMatchObject({ view: { subject: 'pool', shown: { epoch: 1 } } })
    scene.push(bob, ...(await scene.mail(alice, scene.bob, 'hello')))
    await bob.shows(1)
    const [reply] = await scene.mail(bob, scene.alice, 'hello to you')
    scene.push(alice, reply!)
    await scene.sentinel(alice)
    expect([kindsOf(alice), kindsOf(bob)]).toEqual([['view_split'], []])
  })

  test('with two statements of one epoch is detected', async () => {
    const dan = generateIdentity()
    const shown: GroupStatement[] = []
    await using scene = splitScene((reader) => (reader === scene.alice ? shown.slice(0, 1) : shown.slice(1)))
    const members = [scene.alice, scene.bob].map(keyOf)
    const first = createGroup(dan.signing, { meshId: scene.broker.meshId, name: 'crew', members })
    const next = (name: string) => changeGroup(dan.signing, first, { name })
    shown.push(next('the crew'), next('our crew'))
    const [alice, bob] = [await joined(scene, scene.alice), await joined(scene, scene.bob)]
    for (const { peer } of [alice, bob]) await groupsOf(peer).list()
    scene.push(bob, ...(await scene.mail(alice, scene.bob, 'hello')))
    expect(await bob.next('view_split')).toMatchObject({ view: { shown: { epoch: 2 }, reported: { epoch: 2 } } })
  })

  test('of the log is what the log of the recipient finds', async () => {
    await using scene = new HostileScene()
    const bytes = new Uint8Array(140).fill(1)
    const log: WitnessedLog = { checkpoint: { bytes }, witness: async () => 'consistent' }
    const shown: Uint8Array[] = []
    const witness = async (checkpoint: Uint8Array) => {
      shown.push(checkpoint)
      return 'log_forked'
    }
    const alice = await joined(scene, scene.alice, new MemoryStore(), { log })
    const bob = await joined(scene, scene.bob, new MemoryStore(), { log: { checkpoint: null, witness } })
    scene.push(bob, ...(await scene.mail(alice, scene.bob, 'hello')))
    expect(await bob.next('view_split')).toMatchObject({
      view: { subject: 'log', checkpoint: bytes, reason: 'log_forked' },
    })
    expect(shown).toEqual([bytes])
  })

  test('is not reported if the broker shows the newer statement when it is asked again', async () => {
    const dan = generateIdentity()
    const shown: GroupStatement[] = []
    await using scene = splitScene(() => shown.slice(-1))
    const members = [scene.alice, scene.bob].map(keyOf)
    const old = createGroup(dan.signing, { meshId: scene.broker.meshId, name: 'crew', members })
    shown.push(old)
    const [alice, bob] = [await joined(scene, scene.alice), await joined(scene, scene.bob)]
    await groupsOf(bob.peer).list()
    shown.push(changeGroup(dan.signing, old, { name: 'the crew' }))
    await groupsOf(alice.peer).list()
    scene.push(bob, ...(await scene.mail(alice, scene.bob, 'hello')))
    expect(await bob.next('group_changed', 2)).toMatchObject({ epoch: 2 })
    await scene.sentinel(bob)
    expect(kindsOf(bob)).toEqual([])
  })
})

test('heads are sent once, and other messages keep their size', async () => {
  const dan = generateIdentity()
  const shown: GroupStatement[] = []
  await using scene = splitScene(() => shown)
  const members = [scene.alice, scene.bob].map(keyOf)
  shown.push(createGroup(dan.signing, { meshId: scene.broker.meshId, name: 'crew', members }))
  const alice = await joined(scene, scene.alice)
  const plain = await scene.join(scene.carol)
  await groupsOf(alice.peer).list()
  const sizes = async (from: Side) =>
    (await scene.mail(from, scene.bob, 'a', 'b')).map(({ envelope }) => envelope.length)
  const [first, second] = await sizes(alice)
  const [, usual] = await sizes(plain)
  expect(second).toBe(usual)
  expect(first! - usual!).toBeLessThan(100)
  expect(await sizes(alice)).toEqual([usual, usual])
})
