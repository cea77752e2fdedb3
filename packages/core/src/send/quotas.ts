/**
 * Bounds the backlog of a recipient and of a whole mesh, which counts as one large mailbox that includes the dead
 * letters. Each sender has a share of both; a user's devices have one share together.
 *
 * A measurement of the queue counts the backlog. Later sends through this shard are added; settles are not subtracted.
 * The next measurement is due after a quarter of a quota, so that it completes while there is room. A quota can be
 * exceeded by sends through other shards, and by the first send to an unmeasured mailbox.
 */
import type { SenderBacklog } from '@sealpost/protocol'
import type { MeshId, Millis, PeerNo } from '@sealpost/std'

export interface MailboxLimits {
  /** The maximum number of deliveries that may wait for one recipient. */
  readonly countMax: number
  readonly bytesMax: number
  /** The maximum number of these from one user. */
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

export interface MailboxUsage {
  /** The result of the last measurement, plus the sends since it began. */
  held: Amounts
  /** Sends that the measurement may have missed. */
  fresh: Amounts
  /** Appends without an outcome, which a measurement may miss. */
  inFlight: Amounts
  measurement: 'none' | 'running' | 'done'
  startedAtMs: Millis
}

/** The fraction of a quota (1/n) after which a measurement is due. */
const MEASURE_SHARE = 4
/** The minimum time between measurements of a mailbox that is full or could not be measured. */
const MEASURE_EVERY_MS = 1000
export const FULL_RETRY_MS = 5000

const NOTHING: Readonly<Amount> = { count: 0, bytes: 0 }
const nothing = (): Amounts => ({ count: 0, bytes: 0, bySender: new Map() })
export const unknownMailbox = (): MailboxUsage => ({
  held: nothing(),
  fresh: nothing(),
  inFlight: nothing(),
  measurement: 'none',
  startedAtMs: -Infinity,
})

export type Owner = { readonly peer: PeerNo; readonly mailbox: MailboxUsage }
export class Mailboxes {
  private readonly limits: MailboxLimits | null
  private readonly measure: (meshId: MeshId, recipient: PeerNo) => void
  private readonly measureEveryMs: Millis

  constructor(
    limits: MailboxLimits | null,
    measure: (meshId: MeshId, recipient: PeerNo) => void,
    measureEveryMs: Millis = MEASURE_EVERY_MS,
  ) {
    this.limits = limits
    this.measure = measure
    this.measureEveryMs = measureEveryMs
  }

  /** Returns whether one more envelope from this sender exceeds a limit. */
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
    if (isFull && this.mayMeasure(owner, nowMs)) this.startMeasurement(meshId, owner, nowMs)
    return isFull
  }

  add(meshId: MeshId, owner: Owner, { sender, byteCount }: { sender: PeerNo; byteCount: number }, nowMs: Millis): void {
    const { limits } = this
    if (!limits) return
    const { mailbox } = owner
    addTo(mailbox.held, sender, 1, byteCount)
    addTo(mailbox.fresh, sender, 1, byteCount)
    addTo(mailbox.inFlight, sender, 1, byteCount)
    const { fresh, measurement } = mailbox
    const own = fresh.bySender.get(sender)!
    const isDue =
      fresh.count * MEASURE_SHARE >= limits.countMax ||
      fresh.bytes * MEASURE_SHARE >= limits.bytesMax ||
      own.count * MEASURE_SHARE >= limits.perSenderMax ||
      own.bytes * MEASURE_SHARE >= limits.bytesPerSenderMax
    if (measurement === 'none' ? this.mayMeasure(owner, nowMs) : isDue) this.startMeasurement(meshId, owner, nowMs)
  }

