/**
 * Tests a hostile broker's lies about box keys and groups, and the victim's exact events (security model 3.5, 3.9).
 * Each row is one test over a real WebSocket.
 */

import {
  bindBoxKey,
  changeGroup,
  changePool,
  createGroup,
  createPool,
  type GroupStatement,
  generateIdentity,
  type Identity,
  ready,
  Sealer,
  sealEnvelope,
} from '@sealpost/identity'
import type { FrameOf, KeyBindingEntry } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, MeshId } from '@sealpost/std'
import { beforeAll, describe, expect, test } from 'vitest'
import { groupsOf } from '../groups/groups.ts'
import type { PushedDelivery } from '../inbox/message.ts'
import { poolsOf } from '../pools/pools.ts'
import type { PeerEvent } from '../ports.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import { alarmsOf, HostileScene, type Side } from './hostile.ts'

beforeAll(() => ready())

const FAR_MS = 4_000_000_000_000
const OTHER_MESH = '0e'.repeat(16) as MeshId
const keyOf = ({ signing }: Identity) => signing.publicKey

function entryOf(identity: Identity, meshId: MeshId, notAfterMs = FAR_MS): KeyBindingEntry {
  const { peerKey: peer, boxKey, boxEpoch, signature } = bindBoxKey(identity, meshId, notAfterMs)
  return { peer, boxKey, boxEpoch, notAfterMs, signature }
}

const rotated = (identity: Identity, epoch: number): Identity => ({
  ...identity,
  box: { ...generateIdentity().box, epoch },
})

interface KeyRow {
  readonly broker: string
  /** The reason with which the key is rejected. */
  readonly reason: string
  readonly refuses: string
  /** The directory's entry for Bob's key. */
  readonly entry: (scene: HostileScene) => KeyBindingEntry | null
}

const keyRows: KeyRow[] = [
  {
    broker: 'replaces a valid box key with its own',
    reason: 'binding_forged',
    refuses: 'key_refused',
    entry: ({ bob, broker }) => ({ ...entryOf(bob, broker.meshId), boxKey: generateIdentity().box.publicKey }),
  },
  {
    broker: 'signs a box key with a different identity',
    reason: 'binding_forged',
    refuses: 'key_refused',
    entry: ({ bob, broker }) => ({ ...entryOf(generateIdentity(), broker.meshId), peer: keyOf(bob) }),
  },
  {
    broker: "presents another member's key",
    reason: 'binding_forged',
    refuses: 'key_refused',
    entry: ({ bob, carol, broker }) => ({ ...entryOf(carol, broker.meshId), peer: keyOf(bob) }),
  },
  {
    broker: 'raises the epoch of a signed key',
    reason: 'binding_forged',
    refuses: 'key_refused',
    entry: ({ bob, broker }) => ({ ...entryOf(bob, broker.meshId), boxEpoch: 9 }),
  },
  {
    broker: 'extends the expiry of a signed key',
    reason: 'binding_forged',
    refuses: 'key_refused',
    entry: ({ bob, broker }) => ({ ...entryOf(bob, broker.meshId, 1_700_000_000_000), notAfterMs: FAR_MS }),
  },
  {
    broker: 'presents a key of the same peer from another mesh',
    reason: 'binding_forged',
    refuses: 'key_refused',
    entry: ({ bob }) => entryOf(bob, OTHER_MESH),
  },
  {
    broker: 'presents an expired key',
    reason: 'binding_expired',
    refuses: 'key_refused',
    entry: ({ bob, broker }) => entryOf(bob, broker.meshId, 1_700_000_000_000),
  },
  {
    broker: 'denies that the peer exists',
    reason: 'unknown_peer',
    refuses: 'unknown_recipient',
    entry: () => null,
  },
]

