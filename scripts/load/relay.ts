/**
 * The yardstick: a relay that keeps nothing. It speaks the broker's protocol with the broker's codec and batching, makes
 * the same signed handshake, and acks and pushes each envelope from memory within the same turn of the event loop. What
 * a broker that stores everything falls short of it is the price of storing.
 */
import { type KeyBinding, ready, signAsBroker, signingKeysFromSeed, verifyClient } from '@sealpost/identity'
import {
  BATCH_MAX,
  type ClientFrame,
  decodeClientFrame,
  encode,
  type Form,
  FRAME_BYTES_MAX,
  type FrameOf,
  type KeyBindingEntry,
  PROTOCOL_VERSIONS,
  type ServerFrame,
  SUBPROTOCOLS,
  type Subprotocol,
} from '@sealpost/protocol'
import { type DeliveryId, fromHex, type MeshId, type PeerKey } from '@sealpost/std'
import type { ServerWebSocket } from 'bun'

export interface RelaySetup {
  /** The seed of the key it proves itself with. */
  readonly signingSeed: string
  readonly meshId: MeshId
  readonly bindings: readonly KeyBinding[]
}

type Delivery = FrameOf<'push'>['deliveries'][number]
type Ack = FrameOf<'ack'>['items'][number]
type Socket = ServerWebSocket<{ session: Session; form: Form }>

/** Around an envelope in a push, with room to spare. */
const DELIVERY_BYTES = 80
const PUSH_BYTES_MAX = FRAME_BYTES_MAX - 1024

/** What a relay knows about one connection. */
class Session {
  socket: Socket | undefined
  peerKey: PeerKey | undefined
  hello: FrameOf<'hello'> | undefined
  acks: Ack[] = []
  pushes: Delivery[] = []
  isDirty = false
}

export class Relay {
  readonly #setup: RelaySetup
  readonly #signing
  readonly #directory = new Map<PeerKey, KeyBindingEntry>()
  readonly #online = new Map<PeerKey, Session>()
  readonly #server
  #dirty: Session[] = []
  #lastId = 0

