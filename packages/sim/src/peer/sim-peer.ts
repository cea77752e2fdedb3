/** Simulates a peer with the SDK's real engine, and an application that is sometimes slow or throws. */
import { type ClientFrame, NO_THREAD, type Priority, type SendTerms } from '@sealpost/protocol'
import type { Message, PeerEvent } from '@sealpost/sdk'
import { type PeerEffects, PeerEngine } from '@sealpost/sdk/engine'
import { PoolClient } from '@sealpost/sdk/pools'
import type { MeshId, Millis, PeerKey } from '@sealpost/std'
import { NO_CODE, NORMAL, SimulatedLink } from '../network.ts'
import type { SendDoubts } from '../oracle/oracle.ts'
import { BROKER_KEY } from '../shard/shard-life.ts'
import type { Surroundings } from '../surroundings.ts'
import { bodyOf, boxKeyOf, GROUP_ID, KeyRing, POOL, readPoolFor, sendOf, textOfSends, vaultCrypto } from './crypto.ts'
import type { SimulatedStore } from './simulated-store.ts'

export class SimPeer implements PeerEffects {
  readonly meshId: MeshId
  readonly peerKey: PeerKey
  private readonly world: Surroundings
  private readonly engine: PeerEngine
  private readonly pools: PoolClient
  private readonly ring = new KeyRing()
  private readonly store: SimulatedStore | null
  private link: SimulatedLink | null = null
  private home: number
  private isFlushDue = false
  private wakeAtMs: Millis = Infinity
  /** How far the peer's own clock is off, which determines envelope ids. It jumps. */
  private readonly skewMs: () => Millis

  constructor(world: Surroundings, meshId: MeshId, peerKey: PeerKey) {
    const { random, clock } = world
    this.world = world
    this.meshId = meshId
    this.peerKey = peerKey
    this.home = random.below(world.shardCount)
    const skewsMs = random.chance(0.3) ? [0, -3_000, 5_000, -100_000] : [0]
    this.skewMs = () => skewsMs[Math.floor(clock.nowMs / 1_700) % skewsMs.length]!
    this.ring.add(boxKeyOf(peerKey, 1), 1)
    this.ring.turnTo(1)
    const crypto = vaultCrypto(world.vault, {
      meshId,
      peerKey,
      random,
      ring: this.ring,
      nowMs: () => clock.nowMs + this.skewMs(),
    })
    const seal: typeof crypto.seal = (draft) => {
      const body = draft.note?.group || draft.note?.pool ? bodyOf(world.vault.bodies, draft.body) : draft.body
      world.oracle.sealed(sendOf(body, this.others, draft.to.peerKey), draft.envelopeId)
      return crypto.seal(draft)
    }
    this.store = world.disks.create(() => this.run(() => this.engine.storeWritten()))
    this.engine = new PeerEngine(
      this,
      { ...crypto, seal },
      {
        urls: ['wss://sim'],
        brokerKey: BROKER_KEY,
        meshId,
        peerKey,
        nowMs: clock.nowMs,
        random: random.next,
        window: 1 + random.below(8),
        credit: 1 + random.below(6),
        ...(this.store && { store: this.store }),
      },
    )
    this.pools = this.engine.add((ports) => new PoolClient(readPoolFor(meshId), ports))
  }

  start(): void {
    this.run(() => {
      this.engine.start()
      this.engine.groups.statements.refresh(() => undefined)
    })
    const waiter = { joined: () => this.world.oracle.mark('pool: joined'), refused: () => undefined }
    if (this.world.plan.poolSends > 0)
      this.run(() => this.pools.joins.join(POOL, 1 + this.world.random.below(3), waiter))
  }