describe('a broker that', () => {
  test.each(keyRows)('lies about a key gets nothing sealed: it $broker', async ({ reason, refuses, entry }) => {
    await using scene = new HostileScene()
    const alice = await scene.join(scene.alice)
    const said = entry(scene)
    if (said) scene.broker.bindings.set(keyOf(scene.bob), said)
    else scene.broker.bindings.delete(keyOf(scene.bob))
    await expect(alice.peer.send(keyOf(scene.bob), 'secret')).rejects.toMatchObject({ code: refuses })
    expect(alarmsOf(alice)).toEqual([{ type: 'key_refused', peer: keyOf(scene.bob), reason }])
    expect(scene.caught).toEqual([])
  })

  test('goes back to an old key gets nothing sealed: binding_rolled_back', async () => {
    await using scene = new HostileScene()
    const { bindings, meshId } = scene.broker
    const alice = await scene.join(scene.alice)
    const bobKey = keyOf(scene.bob)
    bindings.set(bobKey, entryOf(rotated(scene.bob, 2), meshId))
    await scene.mail(alice, scene.bob, 'to the new key')
    bindings.set(bobKey, entryOf(scene.bob, meshId))
    alice.socket.say({ type: 'rebound', peers: [bobKey] })
    expect(await alice.next('key_refused')).toEqual({
      type: 'key_refused',
      peer: bobKey,
      reason: 'binding_rolled_back',
    })
    // The peer still seals to the known key.
    await scene.mail(alice, scene.bob, 'still to the new key')
    expect(alarmsOf(alice)).toHaveLength(1)
  })

  test('goes back to a key older than one that an ended process has seen gets nothing sealed: binding_rolled_back', async () => {
    await using scene = new HostileScene()
    const { bindings, meshId } = scene.broker
    const bobKey = keyOf(scene.bob)
    const store = new MemoryStore()
    const alice = await scene.join(scene.alice, { store })
    bindings.set(bobKey, entryOf(rotated(scene.bob, 2), meshId))
    await scene.mail(alice, scene.bob, 'to the new key')
    await scene.leave(alice)
    bindings.set(bobKey, entryOf(scene.bob, meshId))
    const again = await scene.join(scene.alice, { store: new MemoryStore(store.records) })
    await expect(again.peer.send(bobKey, 'secret')).rejects.toMatchObject({ code: 'key_refused' })
    expect(alarmsOf(again)).toEqual([{ type: 'key_refused', peer: bobKey, reason: 'binding_rolled_back' }])
    expect(scene.caught).toHaveLength(1)
  })

  test('goes back to a key older than one that a space of this process has seen gets nothing sealed: binding_rolled_back', async () => {
    await using scene = new HostileScene()
    const bobKey = keyOf(scene.bob)
    const alice = await scene.join(scene.alice)
    alice.peer.keyEpochs.raise(bobKey, 2)
    await expect(alice.peer.send(bobKey, 'secret')).rejects.toMatchObject({ code: 'key_refused' })
    expect(alarmsOf(alice)).toEqual([{ type: 'key_refused', peer: bobKey, reason: 'binding_rolled_back' }])
  })

  test('sends keys that nobody requested is ignored', async () => {
    await using scene = new HostileScene()
    const alice = await scene.join(scene.alice)
    await scene.mail(alice, scene.bob, '1')
    const forged = { ...entryOf(scene.bob, scene.broker.meshId), boxKey: generateIdentity().box.publicKey }
    alice.socket.say({ type: 'directory', ref: 99, bindings: [forged], unknown: [keyOf(scene.bob)] })
    alice.socket.say({ type: 'keyHistory', ref: 99, bindings: [forged] })
    await scene.mail(alice, scene.bob, '2')
    expect(alarmsOf(alice)).toEqual([])
    expect((await alice.peer.lookupKey(keyOf(scene.bob))).boxKey).toEqual(scene.bob.box.publicKey)
  })

  test('invents a former key of the sender and sends a message under it gets nothing shown: does_not_open', async () => {
    await using scene = new HostileScene()
    const { alice, bob, broker } = scene
    const reader = await scene.join(bob)
    const made = rotated(alice, 1)
    const forged = { ...entryOf(alice, broker.meshId), boxKey: made.box.publicKey, boxEpoch: 0 }
    broker.formerBindings.set(keyOf(alice), [forged])
    scene.push(reader, forgedMail(made, bob, broker.meshId))
    expect(await reader.next('tamper')).toMatchObject({ sender: keyOf(alice), reason: 'does_not_open' })
    await scene.sentinel(reader)
    expect([alarmsOf(reader).length, reader.shown]).toEqual([1, ['the end']])
  })
})

