/**
 * What may wait: for one recipient (`mailboxes.ts`), and in a mesh as a whole, which is counted like one large mailbox of
 * one sender. A look at a mesh reads a row for each delivery that waits in it, so it comes after a quarter of the quota, and
 * at a full one four times a minute.
 */
import type { Measured } from '@sealpost/protocol'
import type { MeshId, Millis, PeerNo } from '@sealpost/std'
import type { Effects } from './effects.ts'
import type { EngineLimits } from './limits.ts'
import { Mailboxes, type MailboxLimits, type Owner } from './mailboxes.ts'
import { EVERYBODY, type Mesh, type Roster } from './roster.ts'
import type { RoutedAppend } from './routed-append.ts'

/** Of a mesh: what waits in it at most. */
export type MeshLimits = Pick<MailboxLimits, 'countMax' | 'bytesMax'>

const LOOK_AT_MESH_EVERY_MS = 15_000

export class Quotas {
  private readonly mailboxes: Mailboxes
  private readonly meshes: Mailboxes
  private readonly roster: Roster

  constructor(limits: Pick<EngineLimits, 'mailbox' | 'mesh'>, effects: Effects, roster: Roster) {
    this.roster = roster
    this.mailboxes = new Mailboxes(limits.mailbox, (meshId, recipient) => effects.measure(meshId, recipient))
    const ofMesh = limits.mesh && { ...limits.mesh, perSenderMax: Number.POSITIVE_INFINITY }
    this.meshes = new Mailboxes(ofMesh, (meshId) => effects.measureMesh(meshId), LOOK_AT_MESH_EVERY_MS)
  }

  /** Whether one more of this sender is one too many, for its recipient or for the mesh. */
  areFull({ meshId, whole }: Mesh, to: Owner, sender: PeerNo, nowMs: Millis): boolean {
    const isMeshFull = this.meshes.isFull(meshId, whole, EVERYBODY, nowMs)
    return this.mailboxes.isFull(meshId, to, sender, nowMs) || isMeshFull
  }

  /** It goes to the queue, to wait there. */
  add({ from: { mesh }, to, sender, byteCount }: RoutedAppend, nowMs: Millis): void {
    this.mailboxes.add(mesh.meshId, to, { sender, byteCount }, nowMs)
    this.meshes.add(mesh.meshId, mesh.whole, { sender: EVERYBODY, byteCount }, nowMs)
  }

  /** Its commit was answered, or failed. */
  landed({ from: { mesh }, to, sender, byteCount }: RoutedAppend): void {
    this.mailboxes.landed(to, { sender, byteCount })
    this.meshes.landed(mesh.whole, { sender: EVERYBODY, byteCount })
  }

  measured(meshId: MeshId, peer: PeerNo, found: readonly Measured[] | null): void {
    const mesh = this.roster.find(meshId)
    const owner = mesh?.byNo.get(peer) ?? mesh?.pools.numbered(peer)
    if (owner) this.mailboxes.measured(owner, found)
  }

  meshMeasured(meshId: MeshId, found: Omit<Measured, 'sender'> | null): void {
    const mesh = this.roster.find(meshId)
    if (mesh) this.meshes.measured(mesh.whole, found && [{ ...found, sender: EVERYBODY }])
  }
}
