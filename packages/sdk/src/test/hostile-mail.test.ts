/**
 * Tests a hostile broker's attacks on mail, and the victim's exact events (P11, security model 3.9). Each row is one
 * test over a real WebSocket: Alice sends, the broker attacks, Bob receives. Each test ends with an honest message.
 */
import { generateIdentity, type Identity, openEnvelope, ready, Sealer, sealInStream } from '@sealpost/identity'
import type { DeliveryId, EnvelopeId, MeshId } from '@sealpost/std'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import type { PushedDelivery } from '../inbox/message.ts'
import type { PeerEvent } from '../ports.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import { alarmsOf, HostileScene, type Side } from './hostile.ts'

beforeAll(() => ready())

interface Row {
  readonly broker: string
  /** All expected events, in order. */
  readonly raises: readonly (Partial<PeerEvent> & { type: PeerEvent['type'] })[]
  readonly shows: readonly string[]
  readonly attack: (scene: HostileScene, alice: Side, bob: Side) => Promise<void>
}

const tamper = (reason: string) => ({ type: 'tamper' as const, reason })
const gap = (missing: number) => ({ type: 'gap' as const, missing })
const OTHER_ID = '0123456789abcdef'.repeat(2) as EnvelopeId
const OTHER_MESH = '0e'.repeat(16) as MeshId
const texts = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => `${from + i}`)

const changed = (push: PushedDelivery, change: (envelope: Uint8Array) => Uint8Array): PushedDelivery => ({
  ...push,
  envelope: change(push.envelope.slice()),
})