  postToPool(): void {
    const { oracle } = this.world
    const terms = this.drawTerms()
    const mayDie = this.world.ends.areFailedAttemptsCounted
    const isOfLeaver = this.world.revocations.isLeaver(this)
    const no = oracle.postedToPool({
      meshId: this.meshId,
      from: this.peerKey,
      wish: terms.receipts,
      mayDie,
      isOfLeaver,
    })
    const send = { poolId: POOL, body: textOfSends([no]), priority: 'next' as const, ttlSeconds: 0, terms }
    const accepted = () => oracle.acked(no)
    const refused = ({ code }: { code: string }) => oracle.refused(no, code)
    this.run(() => this.pools.sender.send({ ...send, accepted, refused }))
  }

  private get others(): PeerKey[] {
    return this.world.members.filter((member) => member !== this.peerKey)
  }

  post(to: PeerKey, priority: Priority): void {
    const isForAll = this.world.chance('broadcast') && this.engine.groups.statements.find(GROUP_ID) !== undefined
    if (isForAll) this.postToAll(priority)
    else this.postTo(to, priority)
  }

  private postToAll(priority: Priority): void {
    const { oracle } = this.world
    const { others } = this
    const wish = this.drawTerms().receipts
    const send = { meshId: this.meshId, from: this.peerKey, priority, wish, isDelayed: false }
    const numbers = others.map((to) => oracle.posted({ ...send, to, ...this.doubtsOf(to) }))
    const numberOf = (peer: PeerKey) => numbers[others.indexOf(peer)]!
    oracle.mark('broadcast')
    const terms = { receipts: wish, notBeforeMs: 0, thread: NO_THREAD, hops: 0, noAutoReply: false, ifOnline: false }
    this.run(() =>
      this.engine.groups.send({
        groupId: GROUP_ID,
        body: textOfSends(numbers),
        terms: { priority, ttlSeconds: 0, terms },
        expect: () => undefined,
        posted: () => undefined,
        refused: ({ code }) => oracle.refused(numbers[0]!, code),
        ended: ({ peer, error }) => (error ? oracle.refused(numberOf(peer), error.code) : oracle.acked(numberOf(peer))),
      }),
    )
  }

  private doubtsOf(to: PeerKey): SendDoubts {
    const way = { meshId: this.meshId, from: this.peerKey, to }
    const mayBeRefused = this.world.isDoubtful(way)
    const isOfLeaver = this.world.revocations.isConcerned(way)
    return { mayDie: this.world.ends.areFailedAttemptsCounted || mayBeRefused || isOfLeaver, mayBeRefused, isOfLeaver }
  }

  private postTo(to: PeerKey, priority: Priority): void {
    const { oracle } = this.world
    const terms = this.drawTerms()
    const ttlSeconds = terms.notBeforeMs > 0 ? 0 : this.world.ends.drawTtlSeconds()
    const doubts = this.doubtsOf(to)
    const mayDie = ttlSeconds > 0 || doubts.mayDie
    const send = { meshId: this.meshId, from: this.peerKey, to, priority, ...doubts, mayDie }
    const no = oracle.posted({ ...send, wish: terms.receipts, isDelayed: terms.notBeforeMs > 0 })
    const body = textOfSends([no])
    const accepted = () => oracle.acked(no)
    const refused = ({ code }: { code: string }) => {
      const { state } = this.engine
      if (state.name === 'closed') this.ended(state.error?.code ?? 'no code')
      oracle.refused(no, code)
    }
    this.run(() =>
      this.engine.enqueue({
        to,
        priority,
        ttlSeconds,
        terms: isPlain(terms) ? undefined : terms,
        body,
        accepted,
        refused,
      }),
    )
  }

  /** Rotates the box key like the SDK: accepts the new key immediately, and seals with it once it is stored. */
  turnBoxKey(): void {
    const boxEpoch = this.ring.newestEpoch + 1
    const boxKey = boxKeyOf(this.peerKey, boxEpoch)
    this.ring.add(boxKey, boxEpoch)
    this.world.oracle.mark('box key: turns')
    const answered = ({ outcome }: { outcome: string }) => {
      this.world.oracle.mark(`box key: ${outcome}`)
      if (outcome === 'done') this.ring.turnTo(boxEpoch)
    }
    const binding = { boxKey, boxEpoch, notAfterMs: Number.MAX_SAFE_INTEGER, signature: new Uint8Array(64) }
    const refused = ({ code }: { code: string }) => this.ended(code)
    this.run(() => this.engine.requestBroker<'bind'>({ type: 'bind', ...binding }, { replied: answered, refused }))
  }

