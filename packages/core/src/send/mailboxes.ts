/**
 * How much waits for each recipient, so that nobody fills the database with it. A look into the queue says what is there,
 * and from then on what is sent here is counted on top; what its recipient settles is not counted off, so after so many
 * sends another look is asked for, and comes while there is still room. A send costs a few comparisons.
 *
 * What another shard stores meanwhile is seen at the next look, and the first send to a mailbox nobody here has looked into
 * passes unasked: by so much a quota may be overdrawn.
 */
import type { Measured } from '@sealpost/protocol'
import type { MeshId, Millis, PeerNo } from '@sealpost/std'

export interface MailboxLimits {
  /** Deliveries that may wait for one recipient. */
  readonly countMax: number
  readonly bytesMax: number
  /** Of these, from one sender, which is a user with all its devices: without a bound on bytes, one sender with large envelopes fills it for everybody. */
  readonly perSenderMax: number
  readonly bytesPerSenderMax: number
}

interface Amount {
  count: number
  bytes: number
}

interface Amounts extends Amount {
  readonly bySender: Map<PeerNo, Amount>
}

/** What a recipient's mailbox is believed to hold. */
export interface Mailbox {
  /** At the last look, and sent since it was begun. */
  held: Amounts
  /** What the look that is under way, or the last one, may not have seen. */
  fresh: Amounts
  /** Sent, and not answered by its commit: a look may see it or not. */
  onItsWay: Amounts
  look: 'none' | 'asked' | 'done'
  askedAtMs: Millis
}

/** The share of a quota that may be sent before another look. */
const LOOK_SHARE = 4
/** Between two looks into a mailbox that is full, or that nobody answered for. */
const LOOK_EVERY_MS = 1000
/** For a sender that is refused. */
export const FULL_RETRY_MS = 5000

const NOTHING: Readonly<Amount> = { count: 0, bytes: 0 }
const nothing = (): Amounts => ({ count: 0, bytes: 0, bySender: new Map() })
export const unknownMailbox = (): Mailbox => ({
  held: nothing(),
  fresh: nothing(),
  onItsWay: nothing(),
  look: 'none',
  askedAtMs: -Infinity,
})

export type Owner = { readonly peer: PeerNo; readonly mailbox: Mailbox }
type Ask = (meshId: MeshId, recipient: PeerNo) => void

export class Mailboxes {
  private readonly limits: MailboxLimits | null
  private readonly ask: Ask
  private readonly lookEveryMs: Millis

  /** `null`: no limits, and nothing is counted. */
  constructor(limits: MailboxLimits | null, ask: Ask, lookEveryMs = LOOK_EVERY_MS) {
    this.limits = limits
    this.ask = ask
    this.lookEveryMs = lookEveryMs
  }

  /** Whether one more of this sender is one too many. */
  isFull(meshId: MeshId, owner: Owner, sender: PeerNo, nowMs: Millis): boolean {
    const { limits } = this
    if (!limits) return false
    const { held } = owner.mailbox
    const own = held.bySender.get(sender) ?? NOTHING
    const isFull =
      held.count >= limits.countMax ||
      held.bytes >= limits.bytesMax ||
      own.count >= limits.perSenderMax ||
      own.bytes >= limits.bytesPerSenderMax
    if (isFull && this.mayLook(owner, nowMs)) this.look(meshId, owner, nowMs)
    return isFull
  }

  /** It goes to the queue, to wait there. */
  add(meshId: MeshId, owner: Owner, { sender, byteCount }: { sender: PeerNo; byteCount: number }, nowMs: Millis): void {
    const { limits } = this
    if (!limits) return
    const { mailbox } = owner
    addTo(mailbox.held, sender, 1, byteCount)
    addTo(mailbox.fresh, sender, 1, byteCount)
    addTo(mailbox.onItsWay, sender, 1, byteCount)
    const { fresh, look } = mailbox
    const own = fresh.bySender.get(sender)!
    const isDue =
      fresh.count * LOOK_SHARE >= limits.countMax ||
      fresh.bytes * LOOK_SHARE >= limits.bytesMax ||
      own.count * LOOK_SHARE >= limits.perSenderMax ||
      own.bytes * LOOK_SHARE >= limits.bytesPerSenderMax
    if (look === 'none' ? this.mayLook(owner, nowMs) : isDue) this.look(meshId, owner, nowMs)
  }

  /** Its commit was answered, or failed. */
  landed({ mailbox }: Pick<Owner, 'mailbox'>, { sender, byteCount }: { sender: PeerNo; byteCount: number }): void {
    if (!this.limits) return
    const { onItsWay } = mailbox
    addTo(onItsWay, sender, -1, -byteCount)
    if (onItsWay.bySender.get(sender)!.count === 0) onItsWay.bySender.delete(sender)
  }

  /** The answer to a look; `null`: the database did not answer. */
  measured({ mailbox }: Pick<Owner, 'mailbox'>, found: readonly Measured[] | null): void {
    if (mailbox.look !== 'asked') return
    mailbox.look = found ? 'done' : 'none'
    if (!found) return
    // What was on its way when the look began may count twice until the next one: refused too early, but never too late.
    const held = nothing()
    for (const { sender, count, bytes } of found) addTo(held, sender, count, bytes)
    for (const [sender, { count, bytes }] of mailbox.fresh.bySender) addTo(held, sender, count, bytes)
    mailbox.held = held
  }

  private mayLook({ mailbox }: Owner, nowMs: Millis): boolean {
    return nowMs - mailbox.askedAtMs >= this.lookEveryMs
  }

  private look(meshId: MeshId, { peer, mailbox }: Owner, nowMs: Millis): void {
    if (mailbox.look === 'asked') return
    mailbox.look = 'asked'
    mailbox.askedAtMs = nowMs
    mailbox.fresh = nothing()
    for (const [sender, { count, bytes }] of mailbox.onItsWay.bySender) addTo(mailbox.fresh, sender, count, bytes)
    this.ask(meshId, peer)
  }
}

function addTo(amounts: Amounts, sender: PeerNo, count: number, bytes: number): void {
  amounts.count += count
  amounts.bytes += bytes
  const own = amounts.bySender.get(sender)
  if (!own) {
    amounts.bySender.set(sender, { count, bytes })
    return
  }
  own.count += count
  own.bytes += bytes
}
