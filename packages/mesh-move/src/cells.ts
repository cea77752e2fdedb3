/**
 * The cells of an operator: Postgres servers with their brokers; each mesh lives in one of them. A file lists them. All
 * brokers may share the file, which for them needs no database URLs.
 */
import { type Database, DatabaseError, type StreamingConnection } from '@sealpost/pg'
import { type MeshId, OperatingError } from '@sealpost/std'
import { z } from 'zod'
import { openMoveConnection } from './copy.ts'
import type { MoveEndpoint } from './mesh-move.ts'
import { type MeshLocation, readLocation } from './steps.ts'

export interface Cell {
  readonly name: string
  /** Where peers connect to its brokers. */
  readonly urls: readonly string[]
  /** With the owner of its tables; only a mover needs it. */
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

/** @throws OperatingError `cells_malformed`, whose message never quotes the text: it may hold passwords */
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

/** What one cell knows of a mesh. */
export interface CellLocation {
  readonly cell: string
  /** Null: the cell has no such mesh. An error: the cell did not reply. */
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
 * Returns the source of a move to the cell `to`, or null if the mesh lives there already.
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

/** @throws OperatingError `cell_unknown` */
export function moveEndpoint(cells: readonly Cell[], name: string): MoveEndpoint {
  const cell = cells.find((one) => one.name === name)
  if (cell?.databaseUrl) return { cell: name, databaseUrl: cell.databaseUrl }
  const lack = cell ? 'has no `databaseUrl` for it' : 'does not list it'
  throw new OperatingError('cell_unknown', `Can't connect to the cell "${name}": the cells file ${lack}`)
}

/**
 * Finds a mesh that is frozen here. `movedTo` is the cell where it lives, or null while it moves.
 * @throws DatabaseError
 */
export async function findMovedMesh(db: Database, meshId: MeshId): Promise<{ movedTo: string | null } | undefined> {
  const [row] = await db.run(
    (sql) => sql<{ movedTo: string | null }[]>`
      select moved_to as "movedTo" from mesh where mesh_id = ${meshId}::uuid and frozen_at is not null`,
  )
  return row
}