  changeConsent(peer: PeerKey, verdict: 'blocked' | 'forgotten'): void {
    const answered = () => this.world.oracle.mark(`consent: ${verdict}`)
    const refused = ({ code }: { code: string }) => this.ended(code)
    const changes = [{ peer, verdict }]
    this.run(() =>
      this.engine.requestBroker<'consent'>(
        { type: 'consent', policy: 'keep', changes },
        { replied: answered, refused },
      ),
    )
  }

  revoke(peer: PeerKey): void {
    const answered = () => this.world.oracle.mark('revocation: answered')
    const refused = ({ code }: { code: string }) => this.ended(code)
    this.run(() =>
      this.engine.requestBroker<'revoke'>(
        { type: 'revoke', members: [peer], invites: [] },
        { replied: answered, refused },
      ),
    )
  }

  /** Handles a rejected message. Without a revoked peer's key, its messages don't open. */
  private refusedOf(peer: PeerKey, reason: string): void {
    const { oracle, revocations } = this.world
    if (revocations.isLeaver({ meshId: this.meshId, peerKey: peer })) oracle.leaverEnded(reason)
    else this.ended(reason)
  }

  private ended(code: string): void {
    const { oracle, revocations } = this.world
    if (revocations.isLeaver(this)) oracle.leaverEnded(code)
    else oracle.ended(this.peerKey, code)
  }

  cut(noticed: { clientAfterMs: Millis; serverAfterMs: Millis }): void {
    this.link?.cut(noticed)
  }

  /** Closes the connection normally, with whatever messages the peer has, and connects again. */
  rejoin(): void {
    if (this.engine.state.name !== 'live') return
    const { dialNo } = this.engine.connection
    this.closeSocket(dialNo, NORMAL)
    this.run(() => this.engine.closed(dialNo, NORMAL))
  }

  /** Breaks the connection and dials another shard while the former session still settles. */
  move(): void {
    this.home = (this.home + 1) % this.world.shardCount
    this.cut({ clientAfterMs: 0, serverAfterMs: 30_000 })
  }

  dial(dialNo: number): void {
    const { world } = this
    if (world.chance('takeover')) this.home = (this.home + 1) % world.shardCount
    const { clock, random } = world
    const client = {
      received: (frame: Parameters<PeerEngine['received']>[1]) => this.run(() => this.engine.received(dialNo, frame)),
      closed: (closeNumber: number) => this.run(() => this.engine.closed(dialNo, closeNumber)),
    }
    const link = new SimulatedLink(client, { clock, random, delayMaxMs: world.plan.networkMs })
    this.link = link
    clock.after(random.next() * 20, () => {
      const shard = world.shards[this.home]
      if (this.link !== link) return
      if (!shard) return client.closed(1006)
      this.run(() => this.engine.opened(dialNo))
      shard.connect(link)
    })
  }

  closeSocket(_dialNo: number, code: number = NO_CODE): void {
    this.link?.closeFromClient(code)
    this.link = null
  }

  transmit(frame: ClientFrame): void {
    this.link?.sendToServer(frame)
  }

  deliver(message: Message): void {
    const { world } = this
    const no = sendOf(
      message.body,
      world.members.filter((member) => member !== message.sender),
      this.peerKey,
    )
    if (message.pool) world.oracle.deliveredOfPool(this.meshId, message.sender, no)
    else world.oracle.delivered(this.meshId, this.peerKey, message.sender, no)
    const isSlow = world.chance('handlerSlow')
    const end = world.chance('handlerThrows') ? 'throws' : world.chance('handlerRejects') ? 'rejects' : 'settles'
    if (world.chance('disturbed')) this.rest()
    const forMs = world.random.next() * (isSlow ? 12_000 : message.pool ? POOL_WORK_MS : 30)
    if (isSlow && world.chance('handlerExtends')) this.extend(message)
    world.clock.after(forMs, () => this.run(() => this.end(message, no, end)))
  }

