/**
 * Implements a baseline: a program that speaks the broker's protocol with the broker's codec and batching, performs the
 * same signed handshake, and passes the envelopes to a `ProxyBackend`. By itself it is a relay, which stores nothing
 * and acks immediately, so that Sealpost's additional time is the cost of storing.
 */
import type { BrokerAddress } from '@sealpost/harness/members/mesh'
import { serveParent } from '@sealpost/harness/programs/child'
import { type KeyBinding, ready, signAsBroker, signingKeysFromSeed, verifyClient } from '@sealpost/identity'
import {
  BATCH_MAX,
  type ClientFrame,
  FRAME_BYTES_MAX,
  type FrameOf,
  type KeyBindingEntry,
  PROTOCOL_VERSIONS,
  type ServerForm,
  type ServerFrame,
  SUBPROTOCOLS,
  type Subprotocol,
  serverForms,
} from '@sealpost/protocol'
import { type DeliveryId, fromHex, type MeshId, type PeerKey } from '@sealpost/std'
import type { ServerWebSocket } from 'bun'

export interface ProxySetup {
  /** The seed of the broker's signing key. */
  readonly signingSeed: string
  readonly meshId: MeshId
  readonly bindings: readonly KeyBinding[]
  /** Null for the relay. */
  readonly databaseUrl: string | null
}

export type ProxiedEnvelope = FrameOf<'send'>['envelopes'][number]
export type ProxiedDelivery = FrameOf<'push'>['deliveries'][number]
type Ack = FrameOf<'ack'>['items'][number]

/** Stores or forwards envelopes, and acks and pushes them through the `ProxyBroker`. */
export interface ProxyBackend {
  take(sender: PeerKey, envelopes: readonly ProxiedEnvelope[]): void
  close(): Promise<void>
}

/** A push's overhead per envelope, rounded up. */
const DELIVERY_BYTES = 80
const PUSH_BYTES_MAX = FRAME_BYTES_MAX - 1024

interface Connection {
  readonly session: ProxySession
  readonly form: ServerForm
}

type Socket = ServerWebSocket<Connection>

class ProxySession {
  socket: Socket | undefined
  peerKey: PeerKey | undefined
  hello: FrameOf<'hello'> | undefined
  acks: Ack[] = []
  pushes: ProxiedDelivery[] = []
  isDirty = false
}

export class ProxyBroker {
  readonly #setup: ProxySetup
  readonly #backend: ProxyBackend
  readonly #signing
  readonly #directory = new Map<PeerKey, KeyBindingEntry>()
  readonly #online = new Map<PeerKey, ProxySession>()
  readonly #server
  #dirty: ProxySession[] = []

