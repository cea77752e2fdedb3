/**
 * Implements an in-memory broker behind a fake WebSocket, with the real handshake and codec, to test and measure the
 * whole client. It preserves order, stores mail for absent peers, and relays terms, ephemeral messages and presence. It
 * has no leases, limits, priorities or receipts, and does not apply the terms.
 */
import {
  bindBoxKey,
  generateSigningKeys,
  type Identity,
  normalizeAuthority,
  signAsBroker,
  type Transcript,
  verifyClient,
} from '@sealpost/identity'
import {
  type ClientFrame,
  chooseSubprotocol,
  decodeClientFrame,
  encode,
  type Form,
  type FrameOf,
  type KeyBindingEntry,
  type ServerFrame,
  SUBPROTOCOLS,
} from '@sealpost/protocol'
import type { DeliveryId, MeshId, PeerKey } from '@sealpost/std'
import type { WebSocketConstructor, WebSocketLike } from '../ports.ts'

type PushItem = FrameOf<'push'>['deliveries'][number]
type PushTerms = FrameOf<'pushWith'>['deliveries'][number]['terms']
type Pushed = PushItem & { terms?: PushTerms | undefined }
type SendItem = FrameOf<'send'>['envelopes'][number]

const FAR_MS = 4_000_000_000_000

export class TestingBroker {
  keys = generateSigningKeys()
  certificate: Uint8Array | null = null
  readonly meshId: MeshId
  url = 'ws://broker.example:8440'
  readonly webSocket: WebSocketConstructor
  readonly bindings = new Map<PeerKey, KeyBindingEntry>()
  readonly formerBindings = new Map<PeerKey, KeyBindingEntry[]>()
  /** Unsettled deliveries, in order of arrival. */
  readonly queues = new Map<PeerKey, Pushed[]>()
  readonly heard: ClientFrame[] = []
  /** Handles a frame instead of the broker. Returns whether it did. */
  intercept: ((socket: BrokerSocket, frame: ClientFrame) => boolean) | undefined
  readonly sockets = new Set<BrokerSocket>()
  leaseMs = 30_000
  /** The incarnation of the database. A restore changes it. */
  incarnation = '00'.repeat(16)
  private nextId = 1
  lastEpoch = 0

  constructor(meshId = '5ea1'.repeat(8) as MeshId) {
    this.meshId = meshId
    const broker = this
    this.webSocket = class extends BrokerSocket {
      constructor(url: string, protocols: string[]) {
        super(broker, url, SUBPROTOCOLS[chooseSubprotocol(protocols)!])
      }
    }
  }

  enrol(identity: Identity): void {
    const { peerKey: peer, boxKey, boxEpoch, notAfterMs, signature } = bindBoxKey(identity, this.meshId, FAR_MS)
    this.bind({ peer, boxKey, boxEpoch, notAfterMs, signature })
  }

  private bind(binding: KeyBindingEntry): void {
    const { peer } = binding
    const former = this.bindings.get(peer)
    if (former) this.formerBindings.set(peer, [former, ...(this.formerBindings.get(peer) ?? [])])
    this.bindings.set(peer, binding)
  }

  hello(socket: BrokerSocket): FrameOf<'hello'> {
    return {
      type: 'hello',
      versions: [1],
      brokerKey: this.keys.publicKey,
      connectionId: socket.connectionId,
      nonce: socket.nonce,
      issuedAtMs: 1_700_000_000_000,
      authWithinMs: 10_000,
    }
  }

  received(socket: BrokerSocket, frame: ClientFrame): void {
    this.heard.push(frame)
    if (this.intercept?.(socket, frame)) return
    if (frame.type === 'auth') this.auth(socket, frame)
    else if (frame.type === 'send') this.store(socket, frame.envelopes)
    else if (frame.type === 'sendWith') for (const { send, terms } of frame.envelopes) this.store(socket, [send], terms)
    else if (frame.type === 'settle') this.remove(socket, frame.ids)
    else if (frame.type === 'reject')
      this.remove(
        socket,
        frame.items.map(({ id }) => id),
      )
    else if (frame.type === 'sendEphemeral') this.sendEphemeral(socket, frame)
    else if (frame.type === 'watch') this.watch(socket, frame)
    else if (frame.type === 'status') this.changed({ ...frame, peer: socket.peer!, isOnline: true })
    else if (frame.type === 'lookup') this.lookup(socket, frame)
    else if (frame.type === 'lookupHistory') this.lookupHistory(socket, frame)
    else if (frame.type === 'bind') this.rebind(socket, frame)
    else if (frame.type === 'retry') this.retry(socket, frame)
    else if (frame.type === 'ping') socket.say({ type: 'pong', ref: frame.ref })
  }