const rows: Row[] = [
  {
    broker: 'follows the rules',
    raises: [],
    shows: ['1', '2', '3'],
    attack: async (scene, alice, bob) => scene.push(bob, ...(await scene.mail(alice, scene.bob, '1', '2', '3'))),
  },
  {
    broker: 'replays a message that was settled',
    raises: [],
    shows: ['1'],
    attack: async (scene, alice, bob) => {
      const [one] = await scene.mail(alice, scene.bob, '1')
      scene.push(bob, one!)
      await bob.shows(1)
      scene.push(bob, { ...one!, attempt: 2 }, { ...one!, id: 70 as DeliveryId })
    },
  },
  {
    broker: 'replays a message under a different envelope id',
    raises: [tamper('wrong_envelope_id')],
    shows: ['1'],
    attack: async (scene, alice, bob) => {
      const [one] = await scene.mail(alice, scene.bob, '1')
      scene.push(bob, one!, { ...one!, id: 70 as DeliveryId, envelopeId: OTHER_ID })
    },
  },
  {
    broker: 'presents an old envelope under the id of a new one',
    raises: [tamper('wrong_envelope_id')],
    shows: ['1'],
    attack: async (scene, alice, bob) => {
      const [one, two] = await scene.mail(alice, scene.bob, '1', '2')
      scene.push(bob, one!, { ...two!, envelope: one!.envelope })
    },
  },
  {
    broker: 'swaps two messages',
    raises: [],
    shows: ['1', '2', '3'],
    attack: async (scene, alice, bob) => {
      const [one, two, three] = await scene.mail(alice, scene.bob, '1', '2', '3')
      scene.push(bob, one!, three!, two!)
      await bob.shows(3)
      expect(bob.peer.counters.reordered).toBe(1)
    },
  },
  {
    broker: 'reverses the order of sixty messages',
    raises: [],
    shows: texts(1, 61),
    attack: async (scene, alice, bob) => {
      const [first, ...rest] = await scene.mail(alice, scene.bob, ...texts(1, 61))
      scene.push(bob, first!, ...rest.reverse())
    },
  },
  {
    broker: 'pushes a held message twice',
    raises: [],
    shows: ['1', '2', '3'],
    attack: async (scene, alice, bob) => {
      const [one, two, three] = await scene.mail(alice, scene.bob, '1', '2', '3')
      scene.push(bob, one!, three!, { ...three!, attempt: 2 }, two!)
    },
  },
  {
    broker: 'drops a message in the middle',
    raises: [gap(1)],
    shows: ['1', '3'],
    attack: async (scene, alice, bob) => {
      const [one, , three] = await scene.mail(alice, scene.bob, '1', '2', '3')
      scene.push(bob, one!, three!)
      await bob.next('gap')
    },
  },
  {
    broker: 'drops two messages in different places',
    raises: [gap(1), gap(1)],
    shows: ['1', '3', '4', '6'],
    attack: async (scene, alice, bob) => {
      const mail = await scene.mail(alice, scene.bob, ...texts(1, 6))
      scene.push(bob, ...mail.filter((_, i) => i !== 1 && i !== 4))
      await bob.next('gap', 2)
    },
  },
  {
    broker: 'withholds a message until more than 64 wait for it',
    raises: [gap(1)],
    shows: ['1', ...texts(3, 67), '2'],
    attack: async (scene, alice, bob) => {
      const [one, two, ...rest] = await scene.mail(alice, scene.bob, ...texts(1, 67))
      scene.push(bob, one!, ...rest)
      await bob.shows(66)
      scene.push(bob, two!)
    },
  },
  {
    broker: 'names a different member as the sender',
    raises: [tamper('does_not_open')],
    shows: [],
    attack: async (scene, alice, bob) => {
      const [one] = await scene.mail(alice, scene.bob, '1')
      scene.push(bob, { ...one!, sender: scene.carol.signing.publicKey })
      await bob.next('tamper')
    },
  },
  {
    broker: 'names the recipient as the sender',
    raises: [tamper('does_not_open')],
    shows: [],
    attack: async (scene, alice, bob) => {
      const [one] = await scene.mail(alice, scene.bob, '1')
      scene.push(bob, { ...one!, sender: scene.bob.signing.publicKey })
      await bob.next('tamper')
    },
  },
  {
    broker: "returns the recipient's own message as the other's",
    raises: [tamper('reflected')],
    shows: [],
    attack: async (scene, _, bob) => {
      const [own] = await scene.mail(bob, scene.alice, 'to Alice')
      scene.push(bob, { ...own!, sender: scene.alice.signing.publicKey })
    },
  },
  {
    broker: 'delivers a message to a different recipient',
    raises: [tamper('does_not_open')],
    shows: [],
    attack: async (scene, alice, bob) => {
      const [one] = await scene.mail(alice, scene.carol, '1')
      scene.push(bob, one!)
      await bob.next('tamper')
    },
  },
  {
    broker: 'delivers a message from another mesh of the same peers',
    raises: [tamper('foreign_mesh')],
    shows: [],
    attack: async (scene, _, bob) => {
      await using other = new HostileScene({ alice: scene.alice, bob: scene.bob, meshId: OTHER_MESH })
      const [one] = await other.mail(await other.join(other.alice), other.bob, '1')
      scene.push(bob, one!)
    },
  },
  ...[24, 40, 80, 200].map(
    (at): Row => ({
      broker: `flips one bit, in byte ${at}`,
      raises: [tamper('does_not_open')],
      shows: [],
      attack: async (scene, alice, bob) => {
        const [one] = await scene.mail(alice, scene.bob, 'some words')
        const flipped = changed(one!, (envelope) => envelope.with(at, envelope[at]! ^ 1))
        scene.push(bob, flipped)
        await bob.next('tamper')
      },
    }),
  ),
  {
    broker: 'truncates a message',
    raises: [tamper('does_not_open')],
    shows: [],
    attack: async (scene, alice, bob) => {
      const [one] = await scene.mail(alice, scene.bob, 'some words')
      scene.push(
        bob,
        changed(one!, (envelope) => envelope.subarray(0, -1)),
      )
      await bob.next('tamper')
    },
  },
  {
    broker: 'moves a message to a different thread',
    raises: [tamper('wrong_thread')],
    shows: [],
    attack: async (scene, alice, bob) => {
      const sent = alice.peer.send(scene.bob.signing.publicKey, '1', { thread: 'a1'.repeat(16) })
      const [one] = await scene.catches(1)
      await sent
      scene.push(bob, { ...one!, terms: { ...one!.terms!, thread: 'b2'.repeat(16) } })
    },
  },
  {
    broker: 'presents an ephemeral message as a stored message',
    raises: [tamper('is_ephemeral')],
    shows: [],
    attack: async (scene, alice, bob) => {
      const heard = Promise.withResolvers<PushedDelivery>()
      scene.cheat = (socket, frame) => {
        if (frame.type !== 'sendEphemeral') return false
        const { envelopeId, envelope } = frame.items[0]!
        const outside = { id: 70 as DeliveryId, sender: socket.peer!, attempt: 1, enqueuedAtMs: 1 }
        heard.resolve({ ...outside, envelopeId, priority: 'next', envelope })
        return true
      }
      alice.peer.sendEphemeral(scene.bob.signing.publicKey, 'typing')
      scene.push(bob, await heard.promise)
    },
  },
  {
    broker: 'presents a stored message as an ephemeral message',
    raises: [tamper('not_ephemeral')],
    shows: [],
    attack: async (scene, alice, bob) => {
      const [{ sender, envelopeId, envelope }] = (await scene.mail(alice, scene.bob, '1')) as [PushedDelivery]
      bob.socket.say({ type: 'pushEphemeral', items: [{ sender, envelopeId, envelope }] })
    },
  },
  {
    broker: 'replies to a request with the reply to another request',
    raises: [],
    shows: ['one?', 'two?'],
    attack: async (scene, alice, bob) => {
      const ask = (text: string, timeoutMs = 60_000) =>
        alice.peer.request(scene.bob.signing.publicKey, text, { timeoutMs })
      bob.react = (message) => message.isRequest && message.reply('one!')
      const one = ask('one?')
      scene.push(bob, (await scene.catches(1))[0]!)
      const answer = (await scene.catches(2))[1]!
      scene.push(alice, answer)
      expect((await one).text()).toBe('one!')
      const two = ask('two?', 1_000).catch(({ code }) => code)
      scene.push(bob, (await scene.catches(3))[2]!)
      scene.push(alice, { ...answer, id: 70 as DeliveryId })
      expect(await two).toBe('timeout')
    },
  },
]

