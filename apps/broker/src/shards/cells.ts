/** Meshes that live in another cell, or are on their way: where their peers are sent. */
import { readFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import type { Enrolment, Signpost } from '@sealpost/core'
import { type Cell, findMovedMesh, parseCells } from '@sealpost/mesh-move'
import type { Database } from '@sealpost/pg'
import { SHARDS_TOLD_MAX } from '@sealpost/protocol'
import { type MeshId, type Millis, OperatingError } from '@sealpost/std'

/** Cells have one key. */
const NO_CERTIFICATE = new Uint8Array()

/**
 * A mesh on its way is waited for, which costs less than to be asked again and again, and sends its peers on the moment
 * there is where to. Less than a peer has to prove itself.
 */
const WAIT_MS: Millis = 6_000
const LOOK_EVERY_MS: Millis = 100
/** Each is a connection that has not proven itself; others need room, too. */
const WAITERS_MAX = 300

type Away = { readonly movedTo: string | null } | undefined

export class Cells {
  private readonly db: Database
  /** The public addresses of the broker's own cell. */
  readonly ownUrls: readonly string[]
  private readonly urls: ReadonlyMap<string, string>
  /** Of each mesh that is waited for, what will be found. */
  private readonly awaited = new Map<MeshId, Promise<Away>>()
  private waiters = 0

  constructor(db: Database, cells: readonly Cell[], ownUrls: readonly string[] = []) {
    this.db = db
    this.urls = new Map(cells.map(({ name, urls }) => [name, urls[0]!]))
    this.ownUrls = ownUrls
  }

  /**
   * `path`: the file of cells; empty for an operator who has one. `own`: the broker's cell in it, or empty.
   * @throws OperatingError `cells_malformed`, `file_missing`, `cell_unknown`
   */
  static async read(db: Database, { path, own }: { path: string; own: string }): Promise<Cells> {
    if (path === '' && own === '') return new Cells(db, [])
    const cells = path === '' ? [] : await readCells(path)
    const cell = cells.find(({ name }) => name === own)
    if (own !== '' && !cell)
      throw new OperatingError('cell_unknown', `CELL is "${own}", which the file of cells (CELLS_FILE) does not name`)
    return new Cells(db, cells, cell?.urls.slice(0, SHARDS_TOLD_MAX))
  }

  /**
   * The cell to which a mesh was moved, when it is there; `null`: none, as far as this one knows.
   * @throws OperatingError `mesh_away` (retryable): it is on its way for long, or in a cell that the file of cells does not
   *   name
   */
  async find(meshId: MeshId): Promise<Signpost | null> {
    const away = await this.settled(meshId)
    if (!away) return null
    const url = away.movedTo === null ? undefined : this.urls.get(away.movedTo)
    if (url !== undefined) return { url, certificate: NO_CERTIFICATE }
    const where =
      away.movedTo === null ? 'is on its way to or from another cell' : `lives in the cell "${away.movedTo}"`
    throw new OperatingError('mesh_away', `A mesh ${where}.`, { retryable: true })
  }

  /** What becomes of a newcomer whose invite nobody here can vouch for. @throws OperatingError as `find` */
  async sendOn(meshId: MeshId, proof: Uint8Array): Promise<Enrolment> {
    const cell = await this.find(meshId)
    return cell ? { status: 'moved', cell, proof } : { status: 'invite_refused' }
  }

  /** Before it is said that something of the mesh is not there. @throws OperatingError `mesh_away` (retryable) */
  async assertHere(meshId: MeshId): Promise<void> {
    if (!(await findMovedMesh(this.db, meshId))) return
    throw new OperatingError('mesh_away', 'A mesh is on its way to another cell, or lives there.', { retryable: true })
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

  /** All that wait for one mesh look together. */
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
    throw new OperatingError('file_missing', `CELLS_FILE names a file that can't be read: ${path}`, { cause })
  })
  return parseCells(text)
}
