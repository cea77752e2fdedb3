/**
 * A mesh moves from one cell (a Postgres with its brokers) to another, with all that is queued, and never is it active
 * in both or lost. The phases stand in `mesh_move`, in each database for itself; each step is one transaction of one
 * side, and what was interrupted goes on from the phase that is written down.
 *
 * | source      | destination | then                                                                              |
 * |-------------|-------------|-----------------------------------------------------------------------------------|
 * | active      |             | freeze: whatever would change the mesh is refused by its own statement              |
 * | `frozen`    |             | copy everything, frozen as it is, in one transaction                                |
 * | `copied`    | `copied`    | up to here it can be undone: the source is thawed                                   |
 * | `left`      | `copied`    | the turning point, written in the source: it will not be active again by this move  |
 * | `left`      | `arrived`   | active in the destination                                                           |
 * | `arrived`   | `arrived`   | the rows that were left behind go                                                   |
 * | `done`      | `arrived`   | the source knows where the mesh lives, and nothing else of it                       |
 */
import type { MeshId, Millis } from '@sealpost/std'
import { DatabaseError } from './database-error.ts'
import { clearMesh } from './mesh-copy.ts'
import {
  arrive,
  copyAcross,
  findPlace,
  freeze,
  leave,
  type MeshPlace,
  type MovePhase,
  type MoveRef,
  renounce,
  setPhase,
  stay,
} from './mesh-move-steps.ts'
import { MoverLink } from './mover-link.ts'

/** A cell by its name, and its database as the owner of the tables. */
export interface MoveEnd {
  readonly cell: string
  readonly databaseUrl: string
}

export interface MoveOrder {
  readonly meshId: MeshId
  readonly from: MoveEnd
  readonly to: MoveEnd
  /** Told of each phase of the source once it is written down. */
  readonly onPhase?: (phase: MovePhase) => void
}

export interface MoveReport {
  readonly moveId: string
  /** A move that had begun before was brought to its end. */
  readonly isResumed: boolean
  /** Of all tables. */
  readonly rows: number
  /** From the freeze to the moment when the mesh was active in the destination, by the source's clock. */
  readonly pauseMs: Millis
}

const CLOCKS_APART_MAX_MS = 5_000
const FREEZE_TRIES = 5

/**
 * Moves the mesh, or brings a move of it to the same cell to its end.
 * @throws DatabaseError as `openDatabase`, and `move_in_use` (another mover), `mesh_unknown`, `mesh_elsewhere` (the source
 *   is not where it lives), `mesh_exists` (the destination has one of this id), `move_other` (a move to another cell has
 *   begun), `cells_differ` (their schemas), `clocks_differ`
 */
export async function moveMesh(order: MoveOrder): Promise<MoveReport> {
  const source = await MoverLink.openFor(order.from.databaseUrl, order.meshId)
  try {
    const destination = await MoverLink.openFor(order.to.databaseUrl, order.meshId)
    try {
      await compareCells(source, destination)
      return await new Move(source, destination, order).run()
    } finally {
      await destination.close()
    }
  } finally {
    await source.close()
  }
}

export interface UndoReport {
  /** There was nothing to undo. */
  readonly wasActive: boolean
  /** False: the destination did not answer. What lies there of the mesh will never be active, and goes with the next move. */
  readonly isCleared: boolean
}

/**
 * The mesh is active again where it was. Not behind the turning point.
 * @throws DatabaseError as `moveMesh`, and `move_past_undo`
 */
export async function undoMeshMove(order: MoveOrder): Promise<UndoReport> {
  const source = await MoverLink.openFor(order.from.databaseUrl, order.meshId)
  try {
    const place = known(await findPlace(source, order.meshId), order.from.cell)
    if (!place.isFrozen) return { wasActive: true, isCleared: true }
    const move = ownMove(place, order)
    if (move.phase !== 'frozen' && move.phase !== 'copied')
      throw new DatabaseError('move_past_undo', 'The mesh has left: bring the move to its end, and move it back then')
    const ref = { meshId: order.meshId, moveId: move.moveId, cell: order.to.cell }
    const isCleared = await clearDestination(order, ref.moveId)
    await stay(source, ref)
    order.onPhase?.('undone')
    return { wasActive: false, isCleared }
  } finally {
    await source.close()
  }
}

/** The source alone decides; so a destination that is gone does not keep the mesh from being used again. */
async function clearDestination(order: MoveOrder, moveId: string): Promise<boolean> {
  let destination: MoverLink | undefined
  try {
    destination = await MoverLink.openFor(order.to.databaseUrl, order.meshId)
    const place = await findPlace(destination, order.meshId)
    if (place?.move?.moveId !== moveId) return true
    await renounce(destination, { meshId: order.meshId, moveId, cell: order.from.cell })
    await clearMesh(destination, order.meshId)
    return true
  } catch (error) {
    if (error instanceof DatabaseError && error.code !== 'move_in_use') return false
    throw error
  } finally {
    await destination?.close()
  }
}

class Move {
  private readonly source: MoverLink
  private readonly destination: MoverLink
  private readonly order: MoveOrder
  private rows = 0
  private pauseMs: Millis = 0

  constructor(source: MoverLink, destination: MoverLink, order: MoveOrder) {
    this.source = source
    this.destination = destination
    this.order = order
  }

  async run(): Promise<MoveReport> {
    const { meshId, to, from } = this.order
    const place = known(await findPlace(this.source, meshId), from.cell)
    const isResumed = place.isFrozen
    const moveId = isResumed ? ownMove(place, this.order).moveId : crypto.randomUUID().replaceAll('-', '')
    const ref: MoveRef = { meshId, moveId, cell: to.cell }
    if (!isResumed) await this.freeze(ref)
    let phase: MovePhase = isResumed ? ownMove(place, this.order).phase : 'frozen'
    this.rows = place.move?.rows ?? 0
    this.pauseMs = place.move?.pauseMs ?? 0
    this.order.onPhase?.(phase)
    while (phase !== 'done') {
      phase = await this.stepFrom(phase, ref, place.name)
      this.order.onPhase?.(phase)
    }
    return { moveId, isResumed, rows: this.rows, pauseMs: this.pauseMs }
  }

