/**
 * Contains the steps of a move. Each step is one transaction in one cell. `mesh-move.ts` defines their order;
 * docs/adr/0007-moving-a-mesh.md explains why negative numbers freeze a mesh.
 */

import type { StreamingConnection } from '@sealpost/pg'
import type { MeshId, Millis } from '@sealpost/std'
import type { AuditAction } from '@sealpost/store'
import { type CopiedMesh, copyMesh } from './copy.ts'

export type MovePhase = 'frozen' | 'copied' | 'left' | 'arrived' | 'done' | 'undone'

export interface MeshLocation {
  readonly name: string
  readonly isFrozen: boolean
  readonly movedTo: string | null
  readonly frozenMs: Millis
  readonly move: MoveRow | null
}

export interface MoveRow {
  readonly moveId: string
  readonly side: 'source' | 'destination'
  readonly phase: MovePhase
  readonly cell: string
  readonly rows: number | null
  readonly pauseMs: Millis | null
}

/** A move, with the other cell's name. */
export interface MoveRef {
  readonly meshId: MeshId
  readonly moveId: string
  readonly cell: string
}

/** Returns null if the mesh does not exist in this cell. */
export async function readLocation(connection: StreamingConnection, meshId: MeshId): Promise<MeshLocation | null> {
  const [row] = await connection.run<Omit<MeshLocation, 'move'> & Partial<MoveRow>>(
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
 * Freezes the mesh, whose data this cell then no longer changes. Locks sessions, then marks, then spaces, in the
 * brokers' order, to wait for their transactions.
 * @returns false if the mesh is not active here
 */
export function freeze(source: StreamingConnection, { meshId, moveId, cell }: MoveRef): Promise<boolean> {
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
    // Lock first, so that the update sees the commits that it waited for.
    await source.run(locked('session', 'peer_no'), [meshId])
    await source.run(`update session set ${flipped('epoch')} where mesh_id = $1::uuid and epoch >= 0`, [meshId])
    await source.run(locked('sender_mark', 'sender'), [meshId])
    await source.run(`update sender_mark set ${flipped('version')} where mesh_id = $1::uuid and version >= 0`, [meshId])
    await source.run(locked('space', 'space_id'), [meshId])
    await source.run(`update space set ${flipped('last_seq')} where mesh_id = $1::uuid and last_seq >= 0`, [meshId])
    return true
  })
}

/** Copies the mesh, frozen, in one transaction. */
export function copyAcross(
  source: StreamingConnection,
  destination: StreamingConnection,
  ref: MoveRef,
  name: string,
): Promise<CopiedMesh> {
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

/** Returns the incarnation that the mesh's peers see. */
async function incarnationIn(source: StreamingConnection, meshId: MeshId): Promise<string> {
  const [row] = await source.run<{ incarnation: string }>(
    `select coalesce(case when m.lineage_in = here.incarnation then m.lineage end, here.incarnation) as incarnation
     from mesh m, (select note_origin(false) as incarnation) here where m.mesh_id = $1::uuid`,
    [meshId],
  )
  return row!.incarnation
}

/** Commits the move, after which the source can't become active again. @returns false if its phase was not `copied` */
export function leave(source: StreamingConnection, { meshId, moveId, cell }: MoveRef): Promise<boolean> {
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

/** Makes the copy active. @returns false if there is no copy from this move */
export function arrive(destination: StreamingConnection, { meshId, moveId, cell }: MoveRef): Promise<boolean> {
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

export function undoFreeze(source: StreamingConnection, ref: MoveRef): Promise<void> {
  return source.transaction(async () => {
    await thaw(source, ref.meshId)
    await setPhase(source, ref, { phase: 'undone' })
    await audit(source, 'mesh.stay', ref)
  })
}

/** Marks a copy as never to become active, before its rows are deleted. */
export function discardCopy(destination: StreamingConnection, ref: MoveRef): Promise<void> {
  return destination.transaction(async () => {
    await destination.run(`update mesh set moved_to = $2 where mesh_id = $1::uuid and frozen_at is not null`, [
      ref.meshId,
      ref.cell,
    ])
    await setPhase(destination, ref, { phase: 'undone' })
  })
}

export async function setPhase(
  connection: StreamingConnection,
  { meshId, moveId }: MoveRef,
  { phase, rows, pauseMs }: { phase: MovePhase; rows?: number; pauseMs?: Millis },
): Promise<void> {
  await connection.run(
    `update mesh_move set phase = $3, rows = coalesce($4::bigint, rows), pause_ms = coalesce($5::bigint, pause_ms)
     where mesh_id = $1::uuid and move_id = $2::uuid`,
    [meshId, moveId, phase, rows ?? null, pauseMs === undefined ? null : Math.round(pauseMs)],
  )
}

async function thaw(connection: StreamingConnection, meshId: MeshId): Promise<void> {
  await connection.run(`update mesh set frozen_at = null, moved_to = null where mesh_id = $1::uuid`, [meshId])
  await connection.run(`update session set ${flipped('epoch')} where mesh_id = $1::uuid and epoch < 0`, [meshId])
  await connection.run(`update sender_mark set ${flipped('version')} where mesh_id = $1::uuid and version < 0`, [
    meshId,
  ])
  await connection.run(`update space set ${flipped('last_seq')} where mesh_id = $1::uuid and last_seq < 0`, [meshId])
}

/** Audits the change in its transaction. The subject is the other cell. */
async function audit(
  connection: StreamingConnection,
  action: AuditAction,
  { meshId, cell }: Omit<MoveRef, 'moveId'>,
): Promise<void> {
  await connection.run(
    `insert into admin_audit (actor, action, mesh_id, subject) values ('database:' || session_user, $1, $2::uuid, $3)`,
    [action, meshId, cell],
  )
}

/** Maps n to -1 - n, which is its own inverse. */
const flipped = (column: string) => `${column} = -1 - ${column}`

const locked = (table: string, order: string) =>
  `select count(*) from (select 1 from ${table} where mesh_id = $1::uuid order by ${order} for update) held`
