/**
 * The front of the yardsticks: it speaks the broker's protocol with the broker's codec and batching and makes the same
 * signed handshake. What becomes of an envelope is the business of the `Post` behind it.
 */
import { type KeyBinding, ready, signAsBroker, signingKeysFromSeed, verifyClient } from '@sealpost/identity'
import {
  BATCH_MAX,
  type ClientFrame,
  decodeClientFrame,
  encodeToSend,
  type Form,
  FRAME_BYTES_MAX,
  type FrameOf,
  type KeyBindingEntry,
  PROTOCOL_VERSIONS,
  type ServerFrame,
  SUBPROTOCOLS,
  type Subprotocol,
} from '@sealpost/protocol'
import { fromHex, type MeshId, type PeerKey } from '@sealpost/std'
import type { ServerWebSocket } from 'bun'

export interface FrontSetup {
  /** The seed of the key it proves itself with. */
  readonly signingSeed: string
  readonly meshId: MeshId
  readonly bindings: readonly KeyBinding[]
  /** Of a post that stores. */
  readonly databaseUrl: string | null
}

export type Envelope = FrameOf<'send'>['envelopes'][number]
export type RelayedDelivery = FrameOf<'push'>['deliveries'][number]
type Ack = FrameOf<'ack'>['items'][number]

/** What does something with envelopes; it acks to the sender and pushes to the recipient through `Front`. */
export interface Post {
  take(sender: PeerKey, envelopes: readonly Envelope[]): void
  close(): Promise<void>
}

/** Around an envelope in a push, with room to spare. */
const DELIVERY_BYTES = 80
const PUSH_BYTES_MAX = FRAME_BYTES_MAX - 1024

type Socket = ServerWebSocket<{ session: Session; form: Form }>

/** What it knows about one connection. */
class Session {
  socket: Socket | undefined
  peerKey: PeerKey | undefined
  hello: FrameOf<'hello'> | undefined
  acks: Ack[] = []
  pushes: RelayedDelivery[] = []
  isDirty = false
}

export class Front {
  readonly #setup: FrontSetup
  readonly #post: Post
  readonly #signing
  readonly #directory = new Map<PeerKey, KeyBindingEntry>()
  readonly #online = new Map<PeerKey, Session>()
  readonly #server
  #dirty: Session[] = []

  constructor(setup: FrontSetup, openPost: (front: Front) => Post) {
    this.#setup = setup
    this.#post = openPost(this)
    this.#signing = signingKeysFromSeed(fromHex(setup.signingSeed))
    for (const { peerKey, boxKey, boxEpoch, notAfterMs, signature } of setup.bindings)
      this.#directory.set(peerKey, { peer: peerKey, boxKey, boxEpoch, notAfterMs, signature })
    this.#server = Bun.serve<{ session: Session; form: Form }>({
      hostname: '127.0.0.1',
      port: 0,
      reusePort: false,
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

  ack(sender: PeerKey, envelopeId: Ack['envelopeId']): void {
    const session = this.#online.get(sender)
    if (!session) return
    session.acks.push({ envelopeId, isDuplicate: false })
    this.#flushSoon(session)
  }

  isOnline(peer: PeerKey): boolean {
    return this.#online.has(peer)
  }

  push(recipient: PeerKey, delivery: RelayedDelivery): void {
    const session = this.#online.get(recipient)
    if (!session) return
    session.pushes.push(delivery)
    this.#flushSoon(session)
  }

  close(): Promise<void> {
    return this.#post.close()
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
    if (frame.type === 'send') return this.#post.take(session.peerKey!, frame.envelopes)
    if (frame.type === 'auth') return this.#authenticate(session, frame)
    if (frame.type === 'lookup') return this.#lookUp(session, frame)
    if (frame.type === 'ping') say(session, { type: 'pong', ref: frame.ref })
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
  socket?.send(encodeToSend(socket.data.form, frame))
}

/** Makes this program one of the load test's: it is told its setup, answers where it is, and ends with its starter. */
export function serve(open: (setup: FrontSetup) => Promise<Front>): void {
  let front: Front | undefined
  process.on('message', async (setup: FrontSetup) => {
    await ready()
    front = await open(setup)
    const { url, brokerKey } = front
    process.send?.({ url, brokerKey })
  })
  process.on('disconnect', async () => {
    await front?.close()
    process.exit(0) // the parent is gone
  })
  for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined) // the script ends it
}
