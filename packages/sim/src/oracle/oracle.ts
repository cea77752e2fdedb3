/**
 * Checks the promises that must hold under all faults (P1–P9) as events happen, without knowledge of the broker's
 * internals.
 */
import type { CloseCode, Death, Delivery, ReceiptEvent, ReceiptWish } from '@sealpost/protocol'
import type { StoredDelivery } from '@sealpost/queue/memory'
import type { DeliveryId, EnvelopeId, MeshId, Millis, PeerKey } from '@sealpost/std'
import { POOL } from '../peer/crypto.ts'

export class Violation extends Error {
  override readonly name = 'Violation'
}

interface SendFacts {
  readonly meshId: MeshId
  readonly from: PeerKey
  readonly to: PeerKey
  readonly priority: string
  /** The message's index in its lane; null for a delayed message, which has no order. */
  readonly place: number | null
  readonly wish: ReceiptWish
  readonly mayDie: boolean
  readonly mayBeRefused: boolean
  /** Whether a revocation leaves the message's fate undefined. */
  readonly isOfLeaver: boolean
  isAcked: boolean
  /** How often the application received the message. */
  deliveries: number
  /** How often the application returned the message. */
  returned: number
  isSettled: boolean
  isRejected: boolean
  /** Whether later messages were delivered while this one had expired, before the clock was set back. */
  wasPassedBy: boolean
  death: Death | null
  isRefused: boolean
  /** Whether the receipt for the end arrived, or became a dead letter. */
  isEndReported: boolean
}

interface Receipt {
  readonly meshId: MeshId
  readonly to: PeerKey
  readonly envelopeId: EnvelopeId
  readonly event: ReceiptEvent
}

export type SendDoubts = Pick<SendFacts, 'mayDie' | 'mayBeRefused' | 'isOfLeaver'>

export class Oracle {
  readonly sends: SendFacts[] = []
  readonly marks = new Map<string, number>()
  /** Whether the database clock went back, which revives expired deliveries unless they were swept. */
  hasClockGoneBack = false
  private isLeaverGone = false
  /** `unreported`: sends whose sender waits for a receipt of their end. */
  private readonly open = { unacked: 0, unsettled: 0, unreported: 0 }
  private readonly lanes = new Map<string, { sends: SendFacts[]; next: number }>()
  private readonly gaps = new Map<string, number>()
  private readonly idOf = new Map<string, DeliveryId>()
  private readonly sendOf = new Map<string, SendFacts>()

  mark(name: string): void {
    this.marks.set(name, (this.marks.get(name) ?? 0) + 1)
  }

