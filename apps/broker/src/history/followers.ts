/** Sends pages of new events to the followers of a space's history. Followers at the same position share a page. */
import type { Pipeline } from '@sealpost/pg'
import { type EventPage, jsonLine, PAGE_ROWS_MAX, readPage } from '@sealpost/replay'
import type { Millis, SpaceRef } from '@sealpost/std'
import type { SpaceHints } from '../spaces/space-requests.ts'

export interface FollowersParts {
  readonly db: Pipeline
  readonly spaceHints: Pick<SpaceHints, 'follow'>
  /** The poll interval, because hints may be lost. */
  readonly pollMs: Millis
}

export interface Following {
  readonly space: SpaceRef
  readonly after: number
  readonly start: Readonly<Record<string, unknown>>
  readonly mayRead: () => Promise<boolean>
  readonly signal: AbortSignal
}

const FOLLOWERS_MAX = 2_000
/** The interval of keep-alive lines on a silent response. */
const ALIVE_MS = 15_000
const EVER = { from: null, to: null }

export class Followers {
  readonly #parts: FollowersParts
  readonly #asked = new Map<string, Promise<EventPage | null>>()
  count = 0

  get isFull(): boolean {
    return this.count >= FOLLOWERS_MAX
  }

  constructor(parts: FollowersParts) {
    this.#parts = parts
  }

  async *follow({ space, after, start, mayRead, signal }: Following): AsyncGenerator<Uint8Array> {
    const notification = new Notification(signal)
    const leave = this.#parts.spaceHints.follow(space.meshId, space.spaceId, () => notification.notify())
    this.count += 1
    let cursor = after
    let saidMs = performance.now()
    try {
      yield Buffer.from(jsonLine({ start: true, ...start }))
      while (!signal.aborted) {
        notification.clear()
        const { rows } = (await this.#page(space, cursor)) ?? { rows: [] }
        if (rows.length > 0) {
          if (!(await mayRead())) return
          cursor = rows.at(-1)!.seq
          yield Buffer.from(rows.map(({ line }) => line).join(''), 'latin1')
          saidMs = performance.now()
          continue
        }
        if (performance.now() - saidMs >= ALIVE_MS) {
          if (!(await mayRead())) return
          yield Buffer.from(jsonLine({ alive: true }))
          saidMs = performance.now()
        }
        await notification.wait(this.#parts.pollMs)
      }
    } finally {
      this.count -= 1
      leave()
    }
  }

  /** Reads a page, which followers at the same position share. */
  async #page(space: SpaceRef, after: number): Promise<EventPage | null> {
    const name = `${space.meshId}/${space.spaceId}/${after}`
    const asked = this.#asked.get(name)
    if (asked !== undefined) return asked
    const request = { space, after, before: null, ...EVER, limit: PAGE_ROWS_MAX }
    const page = readPage(this.#parts.db, request).finally(() => this.#asked.delete(name))
    this.#asked.set(name, page)
    return page
  }
}

/** Keeps a notification without a listener for the next one. */
class Notification {
  #isSet = false
  #wake: (() => void) | undefined

  constructor(signal: AbortSignal) {
    signal.addEventListener('abort', () => this.notify(), { once: true })
  }

  notify(): void {
    this.#isSet = true
    this.#wake?.()
  }

  clear(): void {
    this.#isSet = false
  }

  async wait(withinMs: Millis): Promise<void> {
    if (this.#isSet) return
    let timer: ReturnType<typeof setTimeout> | undefined
    await new Promise<void>((resolve) => {
      this.#wake = resolve
      timer = setTimeout(resolve, withinMs)
    })
    clearTimeout(timer)
    this.#wake = undefined
  }
}
