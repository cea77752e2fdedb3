/** Counts stored values, history, snapshots and attachments of all meshes regularly. */
import type { Database } from '@sealpost/pg'
import { OperatingError } from '@sealpost/std'
import { type RetentionStats, readRetentionStats } from '@sealpost/store'
import { errorFields, type Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'

interface Parts {
  readonly db: Database
  readonly log: Log
  readonly metrics: Metrics
}

const LOOK_EVERY_MS = 30_000
const NOTHING: RetentionStats = { spaces: 0, entries: 0, entryBytes: 0, historyBytes: 0, snapshotSeconds: 0, days: 0, files: 0, fileBytes: 0 } // biome-ignore format: one thing

/** @returns a function that stops it */
export function watchRetention({ db, log, metrics }: Parts): () => void {
  let seen = NOTHING
  let isLooking = false
  let isStopped = false
  metrics.show({
    spaces: ['spaces: meshes and groups with state or history', () => seen.spaces],
    state_entries: ['current entries, including deleted ones', () => seen.entries],
    state_bytes: ['bytes of the current entries', () => seen.entryBytes],
    history_bytes: ['bytes of the stored events', () => seen.historyBytes],
    history_days: ['daily partitions of history that exist', () => seen.days],
    snapshot_oldest_seconds: [
      "the highest age, over all spaces, of a space's newest snapshot",
      () => seen.snapshotSeconds,
    ],
    attachments: ['stored attachments', () => seen.files],
    attachment_bytes: ['bytes of the stored attachments, as sealed', () => seen.fileBytes],
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
  const timer = setInterval(() => void look(), LOOK_EVERY_MS)
  timer.unref()
  return () => {
    isStopped = true
    clearInterval(timer)
  }
}
