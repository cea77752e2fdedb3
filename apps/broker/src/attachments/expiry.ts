/** Deletes expired attachments, in short steps. */
import type { Database } from '@sealpost/pg'
import type { Millis } from '@sealpost/std'
import { deleteAttachment, type ExpiredAttachment, listExpiredAttachments } from '@sealpost/store'
import type { ChunkStore } from './attachments.ts'

interface Ports {
  readonly db: Database
  readonly stores: readonly ChunkStore[]
  readonly forgotten: () => void
  readonly failed: (error: unknown) => void
}

interface Pace {
  readonly everyMs: Millis
  /** The delay after expiry: longer than a chunk in transit to a store can take. */
  readonly sinceSeconds: number
}

const USUAL: Pace = { everyMs: 30_000, sinceSeconds: 60 }
const FILES_AT_ONCE = 20
/** 16 MB. */
const CHUNKS_AT_ONCE = 64

export class AttachmentExpiry {
  private readonly ports: Ports
  private readonly sinceSeconds: number
  private readonly timer: ReturnType<typeof setInterval>
  private looking: Promise<void> | null = null
  private isOver = false

  constructor(ports: Ports, { everyMs, sinceSeconds }: Pace = USUAL) {
    this.ports = ports
    this.sinceSeconds = sinceSeconds
    this.timer = setInterval(() => this.look(), everyMs)
    this.timer.unref()
  }

  /** Resolves when no step is running. */
  async stop(): Promise<void> {
    this.isOver = true
    clearInterval(this.timer)
    await this.looking
  }

  private look(): void {
    if (this.isOver) return
    this.looking ??= this.forgetAll()
      .catch(this.ports.failed)
      .finally(() => (this.looking = null))
  }

  private async forgetAll(): Promise<void> {
    const { sinceSeconds } = this
    for (;;) {
      const expired = await listExpiredAttachments(this.ports.db, { sinceSeconds, max: FILES_AT_ONCE })
      for (const each of expired) await this.forget(each)
      if (this.isOver || expired.length === 0) return
    }
  }

  /** A store that is no longer configured keeps its bytes. */
  private async forget(expired: ExpiredAttachment): Promise<void> {
    await this.ports.stores.find(({ name }) => name === expired.store)?.forget(expired)
    while (!this.isOver) if (await deleteAttachment(this.ports.db, expired, CHUNKS_AT_ONCE)) break
    if (!this.isOver) this.ports.forgotten()
  }
}
