/**
 * What this peer says of itself and hears of others. The broker keeps neither beyond a session, so both are said again in
 * each. Pure and synchronous.
 */
import { AVAILABILITIES, type Availability, type FrameOf, SUMMARY_MAX } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'

export interface Status {
  /** With `dnd` only what is sent as `now` is pushed; the rest waits. */
  readonly availability: Availability
  /** Up to 120 characters of printable ASCII, for those who watch. The broker reads it, too. */
  readonly summary?: string
  /** Senders are not told that their mail was pushed to this peer or settled. */
  readonly declinesReceipts?: boolean
}

/** The broker's word, and as old as the last change it told. */
export type PresenceEntry = Readonly<FrameOf<'presence'>['peers'][number]>

export class PresenceClient {
  readonly presence = new Map<PeerKey, PresenceEntry>()
  readonly #changed: (entry: PresenceEntry) => void
  #status: FrameOf<'status'> | null = null
  #isStatusSaid = true
  #isWatching = false
  /** As the broker of this session knows it. */
  #isWatched = false

  constructor(changed: (entry: PresenceEntry) => void) {
    this.#changed = changed
  }

  say({ availability, summary = '', declinesReceipts = false }: Status): void {
    this.#status = { type: 'status', availability, summary, declinesReceipts }
    this.#isStatusSaid = false
  }

  /** What is known grows old when nobody watches: a new watch begins with the broker's next report. */
  watch(isWatching: boolean): void {
    if (isWatching === this.#isWatching) return
    this.#isWatching = isWatching
    if (isWatching) this.#isWatched = false
    else this.presence.clear()
  }

  connected(): void {
    this.#isStatusSaid = this.#status === null
    this.#isWatched = false
  }

  /** Nothing is known of anybody until the next session. */
  disconnected(): void {
    for (const entry of this.presence.values()) if (entry.isOnline) this.#note({ ...entry, isOnline: false })
  }

  told({ peers }: FrameOf<'presence'>): void {
    if (this.#isWatching) for (const entry of peers) this.#note(entry)
  }

  takeFrames(): (FrameOf<'status'> | FrameOf<'watch'>)[] {
    const frames: (FrameOf<'status'> | FrameOf<'watch'>)[] = []
    if (!this.#isStatusSaid) frames.push(this.#status!)
    if (this.#isWatching !== this.#isWatched) frames.push({ type: 'watch', isOn: this.#isWatching })
    this.#isStatusSaid = true
    this.#isWatched = this.#isWatching
    return frames
  }

  #note(entry: PresenceEntry): void {
    const known = this.presence.get(entry.peer)
    this.presence.set(entry.peer, entry)
    if (!known || !isSame(known, entry)) this.#changed(entry)
  }
}

/** @throws SealpostError `summary_malformed`; RangeError for an availability that is none */
export function validateStatus(status: Status): Status {
  const { availability, summary = '' } = status
  if (!AVAILABILITIES.includes(availability)) throw new RangeError(`availability is ${AVAILABILITIES.join(', ')}`)
  if (summary.length <= SUMMARY_MAX && /^[ -~]*$/.test(summary)) return status
  throw new SealpostError('summary_malformed', `A summary is at most ${SUMMARY_MAX} characters of printable ASCII.`)
}

function isSame(a: PresenceEntry, b: PresenceEntry): boolean {
  return a.isOnline === b.isOnline && a.availability === b.availability && a.summary === b.summary
}