/** Returns the rejections that an event implies. An ephemeral message can't be rejected. */
const rejectionOf = (event: Partial<PeerEvent>): string[] =>
  event.type === 'tamper' && event.reason !== 'not_ephemeral' ? [event.reason!] : []

describe('the peer detects a broker that', () => {
  test.each(rows)('attacks a message: it $broker', async ({ raises, shows, attack }) => {
    await using scene = new HostileScene()
    const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    await attack(scene, alice, bob)
    await scene.sentinel(bob)
    expect(alarmsOf(bob)).toEqual(raises.map((event) => expect.objectContaining(event)))
    expect(bob.shown).toEqual([...shows, 'the end'])
    await scene.leave(bob)
    expect(scene.unsettled).toEqual([])
    expect(scene.rejections).toEqual(raises.flatMap(rejectionOf))
  })
})

test('a peer with a store detects a replay of messages that its former process settled', async () => {
  await using scene = new HostileScene()
  const alice = await scene.join(scene.alice)
  const [one] = await scene.mail(alice, scene.bob, '1')
  const memory = new MemoryStore()
  const before = await scene.join(scene.bob, { store: memory })
  scene.push(before, one!)
  await before.shows(1)
  await scene.leave(before)
  const after = await scene.join(scene.bob, { store: new MemoryStore(memory.records) })
  scene.push(after, { ...one!, attempt: 2 })
  await scene.sentinel(after)
  expect([after.shown, after.peer.counters.duplicates]).toEqual([['the end'], 1])
})

