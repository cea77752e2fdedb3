import type { Database } from '@sealpost/pg'
import { defaultSnapshotOptions, dropDays, findKept, giveUpDays, makeDays, Snapshots } from '@sealpost/replay'
import { type Millis, OperatingError } from '@sealpost/std'
import { type RetentionStats, readRetentionStats } from '@sealpost/store'
import { errorFields, type Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'

/** The timeout of a snapshot batch, and of counting a day. */
export const UPKEEP_STATEMENT_MS = 60_000

interface Parts {
  readonly db: Database
  readonly log: Log
  readonly metrics: Metrics
  readonly everyMs: Millis
}

export class HistoryUpkeep {
  readonly #parts: Parts
  readonly #snapshots: Snapshots
  readonly #timer: ReturnType<typeof setInterval>
  readonly #counts = { snapshots: 0, rows: 0, bytes: 0, seconds: 0, made: 0, dropped: 0, failures: 0 }
  #run: Promise<void> | undefined
  #isStopped = false

  constructor(parts: Parts) {
    this.#parts = parts
    this.#snapshots = new Snapshots(parts.db, defaultSnapshotOptions, UPKEEP_STATEMENT_MS)
    this.#timer = setInterval(() => this.soon(), parts.everyMs)
    this.#timer.unref()
    const counts = this.#counts
    parts.metrics.count({
      snapshots_created: ['snapshots created', () => counts.snapshots],
      snapshot_entries: ['entries in created snapshots', () => counts.rows],
      snapshot_bytes: ['total size of the entries in created snapshots', () => counts.bytes],
      snapshot_seconds: ['time spent creating snapshots', () => counts.seconds],
      history_days_created: ['daily history partitions created', () => counts.made],
      history_days_dropped: ['daily history partitions dropped', () => counts.dropped],
      history_upkeep_failures: ['failed history maintenance runs', () => counts.failures],
    })
  }

  soon(): void {
    if (this.#isStopped) return
    this.#run ??= this.#work().finally(() => {
      this.#run = undefined
    })
  }

  /** Stops the upkeep. The next start resumes interrupted work. */
  stop(): void {
    this.#isStopped = true
    clearInterval(this.#timer)
  }

  async #work(): Promise<void> {
    const { db, log } = this.#parts
    try {
      const spaces = await findKept(db)
      if (spaces.length > 0) this.#counts.made += await makeDays(db)
      for (const space of spaces) {
        if (this.#isStopped) return
        await this.#refresh(space)
        await giveUpDays(db, space)
      }
      if (spaces.length > 0) this.#counts.dropped += await dropDays(db)
    } catch (error) {
      if (!(error instanceof OperatingError)) throw error
      this.#counts.failures += 1
      if (!this.#isStopped) log.warn('history.upkeep_failed', errorFields(error)) // the next run resumes unfinished work
    }
  }

  async #refresh(space: Parameters<Snapshots['refresh']>[0]): Promise<void> {
    const startMs = performance.now()
    const report = await this.#snapshots.refresh(space)
    if (!report) return
    const seconds = (performance.now() - startMs) / 1000
    this.#counts.snapshots += 1
    this.#counts.rows += report.rows
    this.#counts.bytes += report.bytes
    this.#counts.seconds += seconds
    this.#parts.log.info('history.snapshot', { rows: report.rows, bytes: report.bytes, tookMs: seconds * 1000 })
  }
}

const COUNT_EVERY_MS = 30_000
const NOTHING: RetentionStats = { spaces: 0, entries: 0, entryBytes: 0, historyBytes: 0, snapshotSeconds: 0, days: 0, files: 0, fileBytes: 0 } // biome-ignore format: one thing

/** Counts stored values, history, snapshots and attachments regularly. Returns a function that stops it. */
export function watchRetention({ db, log, metrics }: Omit<Parts, 'everyMs'>): () => void {
  let seen = NOTHING
  let isLooking = false
  let isStopped = false
  metrics.show({
    spaces: ['number of spaces (meshes and groups with state or history)', () => seen.spaces],
    state_entries: ['current state entries, including deleted keys', () => seen.entries],
    state_bytes: ['total size of the current state entries', () => seen.entryBytes],
    history_bytes: ['total size of stored history events', () => seen.historyBytes],
    history_days: ['daily history partitions', () => seen.days],
    snapshot_oldest_seconds: [
      'age of the least recent snapshot among the newest snapshots of all spaces',
      () => seen.snapshotSeconds,
    ],
    attachments: ['stored attachments', () => seen.files],
    attachment_bytes: ['total sealed size of stored attachments', () => seen.fileBytes],
  })
  const look = async () => {
    if (isLooking) return
    isLooking = true
    try {
      seen = await readRetentionStats(db)
    } catch (error) {
      if (!(error instanceof OperatingError)) throw error
      if (!isStopped) log.warn('kept.failed', errorFields(error))
    } finally {
      isLooking = false
    }
  }
  void look()
  const timer = setInterval(() => void look(), COUNT_EVERY_MS)
  timer.unref()
  return () => {
    isStopped = true
    clearInterval(timer)
  }
}
