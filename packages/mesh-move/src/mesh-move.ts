/**
 * Moves a mesh from one cell (a Postgres with its brokers) to another, including its queue. The mesh is never active in
 * both cells, and is never lost. The `mesh_move` row of each cell contains the phase. Each step is one transaction in
 * one cell, and an interrupted move resumes from its phase.
 *
 * | source      | destination | next step                                                                           |
 * |-------------|-------------|-----------------------------------------------------------------------------------|
 * | active      |             | freeze: every statement that would change the mesh refuses                          |
 * | `frozen`    |             | copy everything in one transaction                                                  |
 * | `copied`    | `copied`    | the last point at which the move can be undone                                      |
 * | `left`      | `copied`    | committed: the source can't become active again                                     |
 * | `left`      | `arrived`   | active in the destination                                                           |
 * | `arrived`   | `arrived`   | delete the rows in the source                                                       |
 * | `done`      | `arrived`   | the source only knows where the mesh lives                                          |
 */
import { type Database, DatabaseError, type StreamingConnection } from '@sealpost/pg'
import { type MeshId, type Millis, OperatingError } from '@sealpost/std'
import { z } from 'zod'
import { clearMesh, openLocked, openMoveConnection } from './copy.ts'
import {
  arrive,
  copyAcross,
  discardCopy,
  freeze,
  leave,
  type MeshLocation,
  type MovePhase,
  type MoveRef,
  readLocation,
  setPhase,
  undoFreeze,
} from './steps.ts'

export { readStalledMoves, type StalledMoves } from './copy.ts'
export type { MeshLocation, MovePhase, MoveRow } from './steps.ts'

/** A cell, and its database's URL for the owner of the tables. */
interface MoveEndpoint {
  readonly cell: string
  readonly databaseUrl: string
}

export interface MoveOrder {
  readonly meshId: MeshId
  readonly from: MoveEndpoint
  readonly to: MoveEndpoint
  /** Called with each phase of the source, once committed. */
  readonly onPhase?: (phase: MovePhase) => void
}

export interface MoveReport {
  readonly moveId: string
  /** Whether this call completed an interrupted move. */
  readonly isResumed: boolean
  readonly rows: number
  /** How long the mesh was inactive, by the source's clock. */
  readonly pauseMs: Millis
}

const CLOCKS_APART_MAX_MS = 5_000
const FREEZE_TRIES = 5

/**
 * Moves the mesh, or completes an interrupted move to the same cell.
 * @throws DatabaseError with the codes of `openDatabase`, and `move_in_use` (another mover), `mesh_unknown`,
 * `mesh_elsewhere` (the mesh does not live in the source), `mesh_exists` (the destination has a mesh with this id),
 * `move_other` (a move to another cell has begun), `cells_differ` (the schemas differ), `clocks_differ`
 */
