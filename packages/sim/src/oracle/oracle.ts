/**
 * What must hold whatever fails (P1–P9 of the security model), checked as things happen. It knows what was asked for and
 * what came out, and nothing of how the broker works inside.
 */
import type { CloseCode, Death, Delivery, ReceiptEvent, ReceiptWish } from '@sealpost/protocol'
import type { StoredDelivery } from '@sealpost/queue/memory'
import type { DeliveryId, EnvelopeId, MeshId, Millis, PeerKey } from '@sealpost/std'
import { POOL } from '../peer/pool.ts'

export class Violation extends Error {
  override readonly name = 'Violation'
}

/** One call of `send` by an application. */
export interface SendFacts {
  readonly meshId: MeshId
  readonly from: PeerKey
  readonly to: PeerKey
  readonly priority: string
  /** Its place in its lane, from 0; null: it is delayed, and has no order. */
  readonly place: number | null
  readonly wish: ReceiptWish
  /** It has a short life, or strikes are counted: it may leave the queue unsettled. */
  readonly mayDie: boolean
  /** Its recipient may have blocked its sender. */
  readonly mayBeRefused: boolean
  /** Its sender or recipient may be revoked: then nobody knows what becomes of it. */
  readonly isOfLeaver: boolean
  isAcked: boolean
  /** How often the application got it, and how often it gave it back. */
  deliveries: number
  givenBack: number
  isSettled: boolean
  isRejected: boolean
  /** It was over for a while, till the clock was set back, and came behind others. */
  wasPassedBy: boolean
  /** How it left the queue unsettled. */
  death: Death | null
  /** Its sender was told that it is not wanted, or may not be stored. */
  isRefused: boolean
  /** Its sender has heard how it ended. */
  isTold: boolean
}

/** What may become of a send beside being settled. */
export type SendDoubts = Pick<SendFacts, 'mayDie' | 'mayBeRefused' | 'isOfLeaver'>

export class Oracle {
  readonly sends: SendFacts[] = []
  readonly marks = new Map<string, number>()
  /** The database's clock: what had expired by it, and was not swept, lives again. */
  hasClockGoneBack = false
  /** The peer that is revoked in this world is so by now. */
  private isLeaverGone = false
  /** `untold`: sends whose senders wait to hear of their end. */
  private readonly open = { unacked: 0, unsettled: 0, untold: 0 }
  /** `next`: the place behind the highest that was delivered. */
  private readonly lanes = new Map<string, { sends: SendFacts[]; next: number }>()
  /** Messages that recipients saw to be missing, by sender. */
  private readonly gaps = new Map<string, number>()
  private readonly idOf = new Map<string, DeliveryId>()
  private readonly sendOf = new Map<string, SendFacts>()

  mark(name: string): void {
    this.marks.set(name, (this.marks.get(name) ?? 0) + 1)
  }

  /** Answers the number by which the body names this send. */
  posted(
    send: Pick<SendFacts, 'meshId' | 'from' | 'to' | 'priority' | 'wish' | keyof SendDoubts> & { isDelayed: boolean },
  ): number {
    const lane = this.laneOf(send)
    this.count(send, 'unacked', 1)
    this.count(send, 'unsettled', 1)
    if (send.wish !== 'none') this.count(send, 'untold', 1)
    const open = {
      isAcked: false,
      deliveries: 0,
      givenBack: 0,
      isSettled: false,
      isRejected: false,
      wasPassedBy: false,
      death: null,
      isRefused: false,
      isTold: false,
    }
    const facts: SendFacts = { ...send, place: send.isDelayed ? null : lane.sends.length, ...open }
    if (!send.isDelayed) lane.sends.push(facts)
    return this.sends.push(facts) - 1
  }

  /** A pool keeps no order, and whoever of it is free may get it. */
  postedToPool(send: Pick<SendFacts, 'meshId' | 'from' | 'wish' | 'mayDie' | 'isOfLeaver'>): number {
    this.mark('pool: posted')
    const shape = { to: POOL as string as PeerKey, priority: 'next', mayBeRefused: false, isDelayed: true }
    return this.posted({ ...send, ...shape })
  }

  sealed(no: number, envelopeId: EnvelopeId): void {
    const send = this.sends[no]!
    this.sendOf.set(`${send.meshId} ${send.from} ${envelopeId}`, send)
  }

  isOfPool(meshId: MeshId, from: PeerKey, envelopeId: EnvelopeId): boolean {
    const send = this.sendOf.get(`${meshId} ${from} ${envelopeId}`)
    return send !== undefined && isOfPool(send)
  }