  private end(message: Message, no: number, end: 'throws' | 'rejects' | 'settles'): void {
    if (end === 'throws') this.returnForRetry(message, no)
    else if (end === 'rejects') this.reject(message, no)
    else this.settle(message, no)
  }

  private rest(): void {
    const setAvailability = (availability: 'idle' | 'dnd') =>
      this.run(() => this.engine.setStatus({ availability, summary: '', declinesReceipts: false }))
    this.world.oracle.mark('do not disturb')
    setAvailability('dnd')
    this.world.clock.after(this.world.random.next() * 3_000, () => setAvailability('idle'))
  }

  private extend(message: Message): void {
    this.world.oracle.mark('handler extends')
    this.world.clock.after(4_000, () => this.run(() => message.extend(10_000)))
  }

  private reject(message: Message, no: number): void {
    this.whenMarked(message, () => this.world.oracle.rejected(no))
    this.world.oracle.mark('handler rejects')
    message.reject('not for me')
  }

  private drawTerms(): SendTerms {
    const { random, clock } = this.world
    const receipts = this.world.chance('wantsReceipts') ? (random.chance(0.5) ? 'all' : 'end') : 'none'
    const notBeforeMs = this.world.chance('delayed') ? Math.ceil(clock.nowMs + random.next() * 4_000) : 0
    return { receipts, notBeforeMs, thread: NO_THREAD, hops: 0, noAutoReply: false, ifOnline: false }
  }

  emit(event: PeerEvent): void {
    const { oracle } = this.world
    if (event.type === 'pool_left') this.ended(event.reason)
    if (event.type === 'closed') this.ended(event.error?.code ?? 'no code')
    if (event.type === 'tamper') this.refusedOf(event.sender, event.reason)
    if (event.type === 'key_refused') this.refusedOf(event.peer, event.reason)
    if (event.type === 'gap') oracle.gap(this.meshId, this.peerKey, event)
    if (event.type === 'recovered') oracle.lost(this.meshId, event.lost)
    if (event.type === 'receipt') oracle.receiptArrived(this.meshId, this.peerKey, event.envelopeId, event.event)
    oracle.mark(`sdk: ${event.type}`)
  }

  flushSoon(): void {
    if (this.isFlushDue) return
    this.isFlushDue = true
    this.world.clock.after(0, () => {
      this.isFlushDue = false
      this.run(() => this.engine.flush())
    })
  }

  private settle(message: Message, no: number): void {
    this.whenMarked(message, () => this.world.oracle.settled(no))
    message.settle()
  }

  /** Calls `settled` once the message's mark is stored, if the peer has a store. */
  private whenMarked(message: Message, settled: () => void): void {
    if (this.store) this.store.whenMarked(message, settled)
    else settled()
  }

  private returnForRetry(message: Message, no: number): void {
    this.world.oracle.sends[no]!.returned += 1
    this.world.oracle.mark('handler threw')
    message.retry(this.world.random.next() * 2_000)
  }

  private run(happened: () => void): void {
    const { clock } = this.world
    this.engine.advance(clock.nowMs)
    happened()
    this.world.inside.lookAtPeer(this.engine)
    // the SDK would hide this error by restoring the order
    if (this.engine.counters.reordered > 0) this.world.oracle.misordered(this.meshId, this.peerKey)
    const wakeAtMs = Math.max(this.engine.wakeAtMs, clock.nowMs + 1)
    if (wakeAtMs >= this.wakeAtMs) return
    this.wakeAtMs = wakeAtMs
    clock.at(wakeAtMs, () => {
      if (this.wakeAtMs === wakeAtMs) this.wakeAtMs = Infinity
      this.run(() => this.engine.tick())
    })
  }
}

const POOL_WORK_MS = 600

const isPlain = ({ receipts, notBeforeMs }: SendTerms): boolean => receipts === 'none' && notBeforeMs === 0