function forgedMail(as: Identity, to: Identity, meshId: MeshId): PushedDelivery {
  const envelopeId = '0123456789abcdef'.repeat(2) as EnvelopeId
  const draft = {
    to: { peerKey: keyOf(to), boxKey: to.box.publicKey, boxEpoch: 1 },
    envelopeId,
    stream: null,
    sentAtMs: 1,
    body: new Uint8Array([1]),
  }
  const envelope = sealEnvelope(new Sealer({ identity: as, meshId }), draft)
  return {
    id: 70 as DeliveryId,
    envelopeId,
    sender: keyOf(as),
    priority: 'next',
    attempt: 1,
    enqueuedAtMs: 1,
    envelope,
  }
}

/** A group of Alice and Bob, which Dan owns. */
interface Crew {
  readonly scene: HostileScene
  readonly alice: Side
  readonly bob: Side
  readonly dan: Identity
  readonly group: GroupStatement
  says: (to: Side) => readonly GroupStatement[]
  readonly mail: (text: string) => Promise<PushedDelivery>
}

interface GroupRow {
  readonly broker: string
  readonly raises: readonly Partial<PeerEvent>[]
  readonly shows: readonly string[]
  readonly attack: (crew: Crew) => Promise<void>
}

const tamper = (reason: string): Partial<PeerEvent> => ({ type: 'tamper', reason })
const TERMS = { receipts: 'none', thread: '0'.repeat(32), hops: 0, noAutoReply: false } as const

const groupRows: GroupRow[] = [
  {
    broker: 'follows the rules',
    raises: [],
    shows: ['1'],
    attack: async ({ scene, bob, mail }) => scene.push(bob, await mail('1')),
  },
  {
    broker: 'swaps the bodies of two messages',
    raises: [tamper('body_swapped'), tamper('body_swapped')],
    shows: [],
    attack: async ({ scene, bob, mail }) => {
      const [one, two] = [await mail('1'), await mail('2')]
      scene.push(bob, { ...one, body: two.body! }, { ...two, body: one.body! })
    },
  },
  {
    broker: 'changes a body',
    raises: [tamper('body_swapped')],
    shows: [],
    attack: async ({ scene, bob, mail }) => {
      const one = await mail('1')
      scene.push(bob, { ...one, body: one.body!.with(30, one.body![30]! ^ 1) })
    },
  },
  {
    broker: 'omits the body',
    raises: [tamper('no_body')],
    shows: [],
    attack: async ({ scene, bob, mail }) => {
      const { body: _, ...one } = await mail('1')
      scene.push(bob, one)
    },
  },
  {
    broker: 'adds a body to a direct message',
    raises: [tamper('no_group')],
    shows: [],
    attack: async ({ scene, alice, bob, mail }) => {
      const { body } = await mail('1')
      const [direct] = await scene.mail(alice, scene.bob, '2')
      scene.push(bob, { ...direct!, terms: TERMS, body: body! })
    },
  },
  {
    broker: 'accepts a message from a removed member',
    raises: [tamper('not_in_group')],
    shows: [],
    attack: async (crew) => {
      const { scene, bob, dan, group, mail } = crew
      const next = changeGroup(dan.signing, group, { members: [keyOf(scene.bob)] })
      const forAlice = changeGroup(dan.signing, group, { members: group.members })
      // Dan signs two statements with the same epoch: Alice sends with one, and Bob reads with the other.
      crew.says = (to) => [to === bob ? next : forAlice]
      scene.push(bob, await mail('1'))
    },
  },
  {
    broker: 'adds a member to the statement that the owner signed',
    raises: [{ type: 'group_tamper', reason: 'statement_forged', group: null }],
    shows: ['1'],
    attack: async (crew) => {
      const { scene, bob, group, mail } = crew
      scene.push(bob, await mail('1'))
      await bob.shows(1)
      const forged = group.bytes.with(-80, group.bytes.at(-80)! ^ 1)
      bob.socket.say({ type: 'groupList', ref: 0, statements: [forged], isLast: true })
    },
  },
  {
    broker: 'presents a group of another mesh',
    raises: [{ type: 'group_tamper', reason: 'statement_forged', group: null }],
    shows: [],
    attack: async ({ bob, dan, group }) => {
      const { name, members } = group
      const foreign = createGroup(dan.signing, { meshId: OTHER_MESH, name, members })
      bob.socket.say({ type: 'groupList', ref: 0, statements: [foreign.bytes], isLast: true })
    },
  },
  {
    broker: 'goes back to former members',
    raises: [{ type: 'group_tamper', reason: 'statement_rolled_back' }],
    shows: [],
    attack: async ({ bob, dan, group }) => {
      const next = changeGroup(dan.signing, group, { members: [keyOf(dan)] })
      for (const { bytes } of [next, group])
        bob.socket.say({ type: 'groupList', ref: 0, statements: [bytes], isLast: true })
    },
  },
]