  constructor(setup: RelaySetup) {
    this.#setup = setup
    this.#signing = signingKeysFromSeed(fromHex(setup.signingSeed))
    for (const { peerKey, boxKey, boxEpoch, notAfterMs, signature } of setup.bindings)
      this.#directory.set(peerKey, { peer: peerKey, boxKey, boxEpoch, notAfterMs, signature })
    this.#server = Bun.serve<{ session: Session; form: Form }>({
      hostname: '127.0.0.1',
      port: 0,
      fetch: (request, server) => {
        const name = request.headers.get('sec-websocket-protocol') as Subprotocol
        const headers = { 'Sec-WebSocket-Protocol': name }
        const isUpgraded = server.upgrade(request, {
          headers,
          data: { session: new Session(), form: SUBPROTOCOLS[name] },
        })
        return isUpgraded ? undefined : new Response('a WebSocket is wanted', { status: 426 })
      },
      websocket: {
        perMessageDeflate: false,
        maxPayloadLength: FRAME_BYTES_MAX,
        backpressureLimit: 1024 * 1024 * 1024,
        open: (socket) => this.#opened(socket),
        message: (socket, wire) => this.#received(socket, wire),
        close: ({ data: connection }) => {
          if (connection.session.peerKey) this.#online.delete(connection.session.peerKey)
        },
      },
    })
  }

  get url(): string {
    return `ws://127.0.0.1:${this.#server.port}/v1/ws`
  }

  get brokerKey(): PeerKey {
    return this.#signing.publicKey
  }

  #opened(socket: Socket): void {
    const { session } = socket.data
    socket.binaryType = 'uint8array'
    session.socket = socket
    session.hello = {
      type: 'hello',
      versions: [...PROTOCOL_VERSIONS],
      brokerKey: this.brokerKey,
      connectionId: crypto.getRandomValues(new Uint8Array(16)),
      nonce: crypto.getRandomValues(new Uint8Array(32)),
      issuedAtMs: Date.now(),
      authWithinMs: 10_000,
    }
    say(session, session.hello)
  }

  #received(socket: Socket, wire: string | Uint8Array): void {
    const { session, form } = socket.data
    const decoded = decodeClientFrame(form, wire)
    if (decoded.ok) this.#take(session, decoded.frame)
    else socket.close(4400, decoded.code)
  }

  #take(session: Session, frame: ClientFrame): void {
    if (frame.type === 'send') return this.#relay(session, frame)
    if (frame.type === 'auth') return this.#authenticate(session, frame)
    if (frame.type === 'lookup') return this.#lookUp(session, frame)
    if (frame.type === 'ping') say(session, { type: 'pong', ref: frame.ref })
  }

  #relay(session: Session, { envelopes }: FrameOf<'send'>): void {
    const sender = session.peerKey!
    const enqueuedAtMs = Date.now()
    for (const { envelopeId, recipient, priority, envelope } of envelopes) {
      const id = ++this.#lastId as DeliveryId
      session.acks.push({ envelopeId, isDuplicate: false })
      const to = this.#online.get(recipient)
      if (!to) continue
      to.pushes.push({ id, envelopeId, sender, priority, attempt: 1, enqueuedAtMs, envelope })
      this.#flushSoon(to)
    }
    this.#flushSoon(session)
  }

  /** Everything that came in one turn goes out together. */
  #flushSoon(session: Session): void {
    if (session.isDirty) return
    session.isDirty = true
    if (this.#dirty.push(session) === 1) setImmediate(this.#flush)
  }

  readonly #flush = (): void => {
    const sessions = this.#dirty
    this.#dirty = []
    for (const session of sessions) session.socket?.cork(() => sendWaiting(session))
  }

  #authenticate(session: Session, { type: _, signature, credit: __, ...auth }: FrameOf<'auth'>): void {
    const { versions, brokerKey, connectionId, nonce, issuedAtMs } = session.hello!
    const authority = `127.0.0.1:${this.#server.port}`
    const place = { authority, brokerKey, connectionId, issuedAtMs, versionsOffered: versions, serverNonce: nonce }
    const transcript = { ...auth, ...place }
    const isMember = auth.meshId === this.#setup.meshId && this.#directory.has(auth.peerKey)
    if (!isMember || !verifyClient(transcript, signature)) return session.socket!.close(4401, 'auth_failed')
    session.peerKey = auth.peerKey
    this.#online.set(auth.peerKey, session)
    say(session, {
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

  #lookUp(session: Session, { ref, peers }: FrameOf<'lookup'>): void {
    const bindings = peers.flatMap((peer) => this.#directory.get(peer) ?? [])
    say(session, { type: 'directory', ref, bindings, unknown: peers.filter((peer) => !this.#directory.has(peer)) })
  }
}

function sendWaiting(session: Session): void {
  const { acks, pushes } = session
  session.isDirty = false
  session.acks = []
  session.pushes = []
  for (let at = 0; at < acks.length; at += BATCH_MAX)
    say(session, { type: 'ack', items: acks.slice(at, at + BATCH_MAX) })
  for (let at = 0, end = 0; at < pushes.length; at = end) {
    let bytes = 0
    while (end < pushes.length && end - at < BATCH_MAX) {
      bytes += pushes[end]!.envelope.length + DELIVERY_BYTES
      if (bytes > PUSH_BYTES_MAX && end > at) break
      end += 1
    }
    say(session, { type: 'push', deliveries: end - at === pushes.length ? pushes : pushes.slice(at, end) })
  }
}

function say({ socket }: Session, frame: ServerFrame): void {
  socket?.send(encode(socket.data.form, frame))
}

function listen(): void {
  process.on('message', (setup: RelaySetup) => {
    void ready().then(() => {
      const { url, brokerKey } = new Relay(setup)
      process.send?.({ url, brokerKey })
    })
  })
  process.on('disconnect', () => process.exit(0)) // whoever started it is gone
  for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined) // the script ends it
}

if (import.meta.main) listen()
