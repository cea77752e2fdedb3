/** The settings of state and history. */
import { count, setting } from './kinds.ts'

const bytes = (max = Number.MAX_SAFE_INTEGER) => count('bytes', max)
const ENTRY_BYTES = 68 * 1024

export const historySettings = {
  REPLAYS_AT_ONCE: setting(count('answers', 64), {
    fallback: 2,
    unit: 'answers',
    meaning: 'the number of concurrent replays (long responses of state and history) of one broker; others are queued',
  }),
  HISTORY_MS: setting(count('milliseconds'), {
    fallback: 60_000,
    unit: 'milliseconds',
    meaning: 'how often the broker checks for due snapshots, and for daily partitions of history to create or drop',
  }),
  STATE_ENTRY_BYTES_MAX: setting(bytes(ENTRY_BYTES), {
    fallback: ENTRY_BYTES,
    unit: 'bytes',
    meaning: 'the maximum size of an entry of shared state',
  }),
  STATE_ENTRIES_MAX: setting(count('entries'), {
    fallback: 500_000,
    unit: 'entries',
    meaning: 'the maximum number of keys of one space, including deleted keys',
  }),
  STATE_BYTES_MAX: setting(bytes(), {
    fallback: 1024 ** 3,
    unit: 'bytes',
    meaning: 'the maximum bytes of the current entries of one space',
  }),
  HISTORY_BYTES_MAX: setting(bytes(), {
    fallback: 16 * 1024 ** 3,
    unit: 'bytes',
    meaning: 'the maximum bytes of entries and history of one mesh, in all its spaces',
  }),
  STATE_WRITES_PER_SECOND: setting(count('entries'), {
    fallback: 100,
    unit: 'entries/s',
    meaning: 'the rate at which a user can write entries, on all its devices',
  }),
  STATE_WRITES_BURST: setting(count('entries'), {
    fallback: 2000,
    unit: 'entries',
    meaning: 'the burst of these entries',
  }),
}