describe('in a group, a broker that', () => {
  test.each(groupRows)('$broker', async ({ raises, shows, attack }) => {
    await using scene = new HostileScene()
    const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    const dan = generateIdentity()
    const members = [keyOf(scene.alice), keyOf(scene.bob)]
    const group = createGroup(dan.signing, { meshId: scene.broker.meshId, name: 'crew', members })
    const mail = async (text: string) => {
      const before = scene.caught.length
      const sent = await (await groupsOf(alice.peer).find(group.groupId)).send(text)
      await sent.stored
      return scene.caught[before]!
    }
    const crew: Crew = { scene, alice, bob, dan, group, says: () => [group], mail }
    scene.cheat = (socket, frame) => frame.type === 'groups' && answer(crew, socket.peer === bob.peer.key, frame)
    await attack(crew)
    await scene.sentinel(bob)
    expect(alarmsOf(bob)).toEqual(raises.map((event) => expect.objectContaining(event)))
    expect(bob.shown).toEqual([...shows, 'the end'])
    await scene.leave(bob)
    expect(scene.unsettled).toEqual([])
    expect(scene.rejections).toEqual(raises.flatMap((event) => (event.type === 'tamper' ? [event.reason] : [])))
  })

  function answer({ alice, bob, says }: Crew, isBob: boolean, { ref }: FrameOf<'groups'>): true {
    const to = isBob ? bob : alice
    to.socket.say({ type: 'groupList', ref, statements: says(to).map(({ bytes }) => bytes), isLast: true })
    return true
  }
})

