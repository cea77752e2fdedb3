/**
 * Asks for what was delayed when it is due: at a time that an envelope named, at the time the last answer named, and
 * every quarter of a minute in any case, since another shard may have stored something.
 */
import type { Released } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'

const LOOK_EVERY_MS = 15_000
/** Our clock and the database's are not the same: a look that comes too early is followed by another one. */
const LOOK_AGAIN_MS = 100

export interface ReleasePorts {
  release(): Promise<Released>
  released(recipient: Released['recipients'][number]): void
  failed(error: unknown): void
}

export class Releases {
  private readonly ports: ReleasePorts
  private timer: ReturnType<typeof setTimeout> | undefined
  private dueAtMs = Infinity
  private isLooking = false
  private isOver = false

  constructor(ports: ReleasePorts) {
    this.ports = ports
    this.by(0)
  }

  /** Looks at this time at the latest, in ms since 1970. */
  by(atMs: Millis): void {
    if (this.isOver || atMs >= this.dueAtMs) return
    this.dueAtMs = atMs
    clearTimeout(this.timer)
    const afterMs = Math.max(this.isLooking ? LOOK_AGAIN_MS : 0, Math.min(atMs - Date.now(), LOOK_EVERY_MS))
    this.timer = setTimeout(() => void this.look(), afterMs)
  }

  stop(): void {
    this.isOver = true
    clearTimeout(this.timer)
  }

  private async look(): Promise<void> {
    this.dueAtMs = Infinity
    this.isLooking = true
    let nextInMs = LOOK_EVERY_MS
    try {
      const released = await this.ports.release()
      for (const recipient of released.recipients) this.ports.released(recipient)
      nextInMs = Math.min(nextInMs, Math.max(LOOK_AGAIN_MS, released.nextInMs ?? LOOK_EVERY_MS))
    } catch (error) {
      this.ports.failed(error)
    }
    this.isLooking = false
    this.by(Date.now() + nextInMs)
  }
}
