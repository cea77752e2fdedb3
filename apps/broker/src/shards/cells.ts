/** Redirects the peers of meshes in another cell. */
import { readFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import type { Enrolment, RedirectTarget } from '@sealpost/core'
import { type Cell, findMovedMesh, parseCells } from '@sealpost/mesh-move'
import type { Database } from '@sealpost/pg'
import { SHARDS_TOLD_MAX } from '@sealpost/protocol'
import { type MeshId, type Millis, OperatingError } from '@sealpost/std'

/** cells share one key, so no certificate is needed */
const NO_CERTIFICATE = new Uint8Array()

/**
 * How long to wait for a moving mesh: less than a handshake may take. Waiting redirects peers early and costs less than
 * repeated requests.
 */
const WAIT_MS: Millis = 6_000
const LOOK_EVERY_MS: Millis = 100
/** The maximum number of waiters, each an unauthenticated connection. */
const WAITERS_MAX = 300

type Away = { readonly movedTo: string | null } | undefined

export class Cells {
  private readonly db: Database
  readonly ownUrls: readonly string[]
  private readonly urls: ReadonlyMap<string, string>
  private readonly awaited = new Map<MeshId, Promise<Away>>()
  private waiters = 0

  constructor(db: Database, cells: readonly Cell[], ownUrls: readonly string[] = []) {
    this.db = db
    this.urls = new Map(cells.map(({ name, urls }) => [name, urls[0]!]))
    this.ownUrls = ownUrls
  }

  /**
   * Reads the cells. `path`: their file; `own`: this broker's cell. Both may be empty.
   * @throws OperatingError `cells_malformed`, `file_missing`, `cell_unknown`
   */
  static async read(db: Database, { path, own }: { path: string; own: string }): Promise<Cells> {
    if (path === '' && own === '') return new Cells(db, [])
    const cells = path === '' ? [] : await readCells(path)
    const cell = cells.find(({ name }) => name === own)
    if (own !== '' && !cell)
      throw new OperatingError('cell_unknown', `CELL is "${own}", which CELLS_FILE does not list`)
    return new Cells(db, cells, cell?.urls.slice(0, SHARDS_TOLD_MAX))
  }

  /**
   * Returns the cell of a moved mesh, once the move is complete, or `null`.
   * @throws OperatingError `mesh_away` (retryable) if the move takes long, or the file of cells lacks its destination
   */
  async find(meshId: MeshId): Promise<RedirectTarget | null> {
    const away = await this.settled(meshId)
    if (!away) return null
    const url = away.movedTo === null ? undefined : this.urls.get(away.movedTo)
    if (url !== undefined) return { url, certificate: NO_CERTIFICATE }
    const where =
      away.movedTo === null ? 'is moving to or from another cell' : `has moved to the cell "${away.movedTo}"`
    throw new OperatingError('mesh_away', `A mesh ${where}.`, { retryable: true })
  }

  /** Redirects a new member of a moved mesh. @throws the errors of `find` */
  async sendOn(meshId: MeshId, proof: Uint8Array): Promise<Enrolment> {
    const cell = await this.find(meshId)
    return cell ? { status: 'moved', cell, proof } : { status: 'invite_refused' }
  }

  /** Call before reporting that something in the mesh does not exist. @throws OperatingError `mesh_away` (retryable) */
  async assertHere(meshId: MeshId): Promise<void> {
    if (!(await findMovedMesh(this.db, meshId))) return
    throw new OperatingError('mesh_away', 'A mesh is moving to another cell, or has moved there.', { retryable: true })
  }

  private async settled(meshId: MeshId): Promise<Away> {
    const away = await findMovedMesh(this.db, meshId)
    if (away?.movedTo !== null || this.waiters >= WAITERS_MAX) return away
    this.waiters += 1
    try {
      return await this.wait(meshId)
    } finally {
      this.waiters -= 1
    }
  }

  /** Waits for a move; waiters of a mesh share queries. */
  private wait(meshId: MeshId): Promise<Away> {
    const found = this.awaited.get(meshId) ?? this.lookAgain(meshId).finally(() => this.awaited.delete(meshId))
    this.awaited.set(meshId, found)
    return found
  }

  private async lookAgain(meshId: MeshId): Promise<Away> {
    const untilMs = performance.now() + WAIT_MS
    for (;;) {
      await delay(LOOK_EVERY_MS)
      const away = await findMovedMesh(this.db, meshId)
      if (away?.movedTo !== null || performance.now() > untilMs) return away
    }
  }
}

async function readCells(path: string): Promise<Cell[]> {
  const text = await readFile(path, 'utf8').catch((cause) => {
    throw new OperatingError('file_missing', `Can't read the file in CELLS_FILE: ${path}`, { cause })
  })
  return parseCells(text)
}