describe('if a message is sealed to a key that the recipient does not hold, and the broker', () => {
  /** Makes Alice seal to a key that Bob does not have, while the broker's directory has `entry` for Bob. */
  async function unopened(scene: HostileScene, entry: (bob: Identity) => KeyBindingEntry): Promise<Side> {
    const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    scene.broker.enrol(rotated(scene.bob, 2))
    const [one, two] = await scene.mail(alice, scene.bob, '1', '2')
    scene.broker.bindings.set(keyOf(scene.bob), entry(scene.bob))
    scene.pushAtOnce(bob, one!, two!)
    return bob
  }

  test('returns a newer key of the recipient, the recipient closes before it rejects anything', async () => {
    await using scene = new HostileScene()
    const { meshId } = scene.broker
    const bob = await unopened(scene, (identity) => entryOf(rotated(identity, 3), meshId))
    expect(await bob.peer.closed).toMatchObject({ code: 'own_key_missing' })
    expect(await bob.next('closed')).toMatchObject({ error: { code: 'own_key_missing' } })
    expect([alarmsOf(bob).length, scene.rejections]).toEqual([1, []])
  })

  test('returns a different key of the same epoch, the recipient closes', async () => {
    await using scene = new HostileScene()
    const { meshId } = scene.broker
    const bob = await unopened(scene, (identity) => entryOf(rotated(identity, 1), meshId))
    expect(await bob.peer.closed).toMatchObject({ code: 'own_key_missing' })
  })

  test('returns the key that the recipient holds, the recipient rejects the message', async () => {
    await using scene = new HostileScene()
    const bob = await unopened(scene, (identity) => entryOf(identity, scene.broker.meshId))
    await bob.next('tamper', 2)
    await scene.leave(bob)
    expect(scene.rejections).toEqual(['does_not_open', 'does_not_open'])
    expect(scene.broker.heard.filter(({ type }) => type === 'lookup').length).toBeLessThanOrEqual(3)
  })

  test('forges a newer key, the recipient rejects the message', async () => {
    await using scene = new HostileScene()
    const bob = await unopened(scene, (identity) => ({ ...entryOf(identity, scene.broker.meshId), boxEpoch: 9 }))
    expect(await bob.next('key_refused')).toMatchObject({ peer: bob.peer.key, reason: 'binding_forged' })
    await bob.next('tamper', 2)
    await scene.leave(bob)
    expect(scene.rejections).toEqual(['does_not_open', 'does_not_open'])
  })
})

test('a peer that has never seen the newest statement of a group does not detect that the broker withholds it', async () => {
  await using scene = new HostileScene()
  const bob = await scene.join(scene.bob)
  const dan = generateIdentity()
  const { meshId } = scene.broker
  const old = createGroup(dan.signing, { meshId, name: 'crew', members: [keyOf(scene.bob), keyOf(scene.carol)] })
  const newest = changeGroup(dan.signing, old, { members: [keyOf(scene.bob)] })
  expect(newest.epoch).toBe(2)
  bob.socket.say({ type: 'groupList', ref: 0, statements: [old.bytes], isLast: true })
  expect(await bob.next('group_changed')).toMatchObject({ group: old.groupId, epoch: 1 })
  expect(alarmsOf(bob)).toEqual([])
})

test('a peer detects a broker that goes back to former members of a pool or changes its members', async () => {
  await using scene = new HostileScene()
  const alice = await scene.join(scene.alice)
  const dan = generateIdentity()
  const founded = { meshId: scene.broker.meshId, name: 'work', members: [keyOf(scene.bob), keyOf(scene.carol)] }
  const old = createPool(dan.signing, founded)
  const newest = changePool(dan.signing, old, { members: [keyOf(scene.bob)] })
  let says = newest.bytes
  scene.cheat = (socket, frame) => {
    if (frame.type === 'pools') socket.say({ type: 'groupList', ref: frame.ref, statements: [says], isLast: true })
    return frame.type === 'pools'
  }
  const members = async () => (await poolsOf(alice.peer).list())[0]!.members
  expect(await members()).toEqual([keyOf(scene.bob)])
  says = old.bytes
  expect(await members()).toEqual([keyOf(scene.bob)])
  says = newest.bytes.with(-80, newest.bytes.at(-80)! ^ 1)
  expect(await members()).toEqual([keyOf(scene.bob)])
  expect(alarmsOf(alice)).toMatchObject([
    { type: 'pool_tamper', pool: old.poolId, reason: 'statement_rolled_back' },
    { type: 'pool_tamper', pool: null, reason: 'statement_forged' },
  ])
})
