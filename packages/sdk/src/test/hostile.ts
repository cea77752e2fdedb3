/**
 * Provides tests with a lying broker behind a real WebSocket server on loopback, with an honest peer on either side.
 * The broker intercepts everything that Alice sends, and the test decides what Bob receives.
 */
import { generateIdentity, type Identity } from '@sealpost/identity'
import type { ClientFrame, FrameOf, ServerFrame } from '@sealpost/protocol'
import type { DeliveryId, MeshId } from '@sealpost/std'
import { connect } from '../client.ts'
import type { Message, PushedDelivery } from '../inbox/message.ts'
import type { ConnectOptions, Peer } from '../peer.ts'
import type { PeerEvent, WebSocketLike } from '../ports.ts'
import { type BrokerSocket, TestingBroker } from './broker.ts'
import { events } from './client.ts'

type Item = FrameOf<'send'>['envelopes'][number]

export class ServedBroker extends TestingBroker implements AsyncDisposable {
  private readonly server: ReturnType<typeof serve>

  constructor(meshId?: MeshId) {
    super(meshId)
    this.server = serve(this)
    this.url = `ws://127.0.0.1:${this.server.port}`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server.stop(true)
  }
}

function serve(broker: TestingBroker) {
  return Bun.serve<{ protocol: string; line: WebSocketLike | null }>({
    hostname: '127.0.0.1',
    port: 0,
    reusePort: false,
    fetch: (request, server) => {
      const protocol = request.headers.get('Sec-WebSocket-Protocol') ?? ''
      const options = { headers: { 'Sec-WebSocket-Protocol': protocol }, data: { protocol, line: null } }
      return server.upgrade(request, options) ? undefined : new Response(null, { status: 400 })
    },
    websocket: {
      open(socket) {
        const line = new broker.webSocket(broker.url, [socket.data.protocol])
        socket.data.line = line
        line.onmessage = ({ data }) => void socket.send(data as ArrayBuffer | string)
        line.onclose = ({ code }) => socket.close(code)
      },
      message: (socket, wire) => socket.data.line!.send(typeof wire === 'string' ? wire : new Uint8Array(wire)),
      close: (socket) => socket.data.line!.close(),
    },
  })
}

/** A peer, its events, and the messages that its application saw. */
export interface Side {
  readonly identity: Identity
  readonly peer: Peer
  readonly seen: readonly PeerEvent[]
  readonly shown: readonly string[]
  readonly next: ReturnType<typeof events>['next']
  /** Resolves once the application has received this number of messages. */
  readonly shows: (count: number) => Promise<void>
  readonly socket: BrokerSocket
  /** The application's handler of messages. */
  react: (message: Message) => unknown
}

export class HostileScene implements AsyncDisposable {
  readonly broker: ServedBroker
  readonly alice: Identity
  readonly bob: Identity
  readonly carol: Identity
  /** Alice's intercepted messages, in order of arrival. */
  readonly caught: PushedDelivery[] = []
  /** Handles a frame from a client. Returns whether the broker must ignore it. */
  cheat: (socket: BrokerSocket, frame: ClientFrame) => boolean = () => false
  private readonly peers: Peer[] = []
  private readonly pushedIds = new Set<DeliveryId>()
  private news = Promise.withResolvers<void>()
  private lastId = 0

  constructor({
    alice,
    bob,
    carol,
    meshId,
  }: Partial<Record<'alice' | 'bob' | 'carol', Identity>> & { meshId?: MeshId } = {}) {
    this.broker = new ServedBroker(meshId)
    this.alice = alice ?? generateIdentity()
    this.bob = bob ?? generateIdentity()
    this.carol = carol ?? generateIdentity()
    for (const identity of [this.alice, this.bob, this.carol]) this.broker.enrol(identity)
    this.broker.intercept = (socket, frame) => this.cheat(socket, frame) || this.catch(socket, frame)
  }

  async join(identity: Identity, options: Partial<ConnectOptions> = {}): Promise<Side> {
    const { url, meshId, keys } = this.broker
    const told = events()
    const pinned = { url, meshId, brokerKey: keys.publicKey, onEvent: told.onEvent }
    const peer = await connect({ ...pinned, identity, ...options })
    this.peers.push(peer)
    const shown: string[] = []
    let news = Promise.withResolvers<void>()
    peer.onMessage((message) => {
      shown.push(message.text())
      news.resolve()
      news = Promise.withResolvers()
      return side.react(message)
    })
    const { broker } = this
    const side: Side = {
      react: () => undefined,
      identity,
      peer,
      seen: told.seen,
      shown,
      next: told.next,
      shows: async (count) => {
        while (shown.length < count) await news.promise
      },
      get socket() {
        return [...broker.sockets].findLast((socket) => socket.peer === peer.key)!
      },
    }
    return side
  }

