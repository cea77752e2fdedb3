import type { Database, Pipeline } from '@sealpost/pg'
import type { Config } from '../config/config.ts'
import type { Authenticator } from '../directory/authenticator.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { type SpaceHints, SpaceRequests } from './space-requests.ts'

interface Parts {
  readonly databases: { readonly asking: Database; readonly entries: Pipeline }
  readonly authenticator: Authenticator
  readonly spaceHints: SpaceHints
  readonly metrics: Metrics
}

export function openSpaces(config: Config, { databases, authenticator, spaceHints, metrics }: Parts): SpaceRequests {
  const parts = { asking: databases.asking, writing: databases.entries, authenticator, spaceHints }
  const { STATE_WRITES_PER_SECOND: perSecond, STATE_WRITES_BURST: burst } = config
  const requests = new SpaceRequests(parts, {
    entries: {
      entriesMax: config.STATE_ENTRIES_MAX,
      spaceBytesMax: config.STATE_BYTES_MAX,
      meshBytesMax: config.HISTORY_BYTES_MAX,
    },
    entryBytesMax: config.STATE_ENTRY_BYTES_MAX,
    writes: config.LIMITS === 'on' ? { perSecond, burst } : null,
  })
  const { counters } = requests
  metrics.count({
    state_entries_written: ['entries of shared state written, or already stored', () => counters.written],
    state_conflicts: ['entries refused with a conflict', () => counters.conflicts],
    state_entries_refused: ['entries refused for other reasons', () => counters.refused],
  })
  return requests
}
