/** Provides tests of the whole client: an in-memory broker, its peers, and promises for their events. */
import { generateIdentity, type Identity } from '@sealpost/identity'
import type { ClientFrame } from '@sealpost/protocol'
import { connect } from '../client.ts'
import type { Message } from '../inbox/message.ts'
import type { ConnectOptions, Peer } from '../peer.ts'
import type { PeerEvent } from '../ports.ts'
import { type BrokerSocket, TestingBroker } from './broker.ts'

export class World {
  readonly broker = new TestingBroker()

  identity(): Identity {
    const identity = generateIdentity()
    this.broker.enrol(identity)
    return identity
  }

  async peer(options: Partial<ConnectOptions> = {}): Promise<Peer> {
    const { url, meshId, webSocket } = this.broker
    const brokerKey = this.broker.keys.publicKey
    return connect({ url, brokerKey, meshId, webSocket, identity: options.identity ?? this.identity(), ...options })
  }

  heard<Type extends ClientFrame['type']>(type: Type): Extract<ClientFrame, { type: Type }>[] {
    return this.broker.heard.filter((frame): frame is Extract<ClientFrame, { type: Type }> => frame.type === type)
  }

  /** Resolves with the next frame of this type, or the `number`th from now on. */
  hears<Type extends ClientFrame['type']>(type: Type, number = 1): Promise<Extract<ClientFrame, { type: Type }>> {
    const { promise, resolve } = Promise.withResolvers<Extract<ClientFrame, { type: Type }>>()
    let left = number
    this.broker.intercept = (_, frame) => {
      if (frame.type === type && --left === 0) resolve(frame as Extract<ClientFrame, { type: Type }>)
      return false
    }
    return promise
  }

  socketOf(peer: Peer): BrokerSocket {
    return [...this.broker.sockets].find((socket) => socket.peer === peer.key)!
  }
}

export function take(peer: Peer, count: number): Promise<Message[]> {
  return new Promise((resolve) => {
    const messages: Message[] = []
    const off = peer.onMessage((message) => {
      messages.push(message)
      if (messages.length < count) return
      off()
      resolve(messages)
    })
  })
}

type EventOf<Type extends PeerEvent['type']> = Extract<PeerEvent, { type: Type }>

export function events() {
  const seen: PeerEvent[] = []
  let news = Promise.withResolvers<void>()
  const all = <Type extends PeerEvent['type']>(type: Type) =>
    seen.filter((event): event is EventOf<Type> => event.type === type)
  const onEvent = (event: PeerEvent) => {
    seen.push(event)
    news.resolve()
    news = Promise.withResolvers()
  }
  /** Resolves with the first event of this type, or with the event of the given number. */
  const next = async <Type extends PeerEvent['type']>(type: Type, number = 1): Promise<EventOf<Type>> => {
    while (all(type).length < number) await news.promise
    return all(type)[number - 1]!
  }
  return { seen, all, next, onEvent }
}