  pushAll(socket: BrokerSocket, attempt: number): void {
    const deliveries = (this.queues.get(socket.peer!) ?? []).map((delivery) => ({ ...delivery, attempt }))
    if (deliveries.length > 0) socket.push(deliveries)
  }

  private auth(socket: BrokerSocket, auth: FrameOf<'auth'>): void {
    const { peerKey, signature } = auth
    if (!this.bindings.has(peerKey) || !verifyClient(this.transcriptOf(socket, auth), signature))
      return socket.refuse('auth_failed')
    socket.peer = peerKey
    socket.say(this.welcome(this.proofFor(socket, auth)))
    this.pushAll(socket, 2)
  }

  proofFor(socket: BrokerSocket, auth: FrameOf<'auth'>): Uint8Array {
    return signAsBroker(this.keys, this.transcriptOf(socket, auth), auth.signature)
  }

  private transcriptOf(socket: BrokerSocket, auth: FrameOf<'auth'>): Transcript {
    const hello = this.hello(socket)
    const { version, meshId, peerKey, clientNonce, capabilities } = auth
    return {
      version,
      versionsOffered: hello.versions,
      authority: normalizeAuthority(this.url),
      brokerKey: this.keys.publicKey,
      meshId,
      peerKey,
      serverNonce: hello.nonce,
      clientNonce,
      connectionId: hello.connectionId,
      issuedAtMs: hello.issuedAtMs,
      capabilities,
    }
  }

  welcome(proof: Uint8Array): FrameOf<'welcome'> {
    return {
      type: 'welcome',
      proof,
      epoch: ++this.lastEpoch,
      incarnation: this.incarnation,
      durability: 'fsync',
      heartbeatMs: 15_000,
      leaseMs: this.leaseMs,
      dedupeSeconds: 86_400,
      creditMax: 1024,
      envelopeBytesMax: 72 * 1024,
      ttlSecondsMax: 86_400,
      inFlightMax: 1024,
    }
  }

  private store(socket: BrokerSocket, envelopes: SendItem[], terms?: PushTerms): void {
    const acks: FrameOf<'ack'>['items'] = []
    const pushes = new Map<PeerKey, Pushed[]>()
    for (const { envelopeId, recipient, priority, envelope } of envelopes) {
      const id = this.nextId++ as DeliveryId
      acks.push({ envelopeId, isDuplicate: false })
      const push = { id, envelopeId, sender: socket.peer!, priority, attempt: 1, enqueuedAtMs: 1, envelope, terms }
      append(this.queues, recipient, push)
      append(pushes, recipient, push)
    }
    socket.say({ type: 'ack', items: acks })
    for (const other of this.sockets) {
      const deliveries = other.peer && pushes.get(other.peer)
      if (deliveries) other.push(deliveries)
    }
  }

  private remove(socket: BrokerSocket, ids: DeliveryId[]): void {
    const removed = new Set(ids)
    const queue = this.queues.get(socket.peer!) ?? []
    this.queues.set(
      socket.peer!,
      queue.filter(({ id }) => !removed.has(id)),
    )
  }

  private sendEphemeral(socket: BrokerSocket, { items }: FrameOf<'sendEphemeral'>): void {
    for (const { envelopeId, recipient, envelope } of items) {
      const other = [...this.sockets].find(({ peer }) => peer === recipient)
      if (other) other.say({ type: 'pushEphemeral', items: [{ sender: socket.peer!, envelopeId, envelope }] })
      else socket.say({ type: 'ephemeralFailed', items: [{ envelopeId, code: 'no_responder' }] })
    }
  }

  private watch(socket: BrokerSocket, { isOn }: FrameOf<'watch'>): void {
    socket.isWatching = isOn
    const online = [...this.sockets].flatMap(({ peer }) => peer ?? [])
    const peers = online.map((peer) => ({ peer, isOnline: true, availability: 'idle' as const, summary: '' }))
    if (isOn) socket.say({ type: 'presence', peers, isSnapshot: true })
  }

  private changed({ peer, isOnline, availability, summary }: FrameOf<'presence'>['peers'][number]): void {
    const peers = [{ peer, isOnline, availability, summary }]
    for (const other of this.sockets) if (other.isWatching) other.say({ type: 'presence', peers, isSnapshot: false })
  }