export async function moveMesh(order: MoveOrder): Promise<MoveReport> {
  const source = await openLocked(order.from.databaseUrl, order.meshId)
  try {
    const destination = await openLocked(order.to.databaseUrl, order.meshId)
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

interface UndoReport {
  /** Whether there was nothing to undo, because the mesh was active. */
  readonly wasActive: boolean
  /** False if the destination did not reply. Its copy never becomes active, and the next move deletes it. */
  readonly isCleared: boolean
}

/**
 * Undoes an uncommitted move: makes the mesh active in the source again.
 * @throws DatabaseError with the codes of `moveMesh`, and `move_past_undo`
 */
export async function undoMeshMove(order: MoveOrder): Promise<UndoReport> {
  const source = await openLocked(order.from.databaseUrl, order.meshId)
  try {
    const location = requireMesh(await readLocation(source, order.meshId), order.from.cell)
    if (!location.isFrozen) return { wasActive: true, isCleared: true }
    const move = requireOwnMove(location, order)
    if (move.phase !== 'frozen' && move.phase !== 'copied')
      throw new DatabaseError('move_past_undo', 'The move is committed: finish it, then move the mesh back')
    const ref = { meshId: order.meshId, moveId: move.moveId, cell: order.to.cell }
    const isCleared = await clearDestination(order, ref.moveId)
    await undoFreeze(source, ref)
    order.onPhase?.('undone')
    return { wasActive: false, isCleared }
  } finally {
    await source.close()
  }
}

/** Clears the destination if it replies. The source decides, so a destination that is down does not block the undo. */
async function clearDestination(order: MoveOrder, moveId: string): Promise<boolean> {
  let destination: StreamingConnection | undefined
  try {
    destination = await openLocked(order.to.databaseUrl, order.meshId)
    const location = await readLocation(destination, order.meshId)
    if (location?.move?.moveId !== moveId) return true
    await discardCopy(destination, { meshId: order.meshId, moveId, cell: order.from.cell })
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
  readonly #source: StreamingConnection
  readonly #destination: StreamingConnection
  readonly #order: MoveOrder
  #rows = 0
  #pauseMs: Millis = 0

  constructor(source: StreamingConnection, destination: StreamingConnection, order: MoveOrder) {
    this.#source = source
    this.#destination = destination
    this.#order = order
  }

  async run(): Promise<MoveReport> {
    const { meshId, to, from } = this.#order
    const location = requireMesh(await readLocation(this.#source, meshId), from.cell)
    const isResumed = location.isFrozen
    const moveId = isResumed ? requireOwnMove(location, this.#order).moveId : crypto.randomUUID().replaceAll('-', '')
    const ref: MoveRef = { meshId, moveId, cell: to.cell }
    if (!isResumed) await this.#freeze(ref)
    let phase: MovePhase = isResumed ? requireOwnMove(location, this.#order).phase : 'frozen'
    this.#rows = location.move?.rows ?? 0
    this.#pauseMs = location.move?.pauseMs ?? 0
    this.#order.onPhase?.(phase)
    while (phase !== 'done') {
      phase = await this.#stepFrom(phase, ref, location.name)
      this.#order.onPhase?.(phase)
    }
    return { moveId, isResumed, rows: this.#rows, pauseMs: this.#pauseMs }
  }

  async #stepFrom(phase: MovePhase, ref: MoveRef, name: string): Promise<MovePhase> {
    switch (phase) {
      case 'frozen':
        return this.#copy(ref, name)
      case 'copied':
        return this.#leave(ref)
      case 'left':
        return this.#arrive(ref)
      case 'arrived':
        return this.#clean(ref)
      default:
        throw new DatabaseError('move_other', `The move is in the phase "${phase}", which has no next step`)
    }
  }

  /** Clears the destination before the freeze, so that the freeze is short. */
  async #freeze(ref: MoveRef): Promise<void> {
    await this.#makeRoom(ref)
    for (let tries = 1; ; tries++) {
      try {
        if (await freeze(this.#source, ref)) return
        throw new DatabaseError('mesh_elsewhere', 'Another mover has just frozen the mesh')
      } catch (error) {
        // Retries after lock timeouts and deadlocks.
        if (tries === FREEZE_TRIES || !(error instanceof DatabaseError && error.code === 'db_not_executed')) throw error
      }
    }
  }

  async #copy(ref: MoveRef, name: string): Promise<MovePhase> {
    const location = await this.#makeRoom(ref)
    if (location?.move?.moveId === ref.moveId) this.#rows = location.move.rows ?? 0
    else {
      const to = { ...ref, cell: this.#order.from.cell }
      this.#rows = (await copyAcross(this.#source, this.#destination, to, name)).rows
    }
    await setPhase(this.#source, ref, { phase: 'copied', rows: this.#rows })
    return 'copied'
  }

  /** Keeps a copy of this move, and deletes any other. */
  async #makeRoom(ref: MoveRef): Promise<MeshLocation | null> {
    const location = await readLocation(this.#destination, ref.meshId)
    if (!location || location.move?.moveId === ref.moveId) return location
    if (!location.isFrozen)
      throw new DatabaseError('mesh_exists', `The cell "${this.#order.to.cell}" already has a mesh with this id`)
    if (location.move && location.movedTo === null)
      await discardCopy(this.#destination, { ...ref, moveId: location.move.moveId, cell: this.#order.from.cell })
    await clearMesh(this.#destination, ref.meshId)
    return location
  }

  async #leave(ref: MoveRef): Promise<MovePhase> {
    const location = await readLocation(this.#destination, ref.meshId)
    if (location?.move?.moveId !== ref.moveId || location.move.phase !== 'copied')
      throw new DatabaseError('move_other', `The copy in the cell "${this.#order.to.cell}" is gone: undo the move`)
    if (!(await leave(this.#source, ref)))
      throw new DatabaseError('move_other', 'Another mover has changed the phase of the move')
    return 'left'
  }

  async #arrive(ref: MoveRef): Promise<MovePhase> {
    if (!(await arrive(this.#destination, { ...ref, cell: this.#order.from.cell }))) {
      const there = await readLocation(this.#destination, ref.meshId)
      if (there?.move?.moveId !== ref.moveId || there.isFrozen)
        // the mesh had arrived before the interruption
        throw new DatabaseError(
          'move_lost',
          `The copy in the cell "${this.#order.to.cell}" is gone; the source still has all rows`,
        )
    }
    const here = await readLocation(this.#source, ref.meshId)
    this.#pauseMs = Math.round(here?.frozenMs ?? 0)
    await setPhase(this.#source, ref, { phase: 'arrived', pauseMs: this.#pauseMs })
    return 'arrived'
  }

  async #clean(ref: MoveRef): Promise<MovePhase> {
    await clearMesh(this.#source, ref.meshId)
    await setPhase(this.#source, ref, { phase: 'done' })
    return 'done'
  }
}

/** Compares schemas, and clocks, because expiry, leases and delays are absolute times. */
async function compareCells(source: StreamingConnection, destination: StreamingConnection): Promise<void> {
  const facts = (connection: StreamingConnection) =>
    connection.run<{ version: string; nowMs: number }>(
      `select max(created_at)::text as version, (extract(epoch from clock_timestamp()) * 1000)::float8 as "nowMs"
       from drizzle.__drizzle_migrations`,
    )
  const [[here], [there]] = await Promise.all([facts(source), facts(destination)])
  if (here?.version !== there?.version)
    throw new DatabaseError(
      'cells_differ',
      'The databases have different schema versions: run `sealpost db migrate` on both',
    )
  if (Math.abs(here!.nowMs - there!.nowMs) > CLOCKS_APART_MAX_MS)
    throw new DatabaseError(
      'clocks_differ',
      `The clocks of the databases are more than ${CLOCKS_APART_MAX_MS} ms apart`,
    )
}

function requireMesh(location: MeshLocation | null, cell: string): MeshLocation {
  if (!location) throw new DatabaseError('mesh_unknown', `The cell "${cell}" has no such mesh`)
  return location
}

/** Returns the move that froze the mesh. Throws unless it is this one. */
function requireOwnMove({ move, movedTo }: MeshLocation, { to }: MoveOrder) {
  if (move?.side !== 'source' || move.phase === 'undone' || (move.phase === 'done' && movedTo !== to.cell))
    throw new DatabaseError(
      'mesh_elsewhere',
      `The mesh is not in this cell${movedTo ? ` but in the cell "${movedTo}"` : ''}`,
    )
  if (move.cell !== to.cell)
    throw new DatabaseError('move_other', `A move of this mesh to the cell "${move.cell}" has already begun`)
  return move
}

/**
 * A cell: a Postgres server with its brokers. Each mesh lives in one. All brokers may share the file of cells, without
 * the database URLs.
 */
export interface Cell {
  readonly name: string
  /** The brokers' addresses for peers. */
  readonly urls: readonly string[]
  /** The database URL for the owner of the tables, which only a mover needs. */
  readonly databaseUrl?: string | undefined
}

const cellsSchema = z.strictObject({
  cells: z
    .array(
      z.strictObject({
        name: z.string().regex(/^[!-~]{1,64}$/),
        urls: z.array(z.string().regex(/^wss?:\/\/[!-~]{1,250}$/)).min(1),
        databaseUrl: z.string().optional(),
      }),
    )
    .refine((cells) => new Set(cells.map(({ name }) => name)).size === cells.length),
})

const EXPECTED =
  'Expected {"cells": [{"name": "north", "urls": ["wss://north.example"], "databaseUrl": "postgres://…"}]} ' +
  'with unique names; brokers need no `databaseUrl`'

/**
 * Parses the file of cells. @throws OperatingError `cells_malformed`; its message never quotes the file, which may
 * contain passwords
 */
export function parseCells(text: string): Cell[] {
  const parsed = cellsSchema.safeParse(jsonOf(text))
  if (parsed.success) return parsed.data.cells
  const places = parsed.error.issues.map(({ path }) => path.join('.')).filter((place) => place !== '')
  throw malformed(
    places.length > 0 ? `The cells file is malformed at ${places.join(', ')}` : 'The cells file is malformed',
  )
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw malformed('The cells file is not JSON')
  }
}

const malformed = (sentence: string) => new OperatingError('cells_malformed', `${sentence}. ${EXPECTED}`)

export interface CellLocation {
  readonly cell: string
  /** Null if the mesh is not in the cell; an error if the cell did not reply. */
  readonly location: MeshLocation | null | DatabaseError
}

const LOCATE_TIMEOUT_MS = 5_000

/** Queries every cell with a database URL. */
export function findLocations(cells: readonly Cell[], meshId: MeshId): Promise<CellLocation[]> {
  return Promise.all(cells.filter(({ databaseUrl }) => databaseUrl).map((cell) => locateIn(cell, meshId)))
}

async function locateIn({ name, databaseUrl }: Cell, meshId: MeshId): Promise<CellLocation> {
  let connection: StreamingConnection | undefined
  try {
    connection = await openMoveConnection(databaseUrl!, { connectTimeoutMs: LOCATE_TIMEOUT_MS })
    return { cell: name, location: await readLocation(connection, meshId) }
  } catch (error) {
    if (error instanceof DatabaseError) return { cell: name, location: error }
    throw error
  } finally {
    await connection?.close()
  }
}

/**
 * Returns the source of a move to the cell `to`; null if the mesh lives there.
 * @throws DatabaseError `mesh_unknown`, `mesh_elsewhere`
 */
export function moveSource(found: readonly CellLocation[], to: string): string | null {
  const located = found.flatMap(({ cell, location }) =>
    location === null || location instanceof DatabaseError ? [] : [{ cell, location }],
  )
  const begun = located.find(
    ({ location: { move } }) => move?.side === 'source' && move.cell === to && isUnderWay(move.phase),
  )
  const active = located.find(({ location }) => !location.isFrozen)
  if (begun) return begun.cell
  if (active) return active.cell === to ? null : active.cell
  const silent = found.filter(({ location }) => location instanceof DatabaseError).map(({ cell }) => `"${cell}"`)
  const but = silent.length > 0 ? `; ${silent.join(', ')} did not reply` : ''
  if (located.length === 0) throw new DatabaseError('mesh_unknown', `No cell has such a mesh${but}`)
  throw new DatabaseError(
    'mesh_elsewhere',
    `The mesh is not active in any cell, and no move to "${to}" has begun${but}`,
  )
}

const isUnderWay = (phase: string): boolean => ['frozen', 'copied', 'left', 'arrived'].includes(phase)

/** Returns the cell for a move. @throws OperatingError `cell_unknown` */
export function moveEndpoint(cells: readonly Cell[], name: string): MoveEndpoint {
  const cell = cells.find((one) => one.name === name)
  if (cell?.databaseUrl) return { cell: name, databaseUrl: cell.databaseUrl }
  const lack = cell ? 'has no `databaseUrl` for it' : 'does not list it'
  throw new OperatingError('cell_unknown', `Can't connect to the cell "${name}": the cells file ${lack}`)
}

/** Finds a mesh that is frozen here. `movedTo`: its cell; null while it moves. @throws DatabaseError */
export async function findMovedMesh(db: Database, meshId: MeshId): Promise<{ movedTo: string | null } | undefined> {
  const [row] = await db.run(
    (sql) => sql<{ movedTo: string | null }[]>`
      select moved_to as "movedTo" from mesh where mesh_id = ${meshId}::uuid and frozen_at is not null`,
  )
  return row
}
