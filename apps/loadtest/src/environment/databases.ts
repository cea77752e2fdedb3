/** The Postgres servers of a test, one for each cell, asked as if they were one. */

import type { MeshMembers } from '@sealpost/harness/members/mesh'
import type { MeshId } from '@sealpost/std'
import type { StatementStats } from '@sealpost/store'
import { type DatabaseCounters, LoadDatabase, type PostgresFacts, type RelationFacts } from './database.ts'

export class Databases {
  readonly #cells: readonly LoadDatabase[]

  private constructor(cells: readonly LoadDatabase[]) {
    this.#cells = cells
  }

  static async open(urls: readonly string[]): Promise<Databases> {
    return new Databases(await Promise.all(urls.map((url) => LoadDatabase.open(url))))
  }

  /** Of each. */
  facts(): Promise<PostgresFacts[]> {
    return this.#each((cell) => cell.facts())
  }

  async counters(): Promise<DatabaseCounters> {
    const all = await this.#each((cell) => cell.counters())
    return {
      transactions: sumOf(all.map(({ transactions }) => transactions)),
      walBytes: sumOf(all.map(({ walBytes }) => walBytes)),
    }
  }

  /** Of the first. */
  relations(): Promise<RelationFacts[]> {
    return this.#cells[0]!.relations()
  }

  async seed(mesh: MeshMembers, cell: number): Promise<void> {
    await this.#cells[cell]!.seed(mesh)
  }

  /** Of the first. */
  countStatements(): Promise<void> {
    return this.#cells[0]!.countStatements()
  }

  /** Of the first; null where its server does not count. */
  statements(): Promise<StatementStats[] | null> {
    return this.#cells[0]!.statements()
  }

  /** Into a mesh of the first. */
  async enroll(members: MeshMembers): Promise<void> {
    await this.#cells[0]!.enroll(members)
  }

  /** Counts no further than it must. */
  async holdAtMost(meshIds: readonly MeshId[], most: number): Promise<boolean> {
    if (this.#cells.length > 1) return (await this.countQueued(meshIds)) <= most
    return this.#cells[0]!.holdsAtMost(meshIds, most)
  }

  /** Which of these envelopes are still there, be it as dead letters. */
  async waiting(meshIds: readonly MeshId[], ids: readonly string[]): Promise<Set<string>> {
    return new Set((await this.#each((cell) => cell.waiting(meshIds, ids))).flatMap((found) => [...found]))
  }

  async countQueued(meshIds: readonly MeshId[]): Promise<number> {
    return sumOf(await this.#each((cell) => cell.countQueued(meshIds)))
  }

  /** Of all meshes. */
  async countAllQueued(): Promise<number> {
    return sumOf(await this.#each((cell) => cell.countAllQueued()))
  }

  async forget(meshId: MeshId): Promise<void> {
    await this.#each((cell) => cell.forget(meshId))
  }

  async close(): Promise<void> {
    await this.#each((cell) => cell.close())
  }

  #each<T>(ask: (cell: LoadDatabase) => Promise<T>): Promise<T[]> {
    return Promise.all(this.#cells.map(ask))
  }
}

const sumOf = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0)