  /** Closes a peer. Resolves once the broker has received its last frame. */
  async leave({ peer }: Side): Promise<void> {
    await peer.close()
    while ([...this.broker.sockets].some((socket) => socket.peer === peer.key))
      await new Promise((resolve) => setImmediate(resolve))
  }

  /** Sends messages, which the broker confirms but does not deliver. Returns them sealed. */
  async mail(from: Side, to: Identity, ...texts: string[]): Promise<PushedDelivery[]> {
    const before = this.caught.length
    await Promise.all(texts.map((text) => from.peer.send(to.signing.publicKey, text)))
    return this.caught.slice(before)
  }

  async catches(count: number): Promise<PushedDelivery[]> {
    while (this.caught.length < count) await this.news.promise
    return this.caught.slice(0, count)
  }

  push(to: Side, ...pushes: PushedDelivery[]): void {
    for (const { terms, body, ...push } of pushes) {
      this.pushedIds.add(push.id)
      to.socket.say(frameOf(push, terms, body))
    }
  }

  pushAtOnce(to: Side, ...deliveries: PushedDelivery[]): void {
    for (const { id } of deliveries) this.pushedIds.add(id)
    to.socket.say({ type: 'push', deliveries })
  }

  /** Sends an honest message from a third peer, which arrives after everything sent before it. */
  async sentinel(to: Side): Promise<void> {
    const carol = await this.join(this.carol)
    const [end] = await this.mail(carol, to.identity, 'the end')
    this.push(to, end!)
    while (!to.shown.includes('the end')) await to.shows(to.shown.length + 1)
  }

  /** Pushed messages that were neither settled nor returned. */
  get unsettled(): DeliveryId[] {
    const done = new Set(this.broker.heard.flatMap(endsOf))
    return [...this.pushedIds].filter((id) => !done.has(id))
  }

  get rejections(): string[] {
    const rejects = this.broker.heard.filter((frame) => frame.type === 'reject')
    return rejects.flatMap(({ items }) => items.map(({ reason }) => reason))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.peers.map((peer) => peer.close()))
    await this.broker[Symbol.asyncDispose]()
  }

  private catch(socket: BrokerSocket, frame: ClientFrame): boolean {
    const caught = caughtIn(frame)
    if (caught.length === 0) return false
    for (const { item, ...beside } of caught) this.caught.push(this.pushedOf(socket, item, beside))
    socket.say({ type: 'ack', items: caught.map(({ item }) => ({ envelopeId: item.envelopeId, isDuplicate: false })) })
    this.news.resolve()
    this.news = Promise.withResolvers()
    return true
  }

  private pushedOf(socket: BrokerSocket, item: Item, beside: Pick<PushedDelivery, 'terms' | 'body'>): PushedDelivery {
    this.lastId += 1
    const { envelopeId, priority, envelope } = item
    const outside = { id: this.lastId as DeliveryId, sender: socket.peer!, attempt: 1, enqueuedAtMs: 1 }
    return { ...outside, envelopeId, priority, envelope, ...beside }
  }
}

function caughtIn(frame: ClientFrame): ({ item: Item } & Pick<PushedDelivery, 'terms' | 'body'>)[] {
  if (frame.type === 'send') return frame.envelopes.map((item) => ({ item }))
  if (frame.type === 'sendWith') return frame.envelopes.map(({ send, terms }) => ({ item: send, terms }))
  if (frame.type !== 'broadcast') return []
  return frame.envelopes.map((item) => ({ item, terms: frame.terms, body: frame.body }))
}

function frameOf(
  push: Omit<PushedDelivery, 'terms' | 'body'>,
  terms: PushedDelivery['terms'],
  body: PushedDelivery['body'],
): ServerFrame {
  if (!terms) return { type: 'push', deliveries: [push] }
  if (!body) return { type: 'pushWith', deliveries: [{ push, terms }] }
  return { type: 'pushBody', deliveries: [{ push, terms, body }] }
}

function endsOf(frame: ClientFrame): DeliveryId[] {
  if (frame.type === 'settle') return frame.ids
  return frame.type === 'retry' || frame.type === 'reject' ? frame.items.map(({ id }) => id) : []
}

const BENIGN = new Set<PeerEvent['type']>(['connected', 'presence', 'group_changed', 'recovered'])

export const alarmsOf = ({ seen }: Side): PeerEvent[] => seen.filter(({ type }) => !BENIGN.has(type))