  acked(no: number): void {
    const send = this.sends[no]!
    must(!send.isAcked, 'P5', () => `send ${no} was answered twice`)
    send.isAcked = true
    this.count(send, 'unacked', -1)
  }

  /** A broker's word to a sender: this envelope is stored. */
  ackSent(meshId: MeshId, from: PeerKey, envelopeId: EnvelopeId, isStored: boolean): void {
    const send = this.sendOf.get(`${meshId} ${from} ${envelopeId}`)
    must(send, 'P4', () => 'an ack for an envelope that nobody sealed')
    must(isStored || isOver(send!), 'P1', () => `acked and not stored: ${textOf(send!)}`)
  }

  /** A broker's word to a recipient. */
  pushSent(
    meshId: MeshId,
    to: PeerKey,
    { id, envelopeId, sender }: Pick<Delivery, 'id' | 'envelopeId' | 'sender'>,
  ): void {
    const send = this.sendOf.get(`${meshId} ${sender} ${envelopeId}`)
    must(send, 'P4', () => `pushed to ${to.slice(-2)} what nobody sent in this mesh`)
    must(send!.to === to || isOfPool(send!), 'P4', () => `pushed to ${to.slice(-2)}: ${textOf(send!)}`)
    this.sameId(meshId, sender, envelopeId, id)
  }

  /** The row is about to leave the queue because somebody said it was settled. */
  removed(meshId: MeshId, sender: PeerKey, row: StoredDelivery): void {
    const send = this.sendOf.get(`${meshId} ${sender} ${row.envelopeId}`)
    must(
      send?.isSettled || this.isThrownAway(send),
      'P2',
      () => `left the queue before its recipient settled it: ${send && textOf(send)}`,
    )
  }

  /** A claim takes the row; `cause` is what makes its former lease void. */
  claimedAgain(row: StoredDelivery, cause: string | null): void {
    must(cause, 'P7', () => `claimed again without a cause: delivery ${row.id} to ${row.recipient}`)
    this.mark(`redelivery: ${cause}`)
  }

  delivered(meshId: MeshId, to: PeerKey, sender: PeerKey, no: number): void {
    const send = this.sends[no]
    must(send, 'P4', () => `delivered what nobody sent (${no})`)
    must(send!.meshId === meshId, 'P9', () => `delivered in another mesh: ${textOf(send!)}`)
    must(
      send!.to === to && send!.from === sender,
      'P4',
      () => `delivered to ${to.slice(-2)} from ${sender.slice(-2)}: ${textOf(send!)}`,
    )
    must(!send!.isSettled, 'P8', () => `delivered after it was settled: ${textOf(send!)}`)
    send!.deliveries += 1
    must(send!.deliveries === send!.givenBack + 1, 'P8', () => `delivered twice: ${textOf(send!)}`)
    if (send!.deliveries > 1 || send!.place === null) return
    this.deliveredInTurn(send!, send!.place)
  }

  /** Only what dies may be passed by, and what was passed by must not come any more. */
  private deliveredInTurn(send: SendFacts, place: number): void {
    const lane = this.laneOf(send)
    if (place < lane.next && send.mayDie && this.hasClockGoneBack) {
      send.wasPassedBy = true
      return this.mark('revived by the clock')
    }
    must(place >= lane.next, 'P6', () => `delivered behind number ${lane.next - 1} of its lane: ${textOf(send)}`)
    const passed = lane.sends.slice(lane.next, place)
    must(
      passed.every(({ mayDie }) => mayDie),
      'P6',
      () => `delivered before number ${lane.next} of its lane: ${textOf(send)}`,
    )
    lane.next = place + 1
  }

  /** One that its holder settled comes to another member when the holder's session ended before that was known. */
  deliveredOfPool(meshId: MeshId, sender: PeerKey, no: number): void {
    const send = this.sends[no]
    must(send && isOfPool(send), 'P4', () => `delivered of a pool what nobody sent to it (${no})`)
    must(send!.meshId === meshId && send!.from === sender, 'P9', () => `delivered to others: ${textOf(send!)}`)
    send!.deliveries += 1
    if (send!.deliveries > 1) this.mark('pool: delivered again')
  }

  /** A member is dealt a row; `cause` is what made the lease of its holder void. */
  dealtAgain(row: StoredDelivery, cause: string | null): void {
    must(cause, 'one holder', () => `delivery ${row.id} is dealt while a live session holds it`)
    this.mark(`pool: dealt again, ${cause}`)
  }

