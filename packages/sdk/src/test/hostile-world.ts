/**
 * Runs worlds with a hostile broker in memory, which are generated from a seed: peers with the real SDK and real
 * cryptography exchange messages and restart, the broker attacks once, and the honest peers exchange one more message.
 * Then the victim must have reported the attack. A world without an attack must have no report.
 */
import {
  bindBoxKey,
  changeGroup,
  changePool,
  createGroup,
  createPool,
  generateIdentity,
  type Identity,
  signDevice,
  signRemoval,
  signVoucher,
} from '@sealpost/identity'
import type { ClientFrame, Priority } from '@sealpost/protocol'
import { type Random, seededRandom } from '@sealpost/std'
import { connect } from '../client.ts'
import { groupsOf } from '../groups/groups.ts'
import { exchangeHeads } from '../heads/heads.ts'
import type { Peer } from '../peer.ts'
import { poolsOf } from '../pools/pools.ts'
import type { PeerEvent } from '../ports.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import { usersOf } from '../users/users.ts'
import { type BrokerSocket, TestingBroker } from './broker.ts'
import { ghostMember, hiddenRevocation } from './hostile-proofs.ts'

export const ATTACKS = [
  'none',
  'ghost member',
  'hidden revocation',
  'rolled-back binding',
  'rolled-back group',
  'rolled-back pool',
  'returned device',
  'split view of a group',
  'split view of a pool',
  'two statements of one epoch',
  'withheld last message of a process',
  'withheld last message before a refusal',
  'withheld message of a stream',
] as const
export type Attack = (typeof ATTACKS)[number]

export interface HostileOutcome {
  readonly seed: number
  readonly attack: Attack
  /** What is wrong; null if the attack was reported, or if there was none and nothing was reported. */
  readonly violation: string | null
}

const PRIORITIES: readonly Priority[] = ['now', 'next', 'low']
const FAR_MS = 4_000_000_000_000
const NEWS: ReadonlySet<PeerEvent['type']> = new Set([
  ...(['connected', 'closed', 'disconnected', 'recovered', 'group_changed', 'device_changed', 'key_changed'] as const),
])
const keyOf = ({ signing }: Identity) => signing.publicKey

/** Runs one world. Seeds take turns with the attacks. */
export async function runHostileSeed(seed: number): Promise<HostileOutcome> {
  const attack = ATTACKS[seed % ATTACKS.length]!
  const world = new HostileWorld(seededRandom(seed))
  try {
    return { seed, attack, violation: await world.run(attack) }
  } finally {
    await world.end()
  }
}

/** A process of a peer. */
interface Process {
  readonly identity: Identity
  readonly store: MemoryStore
  readonly peer: Peer
  readonly reports: PeerEvent['type'][]
}

type Shown = 'groups' | 'pools'

/** The part of the statements of groups and pools that the broker needs. */
type AnyStatement = { readonly bytes: Uint8Array } & ({ readonly groupId: string } | { readonly poolId: string })

class HostileWorld {
  readonly #random: Random
  readonly #broker = new TestingBroker()
  readonly #alice = generateIdentity()
  readonly #bob = generateIdentity()
  readonly #dan = generateIdentity()
  readonly #peers: Peer[] = []
  /** Returns the statements that the broker shows to a peer. */
  #shownTo: (reader: string) => readonly AnyStatement[] = () => []
  #devices: { statements: Uint8Array[]; removals: Uint8Array[] } = { statements: [], removals: [] }
  /** What the broker does with messages: it stores them, acknowledges and drops them, or refuses them. */
  #mail: 'stored' | 'dropped' | 'refused' = 'stored'

