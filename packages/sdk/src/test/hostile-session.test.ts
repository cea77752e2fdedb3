/**
 * Tests how a hostile broker, or an impostor in its place, begins and ends sessions, and the victim's exact events
 * (security model 3.3). Each row is one test over a real WebSocket.
 */
import { generateSigningKeys, ready, signAsBroker, type Transcript } from '@sealpost/identity'
import { encode, type FrameOf, type ServerFrame } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId } from '@sealpost/std'
import { beforeAll, describe, expect, test } from 'vitest'
import type { PeerEvent } from '../ports.ts'
import type { BrokerSocket } from './broker.ts'
import { alarmsOf, HostileScene, type Side } from './hostile.ts'

beforeAll(() => ready())

const OTHER_ID = '0123456789abcdef'.repeat(2) as EnvelopeId
type Auth = FrameOf<'auth'>

/** Returns the broker's transcript, with another key if given. */
function transcriptOf({ broker }: HostileScene, socket: BrokerSocket, auth: Auth): Transcript {
  const { versions, nonce, connectionId, issuedAtMs, brokerKey } = broker.hello(socket)
  const { version, meshId, peerKey, clientNonce, capabilities } = auth
  const authority = new URL(broker.url).host
  const asked = { version, meshId, peerKey, clientNonce, capabilities }
  return { ...asked, versionsOffered: versions, authority, brokerKey, serverNonce: nonce, connectionId, issuedAtMs }
}

interface GreetingRow {
  readonly broker: string
  readonly ends: string
  /** The broker's reply to AUTH. */
  readonly welcome?: (scene: HostileScene, socket: BrokerSocket, auth: Auth) => ServerFrame
  readonly hello?: Partial<FrameOf<'hello'>>
}

const greetings: GreetingRow[] = [
  {
    broker: 'names another key than the pinned one',
    ends: 'wrong_broker',
    hello: { brokerKey: 'ab'.repeat(32) as never },
  },
  { broker: 'speaks only versions that do not exist yet', ends: 'version_unsupported', hello: { versions: [9] } },
  {
    broker: 'proves itself with another key',
    ends: 'wrong_broker',
    welcome: (scene, socket, auth) => {
      const stranger = generateSigningKeys()
      const transcript = { ...transcriptOf(scene, socket, auth), brokerKey: stranger.publicKey }
      return scene.broker.welcome(signAsBroker(stranger, transcript, auth.signature))
    },
  },
  {
    broker: 'proves itself for another peer',
    ends: 'wrong_broker',
    welcome: (scene, socket, auth) => {
      const transcript = { ...transcriptOf(scene, socket, auth), peerKey: scene.carol.signing.publicKey }
      return scene.broker.welcome(signAsBroker(scene.broker.keys, transcript, auth.signature))
    },
  },
  {
    broker: 'proves itself for another connection',
    ends: 'wrong_broker',
    welcome: (scene, socket, auth) => {
      const transcript = { ...transcriptOf(scene, socket, auth), connectionId: new Uint8Array(16) }
      return scene.broker.welcome(signAsBroker(scene.broker.keys, transcript, auth.signature))
    },
  },
  {
    broker: 'proves itself for another address, like one that relays the greeting',
    ends: 'wrong_broker',
    welcome: (scene, socket, auth) => {
      const transcript = { ...transcriptOf(scene, socket, auth), authority: 'broker.example:443' }
      return scene.broker.welcome(signAsBroker(scene.broker.keys, transcript, auth.signature))
    },
  },
  {
    broker: 'sends an empty signature',
    ends: 'wrong_broker',
    welcome: (scene) => scene.broker.welcome(new Uint8Array(64)),
  },
]

describe('a greeting that', () => {
  test.each(greetings)(
    'the peer cannot accept closes the peer permanently: it $broker',
    async ({ ends, welcome, hello }) => {
      await using scene = new HostileScene()
      const greet = scene.broker.hello.bind(scene.broker)
      if (hello) scene.broker.hello = (socket) => ({ ...greet(socket), ...hello })
      scene.cheat = (socket, frame) => welcome !== undefined && frame.type === 'auth' && say(socket, welcome(scene, socket, frame)) // biome-ignore format: short
      await expect(scene.join(scene.bob)).rejects.toMatchObject({ code: ends, isRetryable: false })
      expect(scene.broker.heard.filter(({ type }) => type !== 'auth')).toEqual([])
    },
  )

  test('repeats an old one ends the peer permanently: wrong_broker', async () => {
    await using scene = new HostileScene()
    let old: ServerFrame | null = null
    const welcome = scene.broker.welcome.bind(scene.broker)
    scene.broker.welcome = (proof) => {
      old ??= welcome(proof)
      return old as FrameOf<'welcome'>
    }
    await scene.join(scene.alice)
    await expect(scene.join(scene.alice)).rejects.toMatchObject({ code: 'wrong_broker' })
  })
})

function say(socket: BrokerSocket, frame: ServerFrame): true {
  socket.say(frame)
  return true
}

interface SessionRow {
  readonly broker: string
  readonly raises: readonly Partial<PeerEvent>[]
  readonly attack: (scene: HostileScene, bob: Side) => void | Promise<void>
}

const dropped = (code: string) => ({ type: 'disconnected', code }) as Partial<PeerEvent>