  keptByLeaver(row: StoredDelivery): void {
    must(false, 'leavers', () => `delivery ${row.id} is still leased to a member that has left`)
  }

  /** What died before it came leaves one. */
  gap(meshId: MeshId, to: PeerKey, { sender, missing }: { sender: PeerKey; missing: number }): void {
    const line = `${meshId} ${sender} ${to}`
    const seen = (this.gaps.get(line) ?? 0) + missing
    this.gaps.set(line, seen)
    const isOfLine = (send: SendFacts) => send.meshId === meshId && send.from === sender && send.to === to
    const dying = this.sends.filter(
      (send) => isOfLine(send) && send.mayDie && (send.deliveries === 0 || send.wasPassedBy),
    )
    must(seen <= dying.length, 'P6', () => `peer ${to.slice(-2)} sees a gap of ${missing} in a stream`)
    this.mark('gap: of what died')
  }

  misordered(meshId: MeshId, to: PeerKey): void {
    const isExcused = this.sends.some((send) => send.meshId === meshId && send.to === to && send.mayDie)
    must(isExcused, 'P6', () => `pushed to ${to.slice(-2)} before an earlier one of its stream`)
  }

  /** A delivery became a dead letter; `isDue`: its time or its strikes were up. */
  died(letter: { meshId: MeshId; sender: PeerKey; envelopeId: EnvelopeId; reason: Death }, isDue: boolean): void {
    const send = this.sendOf.get(`${letter.meshId} ${letter.sender} ${letter.envelopeId}`)
    must(send?.mayDie && isDue, 'P2', () => `given up too early (${letter.reason}): ${send && textOf(send)}`)
    this.mark(`death: ${letter.reason}`)
    if (!isOver(send!)) this.count(send!, 'unsettled', -1)
    send!.death = letter.reason
  }

  /** A sweep took the row. */
  swept(meshId: MeshId, sender: PeerKey, row: StoredDelivery): void {
    const send = this.sendOf.get(`${meshId} ${sender} ${row.envelopeId}`)
    must(send?.death, 'P2', () => `left the queue without a dead letter: ${send && textOf(send)}`)
  }

  /** A recipient is told what it will not get. */
  lost(meshId: MeshId, mail: readonly { sender: PeerKey; envelopeId: EnvelopeId; reason: Death }[]): void {
    for (const { sender, envelopeId, reason } of mail) {
      const send = this.sendOf.get(`${meshId} ${sender} ${envelopeId}`)
      must(send?.death === reason, 'P2', () => `told as ${reason}, which is not so: ${send && textOf(send)}`)
      this.mark(`told lost: ${reason}`)
    }
  }

  ended(to: PeerKey, code: string): void {
    must(false, 'P3', () => `peer ${to.slice(-2)} was ended for good: ${code}`)
  }

  refused(no: number, code: string): void {
    const send = this.sends[no]!
    const isMeant = send.mayBeRefused && (code === 'not_allowed' || code === 'maybe_sent')
    must(isMeant || (send.isOfLeaver && this.isLeaverGone), 'P3', () => `the broker refused (${code}): ${textOf(send)}`)
    this.mark(`refused: ${code}`)
    this.count(send, 'unacked', -1)
    if (!isOver(send)) this.count(send, 'unsettled', -1)
    if (send.wish !== 'none' && !send.isTold) this.count(send, 'untold', -1)
    send.isRefused = true
  }

  revoked(): void {
    this.mark('revocation: committed')
    this.isLeaverGone = true
  }

  /** The SDK of the peer that is revoked in this world ended for good. */
  leaverEnded(code: string): void {
    must(this.isLeaverGone, 'revocation', () => `a peer was ended for good (${code}) before it was revoked`)
    this.mark(`leaver: ${code}`)
  }

  /** A commit stored mail of the revoked peer, or for it. */
  tookFromLeaver(): void {
    must(false, 'revocation', () => 'mail of a revoked peer was stored')
  }

  /** A session was opened for it. */
  letIn(): void {
    must(false, 'revocation', () => 'a session was opened for a revoked peer')
  }

  /** It has a session where its revocation is known, or long after it. */
  served(): void {
    must(false, 'revocation', () => 'the session of a revoked peer goes on')
  }

  /** A shard takes for a recipient what that has barred, as the shard was told. */
  unwelcome(): void {
    must(false, 'consent', () => 'taken from a sender that its recipient has blocked')
  }