test('a redriven message of any age is handed out to the peer that rejected it', async () => {
  await using scene = new HostileScene()
  const alice = await scene.join(scene.alice)
  const [one] = await scene.mail(alice, scene.bob, '1')
  const bob = await scene.join(scene.bob)
  const marks: boolean[] = []
  bob.react = (message) => {
    marks.push(message.isRedriven)
    if (marks.length === 1) message.reject('a bug in the program')
    else message.settle()
  }
  scene.push(bob, one!)
  await bob.shows(1)
  const realNow = performance.now.bind(performance)
  vi.spyOn(performance, 'now').mockImplementation(() => realNow() + 32 * 24 * 3600_000)
  scene.push(bob, { ...one!, id: (one!.id + 1_000) as DeliveryId, attempt: 2 })
  await bob.shows(2)
  const alarms = alarmsOf(bob)
  await scene.leave(bob)
  vi.restoreAllMocks()
  expect([alarms, marks]).toEqual([[], [false, true]])
})

describe('a replay to a peer without a store of messages that its former process settled', () => {
  async function replayed(later: Parameters<HostileScene['join']>[1]): Promise<[HostileScene, Side, PushedDelivery]> {
    const scene = new HostileScene()
    const alice = await scene.join(scene.alice)
    const [one] = await scene.mail(alice, scene.bob, '1')
    const before = await scene.join(scene.bob)
    scene.push(before, one!)
    await before.shows(1)
    await scene.leave(before)
    return [scene, await scene.join(scene.bob, later), one!]
  }

  test.each([
    ['without a store, after 31 days', undefined, 31],
    ['with a maximum age of one hour', { maxAgeSeconds: 3_600 }, 1 / 24],
  ])('is reported and rejected: %s', async (_, options, days) => {
    const [scene, after, one] = await replayed(options)
    await using _scene = scene
    const realNow = performance.now.bind(performance)
    vi.spyOn(performance, 'now').mockImplementation(() => realNow() + days * 24 * 3600_000)
    scene.push(after, one)
    expect(await after.next('too_old')).toMatchObject({ sender: one.sender, envelopeId: one.envelopeId })
    await scene.leave(after)
    vi.restoreAllMocks()
    expect([after.shown, scene.rejections]).toEqual([[], ['too_old']])
  })

  test('is rejected again if the broker claims that the too old message was redriven', async () => {
    const [scene, after, one] = await replayed({ maxAgeSeconds: 3_600 })
    await using _scene = scene
    const realNow = performance.now.bind(performance)
    vi.spyOn(performance, 'now').mockImplementation(() => realNow() + 3_600_000)
    scene.push(after, one)
    await after.next('too_old')
    while (scene.rejections.length < 1) await new Promise((resolve) => setImmediate(resolve))
    scene.push(after, { ...one, id: (one.id + 1_000) as DeliveryId, attempt: 2 })
    while (scene.rejections.length < 2) await new Promise((resolve) => setImmediate(resolve))
    await scene.leave(after)
    vi.restoreAllMocks()
    expect([after.shown, scene.rejections]).toEqual([[], ['too_old', 'too_old']])
  })

  test('is not detected before the message is too old', async () => {
    const [scene, after, one] = await replayed({ maxAgeSeconds: 3_600 })
    await using _scene = scene
    scene.push(after, one)
    await after.shows(1)
    expect(alarmsOf(after)).toEqual([])
  })
})