  constructor(random: Random) {
    this.#random = random
    for (const identity of [this.#alice, this.#bob, this.#dan]) this.#broker.enrol(identity)
    this.#broker.intercept = (socket, frame) => this.#intercept(socket, frame)
  }

  async end(): Promise<void> {
    await Promise.all(this.#peers.map((peer) => peer.close()))
  }

  run(attack: Attack): Promise<string | null> {
    switch (attack) {
      case 'none':
        return this.#honest()
      case 'ghost member':
        return ghostMember(this.#random)
      case 'hidden revocation':
        return hiddenRevocation(this.#random)
      case 'rolled-back binding':
        return this.#binding()
      case 'rolled-back group':
        return this.#list('groups')
      case 'rolled-back pool':
        return this.#list('pools')
      case 'returned device':
        return this.#device()
      case 'split view of a group':
        return this.#split('groups', { hasOneEpoch: false })
      case 'split view of a pool':
        return this.#split('pools', { hasOneEpoch: false })
      case 'two statements of one epoch':
        return this.#split(this.#random.chance(0.5) ? 'groups' : 'pools', { hasOneEpoch: true })
      case 'withheld last message of a process':
        return this.#withheld({ before: 'restart' })
      case 'withheld last message before a refusal':
        return this.#withheld({ before: 'refusal' })
      case 'withheld message of a stream':
        return this.#gap()
    }
  }

  async #honest(): Promise<string | null> {
    const [list] = this.#lists(this.#random.chance(0.5) ? 'groups' : 'pools')
    this.#shownTo = () => [list]
    let [alice, bob] = [await this.#start(this.#alice), await this.#start(this.#bob)]
    for (let round = 0; round < 3; round++) {
      if (this.#random.chance(0.5)) await this.#readSomething(alice)
      if (this.#random.chance(0.5)) await this.#readSomething(bob)
      await this.#deliver(alice, bob, this.#random.below(3))
      await this.#deliver(bob, alice, this.#random.below(3))
      if (this.#random.chance(0.5)) alice = await this.#restart(alice)
      if (this.#random.chance(0.5)) bob = await this.#restart(bob)
    }
    await this.#deliver(alice, bob, 1)
    const reports = [...alice.reports, ...bob.reports]
    return reports.length === 0 ? null : `reported without an attack: ${reports.join(', ')}`
  }

  /** After a restart, the broker goes back to an older box key of Bob. */
  async #binding(): Promise<string | null> {
    const { bindings, meshId } = this.#broker
    const older = bindings.get(keyOf(this.#bob))!
    const epoch = 2 + this.#random.below(3)
    const rotated = { ...this.#bob, box: { ...generateIdentity().box, epoch } }
    const { peerKey: peer, boxKey, boxEpoch, notAfterMs, signature } = bindBoxKey(rotated, meshId, FAR_MS)
    bindings.set(peer, { peer, boxKey, boxEpoch, notAfterMs, signature })
    const alice = await this.#start(this.#alice)
    for (let i = this.#random.below(3); i >= 0; i--) await alice.peer.send(peer, 'to the new key')
    bindings.set(peer, older)
    const later = await this.#restart(alice)
    const isRefused = await later.peer.send(peer, 'secret').then(
      () => false,
      ({ code }) => code === 'key_refused',
    )
    return isRefused ? this.#expects(later, 'key_refused') : 'a message was sealed to the older key'
  }

  /** After a restart, the broker goes back to an older list of members. */
  async #list(kind: Shown): Promise<string | null> {
    const [older, newer] = this.#lists(kind)
    this.#shownTo = () => [newer]
    const alice = await this.#start(this.#alice)
    await this.#read(alice, kind)
    await this.#deliver(alice, await this.#start(this.#bob), this.#random.below(3))
    this.#shownTo = () => [older]
    const later = await this.#restart(alice)
    const members = await this.#read(later, kind)
    if (members.length !== newer.members.length) return 'the older list of members is used'
    return this.#expects(later, kind === 'groups' ? 'group_tamper' : 'pool_tamper')
  }

  /** After a restart, the broker brings back a removed device of Bob. */
  async #device(): Promise<string | null> {
    const { meshId } = this.#broker
    const [{ signing: device }, { signing: once }] = [generateIdentity(), generateIdentity()]
    const user = keyOf(this.#bob)
    const names = { meshId, user, inviteKey: once.publicKey }
    const voucher = signVoucher(this.#bob.signing, { ...names, label: 'phone', joinByMs: 1, notAfterMs: FAR_MS })
    const statements = [signDevice(device, once, voucher)]
    this.#devices = { statements, removals: [] }
    const alice = await this.#start(this.#alice)
    if (this.#random.chance(0.5)) await usersOf(alice.peer).devices(user)
    const removal = signRemoval(this.#bob.signing, { meshId, user, device: device.publicKey })
    this.#devices = { statements: this.#random.chance(0.5) ? statements : [], removals: [removal] }
    await usersOf(alice.peer).devices(user)
    this.#devices = { statements, removals: [] }
    const later = await this.#restart(alice)
    if ((await usersOf(later.peer).devices(user)).length > 0) return 'the removed device is listed'
    return this.#expects(later, 'user_tamper')
  }

  /** The broker shows Alice a newer list than Bob, or another one of the same epoch. */
  async #split(kind: Shown, { hasOneEpoch }: { hasOneEpoch: boolean }): Promise<string | null> {
    const [older, newer, other] = this.#lists(kind)
    this.#shownTo = (reader) => [reader === keyOf(this.#alice) ? newer : hasOneEpoch ? other : older]
    let [alice, bob] = [await this.#start(this.#alice), await this.#start(this.#bob)]
    await this.#read(alice, kind)
    if (this.#random.chance(0.7)) await this.#read(bob, kind)
    if (this.#random.chance(0.3)) bob = await this.#restart(bob)
    if (this.#random.chance(0.3)) alice = await this.#restart(alice)
    await this.#deliver(alice, bob, 1)
    return this.#expects(bob, 'view_split')
  }

  /** The broker drops the last messages of a stream. Alice then restarts, or the broker refuses a message. */
  async #withheld({ before }: { before: 'restart' | 'refusal' }): Promise<string | null> {
    let [alice, bob] = [await this.#start(this.#alice), await this.#start(this.#bob)]
    const priority = PRIORITIES[this.#random.below(3)]!
    await this.#deliver(alice, bob, this.#random.below(4), priority)
    const to = keyOf(this.#bob)
    this.#mail = 'dropped'
    for (let i = this.#random.below(3); i >= 0; i--) await alice.peer.send(to, 'withheld', { priority })
    if (this.#random.chance(0.3)) bob = await this.#restart(bob)
    this.#mail = 'refused'
    if (before === 'restart') alice = await this.#restart(alice)
    else await alice.peer.send(to, 'refused', { priority }).catch(() => undefined) // the broker refuses it
    this.#mail = 'stored'
    await this.#deliver(alice, bob, 1, priority)
    return this.#expects(bob, 'message_withheld')
  }

  /** The broker drops messages of a stream, and delivers a later one. */
  async #gap(): Promise<string | null> {
    const [alice, bob] = [await this.#start(this.#alice), await this.#start(this.#bob)]
    const priority = PRIORITIES[this.#random.below(3)]!
    await this.#deliver(alice, bob, 1 + this.#random.below(3), priority)
    this.#mail = 'dropped'
    for (let i = this.#random.below(3); i >= 0; i--) await alice.peer.send(keyOf(this.#bob), 'withheld', { priority })
    this.#mail = 'stored'
    await this.#deliver(alice, bob, 1, priority)
    return this.#expects(bob, 'gap')
  }

  /** Returns three statements that list Alice and Bob: an older one, and two that replace it. */
  #lists(kind: Shown) {
    const members = [this.#alice, this.#bob, this.#dan].map(keyOf)
    const fewer = members.slice(0, 2)
    const { meshId } = this.#broker
    const owner = this.#dan.signing
    if (kind === 'groups') {
      const first = createGroup(owner, { meshId, name: 'crew', members })
      const next = (name: string) => changeGroup(owner, first, { name, members: fewer })
      return [first, next('the crew'), next('our crew')] as const
    }
    const first = createPool(owner, { meshId, name: 'work', members })
    const next = (name: string) => changePool(owner, first, { name, members: fewer })
    return [first, next('the work'), next('our work')] as const
  }

  async #read({ peer }: Process, kind: Shown): Promise<readonly string[]> {
    const lists = kind === 'groups' ? await groupsOf(peer).list() : await poolsOf(peer).list()
    return lists[0]?.members ?? []
  }

  async #readSomething(process: Process): Promise<void> {
    await this.#read(process, this.#random.chance(0.5) ? 'groups' : 'pools').catch(() => [])
  }

  async #start(identity: Identity, store = new MemoryStore()): Promise<Process> {
    const { url, keys, meshId, webSocket } = this.#broker
    const reports: PeerEvent['type'][] = []
    const onEvent = ({ type }: PeerEvent) => void (NEWS.has(type) || reports.push(type))
    const peer = await connect({ url, brokerKey: keys.publicKey, meshId, identity, store, webSocket, onEvent })
    exchangeHeads(peer)
    this.#peers.push(peer)
    return { identity, store, peer, reports }
  }

  async #restart({ identity, store, peer, reports }: Process): Promise<Process> {
    await peer.close()
    const next = await this.#start(identity, new MemoryStore(store.records))
    next.reports.push(...reports)
    return next
  }

  /** Sends messages, and resolves when the recipient has them. */
  async #deliver(from: Process, to: Process, count: number, priority: Priority = 'next'): Promise<void> {
    let left = count
    const all = Promise.withResolvers<void>()
    const stop = to.peer.onMessage(() => {
      left -= 1
      if (left <= 0) all.resolve()
    })
    for (let i = 0; i < count; i++) await from.peer.send(to.peer.key, 'hello', { priority })
    if (count > 0) await all.promise
    stop()
  }

  /** Waits for a report of the broker's next replies. */
  async #expects({ reports, peer }: Process, type: PeerEvent['type']): Promise<string | null> {
    for (let turn = 0; turn < TURNS_MAX && !reports.includes(type); turn++)
      await peer.lookupKey(keyOf(generateIdentity())).catch(() => undefined) // a round trip
    const others = reports.filter((each) => each !== type && each !== 'key_refused')
    if (!reports.includes(type)) return `${type} was not reported`
    return others.length === 0 ? null : `also reported: ${others.join(', ')}`
  }

  #intercept(socket: BrokerSocket, frame: ClientFrame): boolean {
    if (frame.type === 'groups' || frame.type === 'pools') {
      const idOf = frame.type === 'groups' ? 'groupId' : 'poolId'
      const statements = this.#shownTo(socket.peer!).flatMap((each) => (idOf in each ? [each.bytes] : []))
      socket.say({ type: 'groupList', ref: frame.ref, statements, isLast: true })
      return true
    }
    if (frame.type === 'devices') socket.say({ type: 'deviceList', ref: frame.ref, ...this.#devices })
    if (frame.type === 'devices') return true
    if (frame.type !== 'send' || this.#mail === 'stored') return false
    const ids = frame.envelopes.map(({ envelopeId }) => ({ envelopeId }))
    if (this.#mail === 'dropped') socket.say({ type: 'ack', items: ids.map((id) => ({ ...id, isDuplicate: false })) })
    else socket.say({ type: 'nack', items: ids.map((id) => ({ ...id, code: 'too_many_hops', retryAfterMs: 0 })) })
    return true
  }
}

/** The number of round trips after the last message, within which the victim must report the attack. */
const TURNS_MAX = 10
