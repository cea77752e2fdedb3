/**
 * What may wait: for one recipient (`mailboxes.ts`), and in a mesh as a whole, which is counted like one large mailbox that
 * also holds the dead letters. The sender that has a share of either is the user: its devices have one share together. A look at a mesh reads a row for each of them, so it comes after a quarter of the quota, and
 * at a full one four times a minute.
 */
import type { Measured } from '@sealpost/protocol'
import type { MeshId, Millis, PeerNo } from '@sealpost/std'
import type { Mesh, MeshRegistry } from '../directory/meshes.ts'
import type { Effects } from '../effects.ts'
import type { EngineLimits } from '../limits.ts'
import { Mailboxes, type Owner } from './mailboxes.ts'
import type { RoutedAppend } from './routed-append.ts'

const LOOK_AT_MESH_EVERY_MS = 15_000

export class Quotas {
  private readonly mailboxes: Mailboxes
  private readonly meshes: Mailboxes
  private readonly roster: MeshRegistry

  constructor(limits: Pick<EngineLimits, 'mailbox' | 'mesh'>, effects: Effects, roster: MeshRegistry) {
    this.roster = roster
    this.mailboxes = new Mailboxes(limits.mailbox, (meshId, recipient) => effects.measure(meshId, recipient))
    this.meshes = new Mailboxes(limits.mesh, (meshId) => effects.measure(meshId, 'mesh'), LOOK_AT_MESH_EVERY_MS)
  }

  /** Which quota one more envelope of this user would exceed; `null`: none. */
  exceeded({ meshId, whole }: Mesh, to: Owner, sender: PeerNo, nowMs: Millis): 'meshFull' | 'mailboxFull' | null {
    const isMeshFull = this.meshes.isFull(meshId, whole, sender, nowMs)
    if (this.mailboxes.isFull(meshId, to, sender, nowMs)) return 'mailboxFull'
    return isMeshFull ? 'meshFull' : null
  }

  /** It goes to the queue, to wait there. */
  add({ from: { mesh, peer }, to, byteCount }: RoutedAppend, nowMs: Millis): void {
    const sender = peer.user
    this.mailboxes.add(mesh.meshId, to, { sender, byteCount }, nowMs)
    this.meshes.add(mesh.meshId, mesh.whole, { sender, byteCount }, nowMs)
  }

  /** Its commit was answered, or failed. */
  landed({ from: { mesh, peer }, to, byteCount }: RoutedAppend): void {
    const sender = peer.user
    this.mailboxes.landed(to, { sender, byteCount })
    this.meshes.landed(mesh.whole, { sender, byteCount })
  }

  measured(meshId: MeshId, scope: PeerNo | 'mesh', found: readonly Measured[] | null): void {
    const mesh = this.roster.find(meshId)
    if (!mesh) return
    if (scope === 'mesh') return this.meshes.measured(mesh.whole, found)
    const owner = mesh.byNo.get(scope) ?? mesh.pools.numbered(scope)
    if (owner) this.mailboxes.measured(owner, found)
  }
}
