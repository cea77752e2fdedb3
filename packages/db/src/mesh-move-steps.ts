/**
 * The statements of a move, each one transaction on one side. Which follows which is in `mesh-move.ts`; why a negative
 * number freezes a mesh, in docs/adr/0007-moving-a-mesh.md.
 */
import type { MeshId, Millis } from '@sealpost/std'
import type { AuditedAction } from './audit.ts'
import { type CopiedMesh, copyMesh } from './mesh-copy.ts'
import type { MoverLink } from './mover-link.ts'

export type MovePhase = 'frozen' | 'copied' | 'left' | 'arrived' | 'done' | 'undone'

/** A mesh as one side has it. */
export interface MeshPlace {
  readonly name: string
  readonly isFrozen: boolean
  readonly movedTo: string | null
  /** How long it has been frozen. */
  readonly frozenMs: Millis
  readonly move: MoveRow | null
}

export interface MoveRow {
  readonly moveId: string
  /** What this side is of the move. */
  readonly side: 'source' | 'destination'
  readonly phase: MovePhase
  /** The other side. */
  readonly cell: string
  readonly rows: number | null
  readonly pauseMs: Millis | null
}

/** One move: whose, which, and the name of the other side. */
export interface MoveRef {
  readonly meshId: MeshId
  readonly moveId: string
  readonly cell: string
}

/** `null`: no such mesh here. */
export async function findPlace(link: MoverLink, meshId: MeshId): Promise<MeshPlace | null> {
  const [row] = await link.run<Omit<MeshPlace, 'move'> & Partial<MoveRow>>(
    `select m.name, m.frozen_at is not null as "isFrozen", m.moved_to as "movedTo",
       coalesce(extract(epoch from clock_timestamp() - m.frozen_at) * 1000, 0)::float8 as "frozenMs",
       replace(v.move_id::text, '-', '') as "moveId", v.side, v.phase, v.cell, v.rows::float8 as rows, v.pause_ms::float8 as "pauseMs"
     from mesh m left join mesh_move v using (mesh_id) where m.mesh_id = $1::uuid`,
    [meshId],
  )
  if (!row) return null
  const { name, isFrozen, movedTo, frozenMs, moveId, side, phase, cell, rows = null, pauseMs = null } = row
  const move = moveId && side && phase && cell ? { moveId, side, phase, cell, rows, pauseMs } : null
  return { name, isFrozen, movedTo, frozenMs, move }
}

/**
 * From its commit on nothing of the mesh can be stored, claimed, opened or changed here. Whatever was under way is
 * waited for: sessions before marks before spaces, in the order in which brokers lock them.
 * @returns false: it is not active here
 */
export function freeze(source: MoverLink, { meshId, moveId, cell }: MoveRef): Promise<boolean> {
  return source.transaction(async () => {
    const frozen = await source.run(
      `update mesh set frozen_at = clock_timestamp() where mesh_id = $1::uuid and frozen_at is null returning 1`,
      [meshId],
    )
    if (frozen.length === 0) return false
    await source.run(
      `insert into mesh_move (mesh_id, move_id, side, phase, cell) values ($1::uuid, $2::uuid, 'source', 'frozen', $3)
       on conflict (mesh_id) do update set move_id = excluded.move_id, side = excluded.side, phase = excluded.phase,
         cell = excluded.cell, rows = null, pause_ms = null`,
      [meshId, moveId, cell],
    )
    await audit(source, 'mesh.freeze', { meshId, cell })
    // Locked first, and changed by a statement that sees what those it waited for did.
    await source.run(locked('session', 'peer_no'), [meshId])
    await source.run(`update session set ${turned('epoch')} where mesh_id = $1::uuid and epoch >= 0`, [meshId])
    await source.run(locked('sender_mark', 'sender'), [meshId])
    await source.run(`update sender_mark set ${turned('version')} where mesh_id = $1::uuid and version >= 0`, [meshId])
    await source.run(locked('space', 'space_id'), [meshId])
    await source.run(`update space set ${turned('last_seq')} where mesh_id = $1::uuid and last_seq >= 0`, [meshId])
    return true
  })
}

/** The mesh as it is, frozen, in one transaction; what lay there of it from before goes first. */
export function copyAcross(source: MoverLink, destination: MoverLink, ref: MoveRef, name: string): Promise<CopiedMesh> {
  const { meshId, moveId, cell } = ref
  return destination.transaction(async () => {
    await destination.run(
      `insert into mesh (mesh_id, name, lineage, lineage_in) values ($1::uuid, $2, $3::uuid, note_origin(false))
       on conflict (mesh_id) do update set name = excluded.name, frozen_at = null, moved_to = null,
         lineage = excluded.lineage, lineage_in = excluded.lineage_in`,
      [meshId, name, await incarnationIn(source, meshId)],
    )
    const copied = await copyMesh(source, destination, meshId)
    await destination.run(`update mesh set frozen_at = clock_timestamp() where mesh_id = $1::uuid`, [meshId])
    await destination.run(
      `insert into mesh_move (mesh_id, move_id, side, phase, cell, rows)
       values ($1::uuid, $2::uuid, 'destination', 'copied', $3, $4)
       on conflict (mesh_id) do update set move_id = excluded.move_id, side = excluded.side, phase = excluded.phase,
         cell = excluded.cell, rows = excluded.rows, pause_ms = null`,
      [meshId, moveId, cell, copied.rows],
    )
    return copied
  })
}