  /** Returns the number that identifies this send in its body. */
  posted(
    send: Pick<SendFacts, 'meshId' | 'from' | 'to' | 'priority' | 'wish' | keyof SendDoubts> & { isDelayed: boolean },
  ): number {
    const lane = this.laneOf(send)
    this.count(send, 'unacked', 1)
    this.count(send, 'unsettled', 1)
    if (send.wish !== 'none') this.count(send, 'unreported', 1)
    const open = {
      isAcked: false,
      deliveries: 0,
      returned: 0,
      isSettled: false,
      isRejected: false,
      wasPassedBy: false,
      death: null,
      isRefused: false,
      isEndReported: false,
    }
    const facts: SendFacts = { ...send, place: send.isDelayed ? null : lane.sends.length, ...open }
    if (!send.isDelayed) lane.sends.push(facts)
    return this.sends.push(facts) - 1
  }

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
    must(!send.isAcked, 'P5', () => `send ${no} was acknowledged twice`)
    send.isAcked = true
    this.count(send, 'unacked', -1)
  }

  ackSent(meshId: MeshId, from: PeerKey, envelopeId: EnvelopeId, isStored: boolean): void {
    const send = this.sendOf.get(`${meshId} ${from} ${envelopeId}`)
    must(send, 'P4', () => 'an ack for an unknown envelope')
    must(isStored || isOver(send!), 'P1', () => `acked and not stored: ${textOf(send!)}`)
  }

  pushSent(
    meshId: MeshId,
    to: PeerKey,
    { id, envelopeId, sender }: Pick<Delivery, 'id' | 'envelopeId' | 'sender'>,
  ): void {
    const send = this.sendOf.get(`${meshId} ${sender} ${envelopeId}`)
    must(send, 'P4', () => `pushed to ${to.slice(-2)} a message that was not sent in this mesh`)
    must(send!.to === to || isOfPool(send!), 'P4', () => `pushed to ${to.slice(-2)}: ${textOf(send!)}`)
    this.sameId(meshId, sender, envelopeId, id)
  }

  removed(meshId: MeshId, sender: PeerKey, row: StoredDelivery): void {
    const send = this.sendOf.get(`${meshId} ${sender} ${row.envelopeId}`)
    must(
      send?.isSettled || this.isThrownAway(send),
      'P2',
      () => `left the queue before its recipient settled it: ${send && textOf(send)}`,
    )
  }

  /** Call when a claim takes the row. `cause`: the event that voided its previous lease. */
  claimedAgain(row: StoredDelivery, cause: string | null): void {
    must(cause, 'P7', () => `claimed again without a cause: delivery ${row.id} to ${row.recipient}`)
    this.mark(`redelivery: ${cause}`)
  }

  delivered(meshId: MeshId, to: PeerKey, sender: PeerKey, no: number): void {
    const send = this.sends[no]
    must(send, 'P4', () => `delivered a message that was not sent (${no})`)
    must(send!.meshId === meshId, 'P9', () => `delivered in another mesh: ${textOf(send!)}`)
    must(
      send!.to === to && send!.from === sender,
      'P4',
      () => `delivered to ${to.slice(-2)} from ${sender.slice(-2)}: ${textOf(send!)}`,
    )
    must(!send!.isSettled, 'P8', () => `delivered after it was settled: ${textOf(send!)}`)
    send!.deliveries += 1
    must(send!.deliveries === send!.returned + 1, 'P8', () => `delivered twice: ${textOf(send!)}`)
    if (send!.deliveries > 1 || send!.place === null) return
    this.deliveredInTurn(send!, send!.place)
  }

  /** Checks the order. Only a dead delivery may be overtaken, and it must not be delivered afterwards. */
  private deliveredInTurn(send: SendFacts, place: number): void {
    const lane = this.laneOf(send)
    if (place < lane.next && send.mayDie && this.hasClockGoneBack) {
      send.wasPassedBy = true
      return this.mark('revived by the clock')
    }
    must(place >= lane.next, 'P6', () => `delivered after number ${lane.next - 1} of its lane: ${textOf(send)}`)
    const passed = lane.sends.slice(lane.next, place)
    must(
      passed.every(({ mayDie }) => mayDie),
      'P6',
      () => `delivered before number ${lane.next} of its lane: ${textOf(send)}`,
    )
    lane.next = place + 1
  }

  /** After its holder's session has ended, a delivery with an uncommitted settle goes to another member. */
  deliveredOfPool(meshId: MeshId, sender: PeerKey, no: number): void {
    const send = this.sends[no]
    must(send && isOfPool(send), 'P4', () => `delivered a message of a pool that was not sent to it (${no})`)
    must(send!.meshId === meshId && send!.from === sender, 'P9', () => `delivered to others: ${textOf(send!)}`)
    send!.deliveries += 1
    if (send!.deliveries > 1) this.mark('pool: delivered again')
  }

  /** Call when a member receives the row. `cause`: the event that voided the previous holder's lease. */
  dealtAgain(row: StoredDelivery, cause: string | null): void {
    must(cause, 'one holder', () => `delivery ${row.id} is dealt while a live session holds it`)
    this.mark(`pool: dealt again, ${cause}`)
  }

  keptByLeaver(row: StoredDelivery): void {
    must(false, 'leavers', () => `delivery ${row.id} is still leased to a member that has left`)
  }

  countedUntouched(row: StoredDelivery): void {
    must(false, 'unread', () => `delivery ${row.id}, which its recipient has not touched, counts an attempt`)
  }

  /** Checks a gap, which only a message that died undelivered may leave. */
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

  /** Call for a dead letter. `isDue`: whether it had expired or failed too often. */
  died(letter: { meshId: MeshId; sender: PeerKey; envelopeId: EnvelopeId; reason: Death }, isDue: boolean): void {
    const send = this.sendOf.get(`${letter.meshId} ${letter.sender} ${letter.envelopeId}`)
    must(send?.mayDie && isDue, 'P2', () => `given up too early (${letter.reason}): ${send && textOf(send)}`)
    this.mark(`death: ${letter.reason}`)
    if (!isOver(send!)) this.count(send!, 'unsettled', -1)
    send!.death = letter.reason
  }

  swept(meshId: MeshId, sender: PeerKey, row: StoredDelivery): void {
    const send = this.sendOf.get(`${meshId} ${sender} ${row.envelopeId}`)
    must(send?.death, 'P2', () => `left the queue without a dead letter: ${send && textOf(send)}`)
  }

  /** Call when a receipt leaves the queue unsettled. `isDue`: whether it had failed too often. */
  receiptDied(receipt: Receipt, isDue: boolean): void {
    const { meshId, to, envelopeId, event } = receipt
    const send = this.sendOf.get(`${meshId} ${to} ${envelopeId}`)
    must(isDue, 'P2', () => `a receipt (${event}) was given up too early: ${send && textOf(send)}`)
    this.mark('death: receipt')
    if (event !== 'pushed') this.reportedEnd(send!)
  }

  lost(meshId: MeshId, mail: readonly { sender: PeerKey; envelopeId: EnvelopeId; reason: Death }[]): void {
    for (const { sender, envelopeId, reason } of mail) {
      const send = this.sendOf.get(`${meshId} ${sender} ${envelopeId}`)
      must(send?.death === reason, 'P2', () => `reported as ${reason}, which is false: ${send && textOf(send)}`)
      this.mark(`reported lost: ${reason}`)
    }
  }

  /** Checks how long a delivery has waited for a session that could accept it. */
  waits({ id, recipient }: StoredDelivery, { forMs, mostMs }: { forMs: Millis; mostMs: Millis }): void {
    must(forMs <= mostMs, 'P3', () => `delivery ${id} to ${recipient} waits for ${forMs} ms, and its session has room`)
  }

  ended(to: PeerKey, code: string): void {
    must(false, 'P3', () => `peer ${to.slice(-2)} stopped permanently: ${code}`)
  }

  refused(no: number, code: string): void {
    const send = this.sends[no]!
    const isMeant = send.mayBeRefused && (code === 'not_allowed' || code === 'maybe_sent')
    must(isMeant || (send.isOfLeaver && this.isLeaverGone), 'P3', () => `the broker refused (${code}): ${textOf(send)}`)
    this.mark(`refused: ${code}`)
    this.count(send, 'unacked', -1)
    if (!isOver(send)) this.count(send, 'unsettled', -1)
    if (send.wish !== 'none' && !send.isEndReported) this.count(send, 'unreported', -1)
    send.isRefused = true
  }

  revoked(): void {
    this.mark('revocation: committed')
    this.isLeaverGone = true
  }

  leaverEnded(code: string): void {
    must(this.isLeaverGone, 'revocation', () => `a peer stopped permanently (${code}) before it was revoked`)
    this.mark(`leaver: ${code}`)
  }

  tookFromLeaver(): void {
    must(false, 'revocation', () => 'a message of a revoked peer was stored')
  }

  letIn(): void {
    must(false, 'revocation', () => 'a session was opened for a revoked peer')
  }

  served(): void {
    must(false, 'revocation', () => 'the session of a revoked peer continues')
  }

  /** Reports that a shard accepted a message although it knew that the recipient blocks the sender. */
  unwelcome(): void {
    must(false, 'consent', () => 'taken from a sender that its recipient has blocked')
  }

  disturbed(): void {
    must(false, 'dnd', () => 'a recipient that is not to be disturbed gets a lease on insert')
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

  /** Call for a settle. In a pool, two members may settle a delivery. */
  settled(no: number): void {
    const send = this.sends[no]!
    if (!send.isSettled && send.death === null && !send.isRefused) this.count(send, 'unsettled', -1)
    send.isSettled = true
  }

  rejected(no: number): void {
    this.sends[no]!.isRejected = true
    this.settled(no)
  }

  receiptArrived(meshId: MeshId, from: PeerKey, envelopeId: EnvelopeId, event: ReceiptEvent): void {
    const send = this.sendOf.get(`${meshId} ${from} ${envelopeId}`)
    must(send && send.wish !== 'none', 'P4', () => 'a receipt that was not requested')
    this.mark(`receipt: ${event}`)
    if (event === 'pushed') return must(send!.wish === 'all', 'P4', () => `an unrequested receipt: ${textOf(send!)}`)
    must(
      isTrueOf(send!, event) || this.isThrownAway(send),
      'P2',
      () => `a receipt reports ${event}, which is false: ${textOf(send!)}`,
    )
    this.reportedEnd(send!)
  }

  private reportedEnd(send: SendFacts): void {
    if (!send.isEndReported && !send.isRefused) this.count(send, 'unreported', -1)
    send.isEndReported = true
  }

  get isDone(): boolean {
    return Object.values(this.open).every((count) => count === 0)
  }

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
    const silent = sends.filter((send) => send.wish !== 'none' && !send.isEndReported && !send.isRefused)
    must(silent.length === 0, 'P3', () => `no receipt for ${silent.length} sends; first: ${textOf(silent[0]!)}`)
    must(queued === 0, 'P3', () => `${queued} deliveries are still queued ${sinceMs} ms after the last fault`)
  }

  /** Returns whether the message may be settled undelivered, because an SDK can't open a revoked peer's mail. */
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

export function must(fact: unknown, promise: string, claim: () => string): void {
  if (!fact) throw new Violation(`${promise}: ${claim()}`)
}

function textOf({ meshId, from, to, priority, place, isAcked, deliveries }: SendFacts): string {
  const state = `${isAcked ? 'acked' : 'not acked'}, delivered ${deliveries} times`
  return `mesh ${meshId.slice(-2)}, ${from.slice(-2)} to ${to.slice(-2)}, ${priority} number ${place} (${state})`
}