const sessions: SessionRow[] = [
  {
    broker: 'sends two `welcome` frames',
    raises: [dropped('frame_unexpected')],
    attack: ({ broker }, { socket }) => socket.say(broker.welcome(new Uint8Array(64))),
  },
  {
    broker: 'sends two greetings',
    raises: [dropped('frame_unexpected')],
    attack: ({ broker }, { socket }) => socket.say(broker.hello(socket)),
  },
  {
    broker: 'sends bytes that are no frame',
    raises: [dropped('frame_malformed')],
    attack: (_, { socket }) => socket.onmessage!({ data: new Uint8Array([255, 1, 2, 3]).buffer }),
  },
  {
    broker: 'sends half of a frame',
    raises: [dropped('frame_malformed')],
    attack: ({ broker }, { socket }) => {
      const wire = encode('binary', broker.hello(socket)) as Uint8Array
      socket.onmessage!({ data: wire.slice(0, wire.length / 2).buffer })
    },
  },
  {
    broker: 'sends replies without requests',
    raises: [],
    attack: (_, { socket }) => {
      const unasked: ServerFrame[] = [
        { type: 'ack', items: [{ envelopeId: OTHER_ID, isDuplicate: false }] },
        { type: 'nack', items: [{ envelopeId: OTHER_ID, code: 'busy', retryAfterMs: 0 }] },
        { type: 'pong', ref: 77 },
        { type: 'roster', ref: 77, members: [], isLast: true },
        { type: 'bound', ref: 77, outcome: 'done' },
        { type: 'groupSet', ref: 77, outcome: 'done' },
        { type: 'consented', ref: 77, outcome: 'done', policy: 'open', peers: [], unknown: [] },
      ]
      for (const frame of unasked) socket.say(frame)
    },
  },
  {
    broker: 'closes the connection',
    raises: [dropped('connection_lost')],
    attack: (_, { socket }) => socket.cut(1006),
  },
]

describe('a broker that', () => {
  test.each(sessions)('$broker', async ({ raises, attack }) => {
    await using scene = new HostileScene()
    const bob = await scene.join(scene.bob)
    await attack(scene, bob)
    // If the broker ended the session, wait until the peer has reconnected.
    await bob.next('connected', 1 + raises.length)
    await scene.sentinel(bob)
    expect(alarmsOf(bob)).toEqual(raises.map((event) => expect.objectContaining(event)))
    expect(bob.shown).toEqual(['the end'])
  })

  test('reports that its database may lose acknowledged messages is trusted', async () => {
    await using scene = new HostileScene()
    const welcome = scene.broker.welcome.bind(scene.broker)
    scene.broker.welcome = (proof) => ({ ...welcome(proof), durability: 'degraded' })
    const bob = await scene.join(scene.bob)
    expect(await bob.next('connected')).toMatchObject({ durability: 'degraded' })
  })

  test('was restored from a backup has another incarnation, and reports it', async () => {
    await using scene = new HostileScene()
    const welcome = scene.broker.welcome.bind(scene.broker)
    const bob = await scene.join(scene.bob)
    scene.broker.welcome = (proof) => ({ ...welcome(proof), incarnation: 'ee'.repeat(16) })
    bob.socket.cut(1006)
    const [before, after] = [await bob.next('connected'), await bob.next('connected', 2)]
    expect([before.incarnation, after.incarnation]).toEqual(['00'.repeat(16), 'ee'.repeat(16)])
  })

  test.each([
    ['the same epoch again', 0, true],
    ['an earlier epoch', -1, true],
    ['the next epoch', 1, false],
  ])('under one incarnation gives a session %s', async (_, step, isRestored) => {
    await using scene = new HostileScene()
    const alice = await scene.join(scene.alice)
    const [one] = await scene.mail(alice, scene.bob, '1')
    const { epoch, incarnation } = await alice.next('connected')
    const welcome = scene.broker.welcome.bind(scene.broker)
    scene.broker.welcome = (proof) => ({ ...welcome(proof), epoch: epoch + step })
    alice.socket.cut(1012)
    await alice.next('connected', 2)
    await scene.mail(alice, scene.bob, '2')
    const said = scene.caught.filter(({ envelopeId }) => envelopeId === one!.envelopeId)
    const restored = alice.seen.filter(({ type }) => type === 'restored')
    expect(said).toHaveLength(isRestored ? 2 : 1)
    expect(restored).toEqual(isRestored ? [{ type: 'restored', incarnation, resent: 1 }] : [])
  })
})

interface DenialRow {
  readonly broker: string
  readonly code: string
  readonly closes: number
}

/** Refusals, which any broker can send. The peer ends with their code. */
const denials: DenialRow[] = [
  { broker: 'reports the key as revoked', code: 'revoked', closes: 4403 },
  { broker: 'reports that another session took over', code: 'superseded', closes: 4409 },
]

describe('the peer cannot stop a broker that', () => {
  test.each(denials)('$broker', async ({ code, closes }) => {
    await using scene = new HostileScene()
    const bob = await scene.join(scene.bob)
    bob.socket.cut(closes)
    expect(await bob.next('closed')).toMatchObject({ error: { code } })
    expect(await bob.peer.closed).toMatchObject({ code })
  })

  test('acknowledges a message and drops it', async () => {
    await using scene = new HostileScene()
    const alice = await scene.join(scene.alice)
    const receipt = await alice.peer.send(scene.bob.signing.publicKey, 'lost')
    expect(receipt.isDuplicate).toBe(false)
    expect(alarmsOf(alice)).toEqual([])
  })

  test('reports messages as lost', async () => {
    await using scene = new HostileScene()
    const bob = await scene.join(scene.bob)
    const sender = scene.alice.signing.publicKey
    const lost = [{ id: 7 as DeliveryId, envelopeId: OTHER_ID, sender, reason: 'expired' as const }]
    bob.socket.say({ type: 'recovered', lost, isAll: true })
    expect(await bob.next('recovered')).toMatchObject({ isRecovered: false, lost: [{ sender, reason: 'expired' }] })
  })
})
