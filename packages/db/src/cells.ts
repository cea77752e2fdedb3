/**
 * The cells an operator has: Postgres servers with their brokers, each mesh living in one. A file names them; every broker may
 * have the same one, and needs no addresses of databases in it.
 */
import { type MeshId, OperatingError } from '@sealpost/std'
import { z } from 'zod'
import type { Database } from './connect.ts'
import { DatabaseError } from './database-error.ts'
import type { MoveEnd } from './mesh-move.ts'
import { findPlace, type MeshPlace } from './mesh-move-steps.ts'
import { MoverLink } from './mover-link.ts'

export interface Cell {
  readonly name: string
  /** Where peers dial its brokers. */
  readonly urls: readonly string[]
  /** As the owner of its tables; only for whoever moves meshes. */
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
  'It looks like {"cells": [{"name": "north", "urls": ["wss://north.example"], "databaseUrl": "postgres://…"}]}, ' +
  'with names that differ; a broker needs no `databaseUrl`'

/** @throws OperatingError `cells_malformed`, which never repeats the text: it may hold passwords */
export function parseCells(text: string): Cell[] {
  const parsed = cellsSchema.safeParse(jsonOf(text))
  if (parsed.success) return parsed.data.cells
  const places = parsed.error.issues.map(({ path }) => path.join('.')).filter((place) => place !== '')
  throw malformed(
    places.length > 0 ? `The file of cells is wrong at ${places.join(', ')}` : 'The file of cells is wrong',
  )
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw malformed('The file of cells is no JSON')
  }
}

const malformed = (sentence: string) => new OperatingError('cells_malformed', `${sentence}. ${EXPECTED}`)

/** What one cell says of a mesh. */
export interface FoundPlace {
  readonly cell: string
  /** `null`: no such mesh there; an error: it did not answer. */
  readonly place: MeshPlace | null | DatabaseError
}

const ASK_WITHIN_MS = 5_000

/** Asks every cell whose database is named. */
export function findPlaces(cells: readonly Cell[], meshId: MeshId): Promise<FoundPlace[]> {
  return Promise.all(cells.filter(({ databaseUrl }) => databaseUrl).map((cell) => placeIn(cell, meshId)))
}

async function placeIn({ name, databaseUrl }: Cell, meshId: MeshId): Promise<FoundPlace> {
  let link: MoverLink | undefined
  try {
    link = await MoverLink.open(databaseUrl!, { connectTimeoutMs: ASK_WITHIN_MS })
    return { cell: name, place: await findPlace(link, meshId) }
  } catch (error) {
    if (error instanceof DatabaseError) return { cell: name, place: error }
    throw error
  } finally {
    await link?.close()
  }
}

/**
 * From where a move to the cell `to` begins, or has begun; `null`: the mesh lives there.
 * @throws DatabaseError `mesh_unknown`, `mesh_elsewhere`
 */
export function sourceOf(found: readonly FoundPlace[], to: string): string | null {
  const places = found.flatMap(({ cell, place }) =>
    place === null || place instanceof DatabaseError ? [] : [{ cell, place }],
  )
  const begun = places.find(
    ({ place: { move } }) => move?.side === 'source' && move.cell === to && isUnderWay(move.phase),
  )
  const active = places.find(({ place }) => !place.isFrozen)
  if (begun) return begun.cell
  if (active) return active.cell === to ? null : active.cell
  const silent = found.filter(({ place }) => place instanceof DatabaseError).map(({ cell }) => `"${cell}"`)
  const but = silent.length > 0 ? `; no answer came from ${silent.join(', ')}` : ''
  if (places.length === 0) throw new DatabaseError('mesh_unknown', `No cell has such a mesh${but}`)
  throw new DatabaseError('mesh_elsewhere', `The mesh is active in no cell, and no move to "${to}" has begun${but}`)
}

const isUnderWay = (phase: string): boolean => ['frozen', 'copied', 'left', 'arrived'].includes(phase)

/** @throws OperatingError `cell_unknown` */
export function endOf(cells: readonly Cell[], name: string): MoveEnd {
  const cell = cells.find((one) => one.name === name)
  if (cell?.databaseUrl) return { cell: name, databaseUrl: cell.databaseUrl }
  const lack = cell ? 'says no `databaseUrl` for it' : 'does not name it'
  throw new OperatingError('cell_unknown', `There is no way to the cell "${name}": the file of cells ${lack}`)
}

/** A mesh that is frozen here: `movedTo` names the cell it lives in; null while it is on its way. @throws DatabaseError */
export async function findMeshAway(db: Database, meshId: MeshId): Promise<{ movedTo: string | null } | undefined> {
  const [row] = await db.run(
    (sql) => sql<{ movedTo: string | null }[]>`
      select moved_to as "movedTo" from mesh where mesh_id = ${meshId}::uuid and frozen_at is not null`,
  )
  return row
}
