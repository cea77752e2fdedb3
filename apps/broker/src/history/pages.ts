/** Formatted pages of a space's history, each made once for all concurrent requests. */
import type { Pipeline } from '@sealpost/pg'
import { Batcher } from '@sealpost/queue'
import { type EventPage, formatTimestamp, jsonLine, type PageRequest, readPage } from '@sealpost/replay'

export class HistoryPages {
  readonly #db: Pipeline
  /**
   * Reads of one page at a time, by request: a request during a read shares the next one, which sees everything written
   * before.
   */
  readonly #reads = new Map<string, Batcher<PageRequest, Buffer | null>>()

  constructor(db: Pipeline) {
    this.#db = db
  }

  /** Returns the page as of the request, or later. @returns null: there is no such space. @throws DatabaseError */
  async find(request: PageRequest): Promise<Buffer | null> {
    const key = JSON.stringify(request)
    const reads = this.#reads.get(key) ?? new Batcher(() => this.#read(request), { max: 1, keyOf: () => key })
    this.#reads.set(key, reads)
    try {
      return await reads.add(request)
    } finally {
      if (reads.isIdle && this.#reads.get(key) === reads) this.#reads.delete(key)
    }
  }

  async #read(request: PageRequest): Promise<[Buffer | null]> {
    const page = await readPage(this.#db, request)
    return [page && answerOf(page, request)]
  }
}

/** Builds one string and one buffer: discarding memory costs more than copying. */
function answerOf({ at, lastSeq, rows, hasMore }: EventPage, { to, after }: PageRequest): Buffer {
  const start = jsonLine({ start: true, at: formatTimestamp(to ?? at), lastSeq })
  const end = jsonLine({ end: true, seq: rows.at(-1)?.seq ?? after, more: hasMore })
  return Buffer.from(start + rows.map(({ line }) => line).join('') + end, 'latin1')
}