/** As the peers of the mesh know it. */
async function incarnationIn(source: MoverLink, meshId: MeshId): Promise<string> {
  const [row] = await source.run<{ incarnation: string }>(
    `select coalesce(case when m.lineage_in = here.incarnation then m.lineage end, here.incarnation) as incarnation
     from mesh m, (select note_origin(false) as incarnation) here where m.mesh_id = $1::uuid`,
    [meshId],
  )
  return row!.incarnation
}

/** The turning point: the source will not be active again by this move. @returns false: it was not at `copied` */
export function leave(source: MoverLink, { meshId, moveId, cell }: MoveRef): Promise<boolean> {
  return source.transaction(async () => {
    const left = await source.run(
      `with moved as (
         update mesh_move set phase = 'left' where mesh_id = $1::uuid and move_id = $2::uuid and phase = 'copied' returning 1
       ) update mesh set moved_to = $3 where mesh_id = $1::uuid and exists (select from moved) returning 1`,
      [meshId, moveId, cell],
    )
    if (left.length === 0) return false
    await audit(source, 'mesh.leave', { meshId, cell })
    return true
  })
}

/** The mesh is active here from the commit on. @returns false: there was no copy to be made active */
export function arrive(destination: MoverLink, { meshId, moveId, cell }: MoveRef): Promise<boolean> {
  return destination.transaction(async () => {
    const arrived = await destination.run(
      `update mesh_move set phase = 'arrived' where mesh_id = $1::uuid and move_id = $2::uuid and phase = 'copied' returning 1`,
      [meshId, moveId],
    )
    if (arrived.length === 0) return false
    await thaw(destination, meshId)
    await destination.run(`update session set shard = null where mesh_id = $1::uuid`, [meshId])
    await audit(destination, 'mesh.arrive', { meshId, cell })
    return true
  })
}

/** The mesh is active here again, as if nothing had been. */
export function stay(source: MoverLink, ref: MoveRef): Promise<void> {
  return source.transaction(async () => {
    await thaw(source, ref.meshId)
    await setPhase(source, ref, { phase: 'undone' })
    await audit(source, 'mesh.stay', ref)
  })
}

/** A copy that is not wanted will never be active: the row says so before its rows go. */
export function renounce(destination: MoverLink, ref: MoveRef): Promise<void> {
  return destination.transaction(async () => {
    await destination.run(`update mesh set moved_to = $2 where mesh_id = $1::uuid and frozen_at is not null`, [
      ref.meshId,
      ref.cell,
    ])
    await setPhase(destination, ref, { phase: 'undone' })
  })
}

export async function setPhase(
  link: MoverLink,
  { meshId, moveId }: MoveRef,
  { phase, rows, pauseMs }: { phase: MovePhase; rows?: number; pauseMs?: Millis },
): Promise<void> {
  await link.run(
    `update mesh_move set phase = $3, rows = coalesce($4::bigint, rows), pause_ms = coalesce($5::bigint, pause_ms)
     where mesh_id = $1::uuid and move_id = $2::uuid`,
    [meshId, moveId, phase, rows ?? null, pauseMs === undefined ? null : Math.round(pauseMs)],
  )
}

async function thaw(link: MoverLink, meshId: MeshId): Promise<void> {
  await link.run(`update mesh set frozen_at = null, moved_to = null where mesh_id = $1::uuid`, [meshId])
  await link.run(`update session set ${turned('epoch')} where mesh_id = $1::uuid and epoch < 0`, [meshId])
  await link.run(`update sender_mark set ${turned('version')} where mesh_id = $1::uuid and version < 0`, [meshId])
  await link.run(`update space set ${turned('last_seq')} where mesh_id = $1::uuid and last_seq < 0`, [meshId])
}

/** In the transaction of the change. The subject is the other cell. */
async function audit(link: MoverLink, action: AuditedAction, { meshId, cell }: Omit<MoveRef, 'moveId'>): Promise<void> {
  await link.run(
    `insert into admin_audit (actor, action, mesh_id, subject) values ('database:' || session_user, $1, $2::uuid, $3)`,
    [action, meshId, cell],
  )
}

/** Twice is nothing: 0 becomes -1, and -1 becomes 0. */
const turned = (column: string) => `${column} = -1 - ${column}`

const locked = (table: string, order: string) =>
  `select count(*) from (select 1 from ${table} where mesh_id = $1::uuid order by ${order} for update) held`