  creditOf(outstanding: number, credit: number): void {
    must(
      outstanding <= credit,
      'credit',
      () => `${outstanding} deliveries pushed and unsettled with a credit of ${credit}`,
    )
  }

  closed(code: CloseCode): void {
    this.mark(`closed: ${code}`)
  }

  /** In a pool two members may each have settled it. */
  settled(no: number): void {
    const send = this.sends[no]!
    if (!send.isSettled && send.death === null && !send.isRefused) this.count(send, 'unsettled', -1)
    send.isSettled = true
  }

  rejected(no: number): void {
    this.sends[no]!.isRejected = true
    this.settled(no)
  }

  /** What a sender was told of an envelope of its own. */
  told(meshId: MeshId, from: PeerKey, envelopeId: EnvelopeId, event: ReceiptEvent): void {
    const send = this.sendOf.get(`${meshId} ${from} ${envelopeId}`)
    must(send && send.wish !== 'none', 'P4', () => 'a receipt that nobody asked for')
    this.mark(`receipt: ${event}`)
    if (event === 'pushed') return must(send!.wish === 'all', 'P4', () => `a receipt not asked for: ${textOf(send!)}`)
    must(
      isTrueOf(send!, event) || this.isThrownAway(send),
      'P2',
      () => `a receipt says ${event}, which is not so: ${textOf(send!)}`,
    )
    if (!send!.isTold && !send!.isRefused) this.count(send!, 'untold', -1)
    send!.isTold = true
  }

  get isDone(): boolean {
    return Object.values(this.open).every((count) => count === 0)
  }

  /** Everything must have arrived by now. */
  finish(sinceMs: Millis, queued: number): void {
    const sends = this.sends.filter((send) => !send.isOfLeaver)
    const open = sends.filter((send) => !send.isRefused && (!send.isAcked || !isOver(send)))
    const lost = open.filter((send) => send.isAcked && !isOver(send))
    must(
      open.length === 0,
      'P3',
      () =>
        `${open.length} sends are not through after ${sinceMs} ms, ${lost.length} of them acked; first: ${open[0] && textOf(open[0])}`,
    )
    const silent = sends.filter((send) => send.wish !== 'none' && !send.isTold && !send.isRefused)
    must(silent.length === 0, 'P3', () => `no receipt for ${silent.length} sends; first: ${textOf(silent[0]!)}`)
    must(queued === 0, 'P3', () => `${queued} deliveries are still queued ${sinceMs} ms after the last fault`)
  }

  /** An SDK that can't open what a revoked peer has sent settles it by itself. */
  private isThrownAway(send: SendFacts | undefined): boolean {
    return send?.isOfLeaver === true && this.isLeaverGone
  }

  private count({ isOfLeaver }: Pick<SendFacts, 'isOfLeaver'>, what: keyof Oracle['open'], by: 1 | -1): void {
    if (!isOfLeaver) this.open[what] += by
  }

  private sameId(meshId: MeshId, sender: PeerKey, envelopeId: EnvelopeId, id: DeliveryId): void {
    const key = `${meshId} ${sender} ${envelopeId}`
    const known = this.idOf.get(key)
    if (known === undefined) this.idOf.set(key, id)
    else must(known === id, 'P5', () => `one envelope became two deliveries, ${known} and ${id}`)
  }

  private laneOf({ meshId, from, to, priority }: Pick<SendFacts, 'meshId' | 'from' | 'to' | 'priority'>) {
    const key = `${meshId} ${from} ${to} ${priority}`
    const lane = this.lanes.get(key) ?? { sends: [], next: 0 }
    this.lanes.set(key, lane)
    return lane
  }
}

const isOfPool = ({ to }: SendFacts): boolean => (to as string) === POOL
const isOver = ({ isSettled, death, isRefused }: SendFacts): boolean => isSettled || death !== null || isRefused

function isTrueOf({ isSettled, isRejected, death }: SendFacts, event: ReceiptEvent): boolean {
  if (event === 'settled') return isSettled
  if (event === 'rejected') return isRejected
  return death === (event === 'struck_out' ? 'strikes' : 'expired')
}

function must(fact: unknown, promise: string, claim: () => string): void {
  if (!fact) throw new Violation(`${promise}: ${claim()}`)
}

function textOf({ meshId, from, to, priority, place, isAcked, deliveries }: SendFacts): string {
  const state = `${isAcked ? 'acked' : 'not acked'}, delivered ${deliveries} times`
  return `mesh ${meshId.slice(-2)}, ${from.slice(-2)} to ${to.slice(-2)}, ${priority} number ${place} (${state})`
}