  /** Call once the append's commit has succeeded or failed. */
  landed({ mailbox }: Pick<Owner, 'mailbox'>, { sender, byteCount }: { sender: PeerNo; byteCount: number }): void {
    if (!this.limits) return
    const { inFlight } = mailbox
    addTo(inFlight, sender, -1, -byteCount)
    if (inFlight.bySender.get(sender)!.count === 0) inFlight.bySender.delete(sender)
  }

  measured({ mailbox }: Pick<Owner, 'mailbox'>, found: readonly SenderBacklog[] | null): void {
    if (mailbox.measurement !== 'running') return
    mailbox.measurement = found ? 'done' : 'none'
    if (!found) return
    // Appends in flight when the measurement began may count twice, so a refusal may come too early but never too late.
    const held = nothing()
    for (const { sender, count, bytes } of found) addTo(held, sender, count, bytes)
    for (const [sender, { count, bytes }] of mailbox.fresh.bySender) addTo(held, sender, count, bytes)
    mailbox.held = held
  }

  private mayMeasure({ mailbox }: Owner, nowMs: Millis): boolean {
    return nowMs - mailbox.startedAtMs >= this.measureEveryMs
  }

  private startMeasurement(meshId: MeshId, { peer, mailbox }: Owner, nowMs: Millis): void {
    if (mailbox.measurement === 'running') return
    mailbox.measurement = 'running'
    mailbox.startedAtMs = nowMs
    mailbox.fresh = nothing()
    for (const [sender, { count, bytes }] of mailbox.inFlight.bySender) addTo(mailbox.fresh, sender, count, bytes)
    this.measure(meshId, peer)
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

/** The time between measurements of a full mesh, each of which reads a row per sender. */
const MEASURE_MESH_EVERY_MS = 15_000

interface QuotaLimits {
  readonly mailbox: MailboxLimits | null
  readonly mesh: MailboxLimits | null
}
type Measure = (meshId: MeshId, scope: PeerNo | 'mesh') => void

interface MeshQuota {
  readonly meshId: MeshId
  readonly whole: Owner
}

/** An append that counts against quotas until its commit has an outcome. */
interface CountedAppend {
  readonly from: { readonly mesh: MeshQuota; readonly peer: { readonly user: PeerNo } }
  readonly to: Owner
  readonly byteCount: number
}

export class Quotas {
  private readonly mailboxes: Mailboxes
  private readonly meshes: Mailboxes

  constructor(limits: QuotaLimits, measure: Measure) {
    this.mailboxes = new Mailboxes(limits.mailbox, measure)
    this.meshes = new Mailboxes(limits.mesh, (meshId) => measure(meshId, 'mesh'), MEASURE_MESH_EVERY_MS)
  }

  /** Returns the quota that one more envelope from this user would exceed, or null. */
  exceeded({ meshId, whole }: MeshQuota, to: Owner, sender: PeerNo, nowMs: Millis): 'meshFull' | 'mailboxFull' | null {
    const isMeshFull = this.meshes.isFull(meshId, whole, sender, nowMs)
    if (this.mailboxes.isFull(meshId, to, sender, nowMs)) return 'mailboxFull'
    return isMeshFull ? 'meshFull' : null
  }

  add({ from: { mesh, peer }, to, byteCount }: CountedAppend, nowMs: Millis): void {
    const sent = { sender: peer.user, byteCount }
    this.mailboxes.add(mesh.meshId, to, sent, nowMs)
    this.meshes.add(mesh.meshId, mesh.whole, sent, nowMs)
  }

  /** Call once the append's commit has succeeded or failed. */
  landed({ from: { mesh, peer }, to, byteCount }: CountedAppend): void {
    const sent = { sender: peer.user, byteCount }
    this.mailboxes.landed(to, sent)
    this.meshes.landed(mesh.whole, sent)
  }

  /** `owner`: a recipient, or the whole mesh (`MeshQuota.whole`). `found` is null if the database did not reply. */
  measured(owner: Owner, found: readonly SenderBacklog[] | null): void {
    this.mailboxes.measured(owner, found)
  }
}