  constructor(setup: ProxySetup, openBackend: (broker: ProxyBroker) => ProxyBackend) {
    this.#setup = setup
    this.#backend = openBackend(this)
    this.#signing = signingKeysFromSeed(fromHex(setup.signingSeed))
    for (const { peerKey, boxKey, boxEpoch, notAfterMs, signature } of setup.bindings)
      this.#directory.set(peerKey, { peer: peerKey, boxKey, boxEpoch, notAfterMs, signature })
    this.#server = Bun.serve<Connection>({
      hostname: '127.0.0.1',
      port: 0,
      reusePort: false,
      fetch: (request, server) => {
        const name = request.headers.get('sec-websocket-protocol') as Subprotocol
        const data = { session: new ProxySession(), form: serverForms[SUBPROTOCOLS[name]] }
        const isUpgraded = server.upgrade(request, { headers: { 'Sec-WebSocket-Protocol': name }, data })
        return isUpgraded ? undefined : new Response('a WebSocket is required', { status: 426 })
      },
      websocket: {
        perMessageDeflate: false,
        maxPayloadLength: FRAME_BYTES_MAX,
        backpressureLimit: 1024 * 1024 * 1024,
        open: (socket) => this.#opened(socket),
        message: (socket, wire) => this.#received(socket, wire),
        close: ({ data: { session } }) => {
          if (session.peerKey) this.#online.delete(session.peerKey)
        },
      },
    })
  }

  get address(): BrokerAddress {
    return { url: `ws://127.0.0.1:${this.#server.port}/v1/ws`, brokerKey: this.#signing.publicKey }
  }

  ack(sender: PeerKey, envelopeId: Ack['envelopeId']): void {
    const session = this.#online.get(sender)
    if (!session) return
    session.acks.push({ envelopeId, isDuplicate: false })
    this.#flushSoon(session)
  }

  isOnline(peer: PeerKey): boolean {
    return this.#online.has(peer)
  }

  push(recipient: PeerKey, delivery: ProxiedDelivery): void {
    const session = this.#online.get(recipient)
    if (!session) return
    session.pushes.push(delivery)
    this.#flushSoon(session)
  }

  close(): Promise<void> {
    return this.#backend.close()
  }

  #opened(socket: Socket): void {
    const { session } = socket.data
    socket.binaryType = 'uint8array'
    session.socket = socket
    session.hello = {
      type: 'hello',
      versions: [...PROTOCOL_VERSIONS],
      brokerKey: this.#signing.publicKey,
      connectionId: crypto.getRandomValues(new Uint8Array(16)),
      nonce: crypto.getRandomValues(new Uint8Array(32)),
      issuedAtMs: Date.now(),
      authWithinMs: 10_000,
    }
    sendFrame(session, session.hello)
  }

  #received(socket: Socket, wire: string | Uint8Array): void {
    const { session, form } = socket.data
    const decoded = form.decode(wire)
    if (decoded.ok) this.#take(session, decoded.frame)
    else socket.close(4400, decoded.code)
  }

  #take(session: ProxySession, frame: ClientFrame): void {
    if (frame.type === 'send') return this.#backend.take(session.peerKey!, frame.envelopes)
    if (frame.type === 'auth') return this.#authenticate(session, frame)
    if (frame.type === 'lookup') return this.#lookUp(session, frame)
    if (frame.type === 'ping') sendFrame(session, { type: 'pong', ref: frame.ref })
  }

  /** Sends all frames of a turn of the event loop together. */
  #flushSoon(session: ProxySession): void {
    if (session.isDirty) return
    session.isDirty = true
    if (this.#dirty.push(session) === 1) setImmediate(this.#flush)
  }

  readonly #flush = (): void => {
    const sessions = this.#dirty
    this.#dirty = []
    for (const session of sessions) session.socket?.cork(() => sendWaiting(session))
  }

  #authenticate(session: ProxySession, { type: _, signature, credit: __, ...auth }: FrameOf<'auth'>): void {
    const { versions, brokerKey, connectionId, nonce, issuedAtMs } = session.hello!
    const authority = `127.0.0.1:${this.#server.port}`
    const own = { authority, brokerKey, connectionId, issuedAtMs, versionsOffered: versions, serverNonce: nonce }
    const transcript = { ...auth, ...own }
    const isMember = auth.meshId === this.#setup.meshId && this.#directory.has(auth.peerKey)
    if (!isMember || !verifyClient(transcript, signature)) return session.socket!.close(4401, 'auth_failed')
    session.peerKey = auth.peerKey
    this.#online.set(auth.peerKey, session)
    sendFrame(session, {
      type: 'welcome',
      proof: signAsBroker(this.#signing, transcript, signature),
      epoch: 1,
      incarnation: '0'.repeat(32),
      durability: 'degraded',
      heartbeatMs: 15_000,
      leaseMs: 30_000,
      dedupeSeconds: 86_400,
      creditMax: 1024,
      envelopeBytesMax: 72 * 1024,
      ttlSecondsMax: 86_400,
      inFlightMax: 1024,
    })
  }

  #lookUp(session: ProxySession, { ref, peers }: FrameOf<'lookup'>): void {
    const bindings = peers.flatMap((peer) => this.#directory.get(peer) ?? [])
    const unknown = peers.filter((peer) => !this.#directory.has(peer))
    sendFrame(session, { type: 'directory', ref, bindings, unknown })
  }
}

function sendWaiting(session: ProxySession): void {
  const { acks, pushes } = session
  session.isDirty = false
  session.acks = []
  session.pushes = []
  for (let at = 0; at < acks.length; at += BATCH_MAX)
    sendFrame(session, { type: 'ack', items: acks.slice(at, at + BATCH_MAX) })
  for (let at = 0, end = 0; at < pushes.length; at = end) {
    let bytes = 0
    while (end < pushes.length && end - at < BATCH_MAX) {
      bytes += pushes[end]!.envelope.length + DELIVERY_BYTES
      if (bytes > PUSH_BYTES_MAX && end > at) break
      end += 1
    }
    sendFrame(session, { type: 'push', deliveries: end - at === pushes.length ? pushes : pushes.slice(at, end) })
  }
}

function sendFrame({ socket }: ProxySession, frame: ServerFrame): void {
  socket?.send(socket.data.form.encode(frame))
}

class Relay implements ProxyBackend {
  readonly #broker: ProxyBroker
  #lastId = 0

  constructor(broker: ProxyBroker) {
    this.#broker = broker
  }

  take(sender: PeerKey, envelopes: readonly ProxiedEnvelope[]): void {
    const enqueuedAtMs = Date.now()
    for (const { envelopeId, recipient, priority, envelope } of envelopes) {
      const id = ++this.#lastId as DeliveryId
      this.#broker.ack(sender, envelopeId)
      this.#broker.push(recipient, { id, envelopeId, sender, priority, attempt: 1, enqueuedAtMs, envelope })
    }
  }

  async close(): Promise<void> {
    // the relay stores nothing
  }
}

/** Runs a baseline as a child process, which replies with its address. */
export function serveProxy(open: (setup: ProxySetup) => Promise<ProxyBroker>): void {
  let broker: ProxyBroker | undefined
  serveParent<ProxySetup, BrokerAddress>(
    async (setup, reply) => {
      await ready()
      broker = await open(setup)
      reply(broker.address)
    },
    async () => broker?.close(),
  )
}

if (import.meta.main) serveProxy(async (setup) => new ProxyBroker(setup, (broker) => new Relay(broker)))
