/**
 * What the broker acknowledged lately. A database that was restored from a backup has forgotten what came after it; then
 * this is said again, under the same ids, so that what it does know stays one message.
 */
import type { Millis } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import { Fifo, type OutboxEntry, type OutgoingMessage } from './lane.ts'

/** Backups are not taken back by more than this without a word to everybody: the window that is promised. */
export const KEEP_SENT_MS = 15 * 60_000
const COUNT_MAX = 4096
const BYTES_MAX = 4 * 1024 * 1024
const NO_BODY = new Uint8Array(0)
const nobody = (): void => undefined

/** Nor the sender's promise: they would stay as long as the sealed bytes. */
function withoutBody({ to, priority, ttlSeconds, terms, note, bodyId, message }: OutgoingMessage): OutgoingMessage {
  const kept = { to, priority, ttlSeconds, terms, note, bodyId, body: NO_BODY, accepted: nobody, refused: nobody }
  return message ? { ...kept, message } : kept
}

export class RecentlyAcked {
  readonly #entries = new Fifo<{ readonly entry: OutboxEntry; readonly ackedAtMs: Millis }>()
  #bytes = 0

  add(entry: OutboxEntry, nowMs: Millis): void {
    if (entry.post.terms?.ifOnline) return // it was worth something at its moment only
    entry.post = withoutBody(entry.post)
    this.#entries.push({ entry, ackedAtMs: nowMs })
    this.#bytes += entry.envelope.length
    while (this.#isOver(nowMs)) this.#bytes -= this.#entries.shift()!.entry.envelope.length
  }

  /**
   * All of it, to be said again, in the order of the acks, which within a lane is that of the sends. `refused`: it is
   * refused now.
   */
  takeForResend(refused: (entry: OutboxEntry, error: SealpostError) => void, nowMs: Millis): OutboxEntry[] {
    while (this.#isOver(nowMs)) this.#entries.shift()
    const again = [...this.#entries].map(({ entry: former }): OutboxEntry => {
      const post = { ...former.post, refused: (error: SealpostError) => refused(former, error) }
      return { ...former, post, place: 'atRest', mayBeStored: true, isReoffered: true }
    })
    this.#entries.clear()
    this.#bytes = 0
    return again
  }

  #isOver(nowMs: Millis): boolean {
    const eldest = this.#entries.peek()
    if (!eldest) return false
    return this.#entries.length > COUNT_MAX || this.#bytes > BYTES_MAX || nowMs - eldest.ackedAtMs >= KEEP_SENT_MS
  }
}