  private async stepFrom(phase: MovePhase, ref: MoveRef, name: string): Promise<MovePhase> {
    switch (phase) {
      case 'frozen':
        return this.copy(ref, name)
      case 'copied':
        return this.leave(ref)
      case 'left':
        return this.arrive(ref)
      case 'arrived':
        return this.clean(ref)
      default:
        throw new DatabaseError('move_other', `The move stands at "${phase}", from where nothing follows`)
    }
  }

  /** What is in the way is found before anybody has to wait. */
  private async freeze(ref: MoveRef): Promise<void> {
    await this.makeRoom(ref)
    for (let tries = 1; ; tries++) {
      try {
        if (await freeze(this.source, ref)) return
        throw new DatabaseError('mesh_elsewhere', 'The mesh is frozen since a moment ago')
      } catch (error) {
        // A lock that was not to be had, or two that waited for each other.
        if (tries === FREEZE_TRIES || !(error instanceof DatabaseError && error.code === 'db_not_done')) throw error
      }
    }
  }

  private async copy(ref: MoveRef, name: string): Promise<MovePhase> {
    const place = await this.makeRoom(ref)
    if (place?.move?.moveId === ref.moveId) this.rows = place.move.rows ?? 0
    else {
      const to = { ...ref, cell: this.order.from.cell }
      this.rows = (await copyAcross(this.source, this.destination, to, name)).rows
    }
    await setPhase(this.source, ref, { phase: 'copied', rows: this.rows })
    return 'copied'
  }

  /** The destination may hold a copy by this very move, or leftovers, which go. */
  private async makeRoom(ref: MoveRef): Promise<MeshPlace | null> {
    const place = await findPlace(this.destination, ref.meshId)
    if (!place || place.move?.moveId === ref.moveId) return place
    if (!place.isFrozen)
      throw new DatabaseError('mesh_exists', `The cell "${this.order.to.cell}" has a mesh of this id already`)
    if (place.move && place.movedTo === null)
      await renounce(this.destination, { ...ref, moveId: place.move.moveId, cell: this.order.from.cell })
    await clearMesh(this.destination, ref.meshId)
    return place
  }

  private async leave(ref: MoveRef): Promise<MovePhase> {
    const place = await findPlace(this.destination, ref.meshId)
    if (place?.move?.moveId !== ref.moveId || place.move.phase !== 'copied')
      throw new DatabaseError('move_other', `The copy in the cell "${this.order.to.cell}" is gone: undo the move`)
    if (!(await leave(this.source, ref))) throw new DatabaseError('move_other', 'The move stands elsewhere by now')
    return 'left'
  }

  private async arrive(ref: MoveRef): Promise<MovePhase> {
    if (!(await arrive(this.destination, { ...ref, cell: this.order.from.cell }))) {
      const there = await findPlace(this.destination, ref.meshId)
      if (there?.move?.moveId !== ref.moveId || there.isFrozen)
        // else it arrived before the mover was interrupted
        throw new DatabaseError(
          'move_lost',
          `The copy in the cell "${this.order.to.cell}" is gone; the source still has it all`,
        )
    }
    const here = await findPlace(this.source, ref.meshId)
    this.pauseMs = Math.round(here?.frozenMs ?? 0)
    await setPhase(this.source, ref, { phase: 'arrived', pauseMs: this.pauseMs })
    return 'arrived'
  }

  private async clean(ref: MoveRef): Promise<MovePhase> {
    await clearMesh(this.source, ref.meshId)
    await setPhase(this.source, ref, { phase: 'done' })
    return 'done'
  }
}

/** Text of one and the other, and their clocks: expiry, leases and delays go along as the instants they are. */
async function compareCells(source: MoverLink, destination: MoverLink): Promise<void> {
  const facts = (link: MoverLink) =>
    link.run<{ version: string; nowMs: number }>(
      `select max(created_at)::text as version, (extract(epoch from clock_timestamp()) * 1000)::float8 as "nowMs"
       from drizzle.__drizzle_migrations`,
    )
  const [[here], [there]] = await Promise.all([facts(source), facts(destination)])
  if (here?.version !== there?.version)
    throw new DatabaseError(
      'cells_differ',
      'The databases are not at the same version: run `sealpost db migrate` in both',
    )
  if (Math.abs(here!.nowMs - there!.nowMs) > CLOCKS_APART_MAX_MS)
    throw new DatabaseError(
      'clocks_differ',
      `The clocks of the databases are more than ${CLOCKS_APART_MAX_MS} ms apart`,
    )
}

function known(place: MeshPlace | null, cell: string): MeshPlace {
  if (!place) throw new DatabaseError('mesh_unknown', `The cell "${cell}" has no such mesh`)
  return place
}

/** Of a mesh that is frozen: the move that froze it, which must be the one that is asked for. */
function ownMove({ move, movedTo }: MeshPlace, { to }: MoveOrder) {
  if (move?.side !== 'source' || move.phase === 'undone' || (move.phase === 'done' && movedTo !== to.cell))
    throw new DatabaseError(
      'mesh_elsewhere',
      `The mesh does not live here${movedTo ? `, but in the cell "${movedTo}"` : ''}`,
    )
  if (move.cell !== to.cell)
    throw new DatabaseError('move_other', `A move of this mesh to the cell "${move.cell}" has begun`)
  return move
}
