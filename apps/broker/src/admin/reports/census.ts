/**
 * Counts what waits, by mesh and recipient: a continuous scan of the queue, a few thousand rows at a time. On a long
 * queue the scan pauses fifty times as long as each read took, up to five seconds: it counts less often rather than
 * slowing the message path.
 */
import type { Database } from '@sealpost/pg'
import type { MeshId, Millis, PeerNo } from '@sealpost/std'
import {
  CENSUS_START,
  type CensusCursor,
  type CensusPage,
  type RecipientBacklog,
  readCensusPage,
} from '@sealpost/store'

export interface WaitingCount {
  readonly depth: number
  readonly held: number
  /** By the database's clock. */
  readonly oldestAtMs: Millis
}

export interface MeshWaiting {
  depth: number
  oldestAtMs: Millis
  recipientCount: number
  readonly recipients: Map<PeerNo, WaitingCount>
}

export interface Counted {
  readonly depth: number
  readonly recipientCount: number
  /** Infinity: nothing waits. */
  readonly oldestAtMs: Millis
  readonly meshes: ReadonlyMap<MeshId, MeshWaiting>
  /** When the scan ended, by the monotonic clock; null: not yet. */
  readonly countedAtMs: Millis | null
}

const ROWS = 5000
const PAUSE_MIN_MS = 1000
const PAUSE_MAX_MS = 5000
const PAUSE_FACTOR = 50
const RECIPIENTS_MAX = 50_000
const BLIND_AFTER_MS = 15_000
const NOTHING_COUNTED: Counted = { depth: 0, recipientCount: 0, oldestAtMs: Infinity, meshes: new Map(), countedAtMs: null } // biome-ignore format: one thing

export class Census {
  counted: Counted = NOTHING_COUNTED
  private lookedAtMs: Millis = -Infinity
  private readonly db: Database
  private readonly accepted: () => number
  private readonly failed: (error: unknown) => void
  private place: CensusCursor = CENSUS_START
  private seen: RecipientBacklog[] = []
  private timer: ReturnType<typeof setTimeout> | undefined
  private isStopped = false
  private isFailing = false
  private databaseAheadMs: Millis = 0
  private acceptedThen = 0

  /** `accepted`: the number of envelopes that this broker has accepted. `failed`: called once per outage. */
  constructor(db: Database, accepted: () => number, failed: (error: unknown) => void) {
    this.db = db
    this.accepted = accepted
    this.failed = failed
    void this.walk()
  }

  /** The database does not respond: the counts may be outdated. */
  get isBlind(): boolean {
    return performance.now() - this.lookedAtMs > BLIND_AFTER_MS
  }

  ageMs(atMs: Millis): Millis {
    return Number.isFinite(atMs) ? Math.max(0, Math.round(Date.now() + this.databaseAheadMs - atMs)) : 0
  }

  stop(): void {
    this.isStopped = true
    clearTimeout(this.timer)
  }

  private async walk(): Promise<void> {
    const startedAtMs = performance.now()
    if (this.isQuiet(startedAtMs)) return this.walkAfter(PAUSE_MIN_MS)
    this.acceptedThen = this.accepted()
    const look = await readCensusPage(this.db, this.place, ROWS).catch((error) => {
      if (!this.isFailing) this.failed(error)
      return null
    })
    this.isFailing = look === null
    if (look) this.take(look)
    if (this.isStopped) return
    const restMs = PAUSE_FACTOR * (performance.now() - startedAtMs)
    this.walkAfter(Math.min(PAUSE_MAX_MS, Math.max(PAUSE_MIN_MS, restMs)))
  }

  private walkAfter(pauseMs: Millis): void {
    this.timer = setTimeout(() => void this.walk(), pauseMs)
    this.timer.unref()
  }

  /**
   * An empty queue is scanned rarely while this broker accepts nothing; deliveries through other shards are then
   * counted later.
   */
  private isQuiet(nowMs: Millis): boolean {
    if (this.isFailing || this.place !== CENSUS_START || this.counted.depth > 0) return false
    return this.accepted() === this.acceptedThen && nowMs - this.lookedAtMs < PAUSE_MAX_MS
  }

  private take({ backlogs, next, nowMs }: CensusPage): void {
    this.lookedAtMs = performance.now()
    if (nowMs > 0) this.databaseAheadMs = nowMs - Date.now()
    for (const backlog of backlogs) this.seen.push(backlog)
    this.place = next ?? CENSUS_START
    if (next) return
    this.counted = countUp(this.seen, performance.now())
    this.seen = []
  }
}

function countUp(seen: readonly RecipientBacklog[], countedAtMs: Millis): Counted {
  const meshes = new Map<MeshId, MeshWaiting>()
  let [depth, recipientCount, oldest] = [0, 0, Infinity]
  for (const { meshId, recipient, depth: count, held, oldestAtMs } of seen) {
    const mesh = meshes.get(meshId) ?? { depth: 0, oldestAtMs: Infinity, recipientCount: 0, recipients: new Map() }
    meshes.set(meshId, mesh)
    const known = mesh.recipients.get(recipient)
    if (!known) recipientCount += 1
    if (!known) mesh.recipientCount += 1
    mesh.depth += count
    mesh.oldestAtMs = Math.min(mesh.oldestAtMs, oldestAtMs)
    depth += count
    oldest = Math.min(oldest, oldestAtMs)
    if (!known && recipientCount > RECIPIENTS_MAX) continue
    mesh.recipients.set(recipient, {
      depth: (known?.depth ?? 0) + count,
      held: (known?.held ?? 0) + held,
      oldestAtMs: Math.min(known?.oldestAtMs ?? Infinity, oldestAtMs),
    })
  }
  return { depth, recipientCount, oldestAtMs: oldest, meshes, countedAtMs }
}
