/** The rows of the configuration that are about state and history. */
import { count, setting } from './kinds.ts'

const bytes = (max = Number.MAX_SAFE_INTEGER) => count('bytes', max)
const ENTRY_BYTES = 68 * 1024

export const historySettings = {
  REPLAYS_AT_ONCE: setting(count('answers', 64), {
    fallback: 2,
    unit: 'answers',
    meaning: 'long answers of state and history that one broker gives at a time; the others wait in line',
  }),
  HISTORY_MS: setting(count('milliseconds'), {
    fallback: 60_000,
    unit: 'milliseconds',
    meaning: 'how often to look whether a snapshot is due, and which days of history are to come or may go',
  }),
  STATE_ENTRY_BYTES_MAX: setting(bytes(ENTRY_BYTES), {
    fallback: ENTRY_BYTES,
    unit: 'bytes',
    meaning: 'the largest entry of shared state',
  }),
  STATE_ENTRIES_MAX: setting(count('entries'), {
    fallback: 500_000,
    unit: 'entries',
    meaning: 'keys of one space, those that were deleted among them',
  }),
  STATE_BYTES_MAX: setting(bytes(), {
    fallback: 1024 ** 3,
    unit: 'bytes',
    meaning: 'entries that stand in one space',
  }),
  HISTORY_BYTES_MAX: setting(bytes(), {
    fallback: 16 * 1024 ** 3,
    unit: 'bytes',
    meaning: 'entries and history of one mesh, in all its spaces',
  }),
  STATE_WRITES_PER_SECOND: setting(count('entries'), {
    fallback: 100,
    unit: 'entries/s',
    meaning: 'entries that a person may write each second, on all its devices',
  }),
  STATE_WRITES_BURST: setting(count('entries'), { fallback: 2000, unit: 'entries', meaning: 'and in a burst' }),
}
