/** Provides tests with an SDK peer that records what it receives. */
import { type ConnectOptions, connect, type Message, type Peer, type PeerEvent } from '@sealpost/sdk'
import type { PeerKey } from '@sealpost/std'
import type { Place, Several, World } from './world.ts'

type EventOf<Type extends PeerEvent['type']> = Extract<PeerEvent, { type: Type }>

export const keyOf = ({ identity }: Pick<Place, 'identity'>): PeerKey => identity.signing.publicKey

/** Returns the code of the rejection, or `done`. */
export const codeOf = (promise: Promise<unknown>): Promise<string> =>
  promise.then(
    () => 'done',
    ({ code }: { code: string }) => code,
  )

/** Records the messages that the peer receives, and settles them. */
export function heardBy(peer: Peer): Message[] {
  const heard: Message[] = []
  peer.onMessage((message) => void heard.push(message))
  return heard
}

export const textsOf = (messages: readonly Message[]): string[] => messages.map((message) => message.text())

/** A peer that records its events and closes with its world. */
export class Member {
  readonly place: Place
  readonly events: PeerEvent[] = []
  peer!: Peer
  /** The messages received and settled since `enter`. */
  received: Message[] = []

  private constructor(place: Place) {
    this.place = place
  }

  /** Connects a peer that settles what it receives; without a place, a new member. */
  static async enter(world: World, place?: Place, options: Partial<ConnectOptions> = {}): Promise<Member> {
    const member = await Member.open(world, place, options)
    member.received = heardBy(member.peer)
    return member
  }

  /** Connects without a handler for messages. */
  static async open(world: World, place?: Place, options: Partial<ConnectOptions> = {}): Promise<Member> {
    const member = new Member(place ?? (await world.enrol()))
    const onEvent = (event: PeerEvent) => member.events.push(event)
    member.peer = world.closing(await connect({ ...member.place, ...options, onEvent }))
    return member
  }

  /** Connects several new members concurrently. */
  static async enterMany<const N extends number>(world: World, count: N): Promise<Several<Member, N>> {
    const places: readonly Place[] = await world.enrolMany(count)
    return (await Promise.all(places.map((place) => Member.enter(world, place)))) as Several<Member, N>
  }

  get texts(): string[] {
    return textsOf(this.received)
  }

  all<Type extends PeerEvent['type']>(type: Type): EventOf<Type>[] {
    return this.events.filter((event): event is EventOf<Type> => event.type === type)
  }
}