  private retry(socket: BrokerSocket, { items }: FrameOf<'retry'>): void {
    const asked = new Set(items.map(({ id }) => id))
    const deliveries = (this.queues.get(socket.peer!) ?? [])
      .filter(({ id }) => asked.has(id))
      .map((delivery) => ({ ...delivery, attempt: 2 }))
    socket.push(deliveries)
  }

  private lookup(socket: BrokerSocket, { ref, peers }: FrameOf<'lookup'>): void {
    const bindings = peers.flatMap((peer) => this.bindings.get(peer) ?? [])
    socket.say({ type: 'directory', ref, bindings, unknown: peers.filter((peer) => !this.bindings.has(peer)) })
  }

  private lookupHistory(socket: BrokerSocket, { ref, peer }: FrameOf<'lookupHistory'>): void {
    const current = this.bindings.get(peer)
    const bindings = current ? [current, ...(this.formerBindings.get(peer) ?? [])] : []
    socket.say({ type: 'keyHistory', ref, bindings })
  }

  private rebind(socket: BrokerSocket, { ref, boxKey, boxEpoch, notAfterMs, signature }: FrameOf<'bind'>): void {
    const peer = socket.peer!
    const isNewer = boxEpoch > this.bindings.get(peer)!.boxEpoch
    if (isNewer) this.bind({ peer, boxKey, boxEpoch, notAfterMs, signature })
    socket.say({ type: 'bound', ref, outcome: isNewer ? 'done' : 'stale_epoch' })
  }
}

/** Implements both ends of a connection. The client uses it as its WebSocket; the broker sends with `say`. */
export class BrokerSocket implements WebSocketLike {
  binaryType = 'blob'
  readonly protocol = ''
  onopen: ((event: never) => void) | null = null
  onmessage: ((event: { data: unknown }) => void) | null = null
  onclose: ((event: { code: number }) => void) | null = null
  onerror: ((event: never) => void) | null = null
  readonly connectionId = crypto.getRandomValues(new Uint8Array(16))
  readonly nonce = crypto.getRandomValues(new Uint8Array(32))
  peer: PeerKey | null = null
  isWatching = false
  readonly url: string
  private readonly broker: TestingBroker
  private readonly form: Form
  private isOpen = true

  constructor(broker: TestingBroker, url: string, form: Form) {
    this.broker = broker
    this.url = url
    this.form = form
    broker.sockets.add(this)
    setTimeout(() => {
      this.onopen?.(undefined as never)
      if (broker.certificate) this.say({ type: 'certificate', certificate: broker.certificate })
      this.say(broker.hello(this))
    })
  }

  send(wire: Uint8Array | string): void {
    if (!this.isOpen) return
    const decoded = decodeClientFrame(this.form, typeof wire === 'string' ? wire : wire.slice())
    if (!decoded.ok) return this.refuse(decoded.code)
    setTimeout(() => this.isOpen && this.broker.received(this, decoded.frame))
  }

  /** Closes the socket after it has delivered earlier frames. */
  close(): void {
    setTimeout(() => this.cut(1000))
  }

  say(frame: ServerFrame): void {
    const wire = encode(this.form, frame)
    const wireForm = typeof wire === 'string' ? wire : wire.buffer
    setTimeout(() => this.isOpen && this.onmessage?.({ data: wireForm }))
  }

  /** Pushes deliveries, in as few frames as possible if no delivery has terms. */
  push(pushed: Pushed[]): void {
    if (pushed.every(({ terms }) => !terms)) return this.say({ type: 'push', deliveries: pushed })
    for (const { terms, ...push } of pushed)
      this.say(terms ? { type: 'pushWith', deliveries: [{ push, terms }] } : { type: 'push', deliveries: [push] })
  }

  refuse(code: FrameOf<'refused'>['code']): void {
    this.say({ type: 'refused', code, retryAfterMs: 0, reason: '' })
  }

  /** Breaks the connection and loses the frames in flight. */
  cut(code: number): void {
    if (!this.isOpen) return
    this.isOpen = false
    this.broker.sockets.delete(this)
    setTimeout(() => this.onclose?.({ code }))
  }
}

function append<K, V>(map: Map<K, V[]>, key: K, value: V): void {
  const list = map.get(key)
  if (list) list.push(value)
  else map.set(key, [value])
}
