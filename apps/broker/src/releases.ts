/**
 * Asks for what was delayed when it is due: at a time that an envelope named, at the time the last answer named, and
 * every quarter of a minute in any case, since another shard may have stored something.
 */
import type { Released } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'

const LOOK_EVERY_MS = 15_000
/** Two looks are so far apart at least; our clock and the database's are not the same. */
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
    if (atMs >= this.dueAtMs) return
    this.dueAtMs = atMs
    this.schedule()
  }

  stop(): void {
    this.isOver = true
    clearTimeout(this.timer)
  }

  private schedule(): void {
    clearTimeout(this.timer)
    if (this.isOver || this.isLooking) return
    const afterMs = Math.min(this.dueAtMs - Date.now(), LOOK_EVERY_MS)
    this.timer = setTimeout(() => void this.look(), Math.max(LOOK_AGAIN_MS, afterMs))
  }

  private async look(): Promise<void> {
    this.dueAtMs = Infinity
    this.isLooking = true
    try {
      const { recipients, nextInMs } = await this.ports.release()
      for (const recipient of recipients) this.ports.released(recipient)
      if (nextInMs !== null) this.by(Date.now() + nextInMs)
    } catch (error) {
      this.ports.failed(error)
    }
    this.isLooking = false
    this.schedule()
  }
}
