/** Pages of a space's history as they go out, each made once for all who ask for it at a time. */
import type { Pipeline } from '@sealpost/db'
import { momentText, otherLine, type Page, type PageRequest, readPage } from '@sealpost/replay'
import { SharedReads } from './shared-reads.ts'

export class HistoryPages {
  readonly #db: Pipeline
  readonly #answers = new SharedReads<Buffer | null>()

  constructor(db: Pipeline) {
    this.#db = db
  }

  /** Of what stands when it is asked for, or later. @returns null: there is no such space. @throws DatabaseError */
  find(request: PageRequest): Promise<Buffer | null> {
    return this.#answers.read(JSON.stringify(request), async () => {
      const page = await readPage(this.#db, request)
      return page && answerOf(page, request)
    })
  }
}

/** One string and one buffer of it: what is thrown away costs more than what is copied. */
function answerOf({ at, lastSeq, rows, hasMore }: Page, { to, after }: PageRequest): Buffer {
  const start = otherLine({ start: true, at: momentText(to ?? at), lastSeq })
  const end = otherLine({ end: true, seq: rows.at(-1)?.seq ?? after, more: hasMore })
  return Buffer.from(start + rows.map(({ line }) => line).join('') + end, 'latin1')
}