/** Returns mail from an attacker who has Alice's box key but not her signing key. */
function forgery(alice: Identity, bob: Identity, after: PushedDelivery, meshId: MeshId, text: string): PushedDelivery {
  const reader = new Sealer({ identity: bob, meshId })
  const [aliceEnd, bobEnd] = [alice, bob].map(({ signing, box }) => ({
    peerKey: signing.publicKey,
    boxKey: box.publicKey,
    boxEpoch: box.epoch,
  }))
  const opened = openEnvelope(reader, after.envelope, { from: aliceEnd!, envelopeId: after.envelopeId })
  if (!opened.ok) throw new Error(opened.reason)
  const { streamId, seq } = opened.header.stream!
  const signing = { ...generateIdentity().signing, publicKey: alice.signing.publicKey }
  const thief = new Sealer({ identity: { signing, box: alice.box }, meshId })
  const { envelope } = sealInStream(thief, {
    to: bobEnd!,
    envelopeId: OTHER_ID,
    stream: { streamId, seq: seq + 1, prev: opened.headerHash! },
    sentAtMs: Date.now(),
    body: new TextEncoder().encode(text),
  })
  return { ...after, id: 70 as DeliveryId, envelopeId: OTHER_ID, envelope }
}

test("an attacker with the sender's box key who writes in her stream is detected when she continues it", async () => {
  await using scene = new HostileScene()
  const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
  const [one, two, three] = await scene.mail(alice, scene.bob, '1', '2', '3')
  const forged = forgery(scene.alice, scene.bob, one!, scene.broker.meshId, 'forged')
  scene.push(bob, one!, forged, two!, three!)
  await scene.sentinel(bob)
  expect(alarmsOf(bob)).toMatchObject([
    { type: 'tamper', reason: 'place_taken', envelopeId: two!.envelopeId },
    { type: 'forked', envelopeId: three!.envelopeId },
  ])
  expect(bob.shown).toEqual(['1', 'forged', '3', 'the end'])
})

test('later messages of the same attacker are dropped', async () => {
  await using scene = new HostileScene()
  const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
  const [one, two, three] = await scene.mail(alice, scene.bob, '1', '2', '3')
  const forged = forgery(scene.alice, scene.bob, one!, scene.broker.meshId, 'forged')
  scene.push(bob, one!, two!, forged, three!)
  await scene.sentinel(bob)
  expect(alarmsOf(bob)).toMatchObject([{ type: 'tamper', reason: 'place_taken', envelopeId: OTHER_ID }])
  expect(bob.shown).toEqual(['1', '2', '3', 'the end'])
})

/** Attacks that the SDK can't detect (see `docs/SECURITY.md`). */
describe('the peer does not detect a broker that', () => {
  test('drops the last messages of a stream', async () => {
    await using scene = new HostileScene()
    const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    const [one] = await scene.mail(alice, scene.bob, '1', '2')
    scene.push(bob, one!)
    await scene.sentinel(bob)
    expect([alarmsOf(bob), alarmsOf(alice)]).toEqual([[], []])
  })

  test('lies about the fate of a message', async () => {
    await using scene = new HostileScene()
    const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    const recipient = scene.bob.signing.publicKey
    const { envelopeId } = await alice.peer.send(recipient, '1', { receipts: 'end' })
    alice.socket.say({
      type: 'receipts',
      items: [{ id: 1 as DeliveryId, envelopeId, recipient, event: 'settled', atMs: 1 }],
    })
    expect(await alice.next('receipt')).toMatchObject({ envelopeId, event: 'settled' })
    expect(bob.shown).toEqual([])
  })

  test('delays messages, and lies about storage times, attempts and presence', async () => {
    await using scene = new HostileScene()
    const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    const [one] = await scene.mail(alice, scene.bob, '1')
    const nobody = generateIdentity().signing.publicKey
    const peers = [{ peer: nobody, isOnline: true, availability: 'idle' as const, summary: '' }]
    bob.socket.say({ type: 'presence', peers, isSnapshot: true })
    scene.push(bob, { ...one!, attempt: 9, enqueuedAtMs: 4_000_000_000_000, priority: 'now' })
    await scene.sentinel(bob)
    expect([alarmsOf(bob), bob.shown]).toEqual([[], ['1', 'the end']])
  })
})
