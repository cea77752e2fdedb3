/** Composes shared state. */
import type { Database, Pipeline } from '@sealpost/pg'
import type { Config } from '../config/config.ts'
import type { Authenticator } from '../directory/authenticator.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { SpaceNews } from './space-news.ts'
import { SpaceDesk } from './space-service.ts'

interface Parts {
  readonly databases: { readonly asking: Database; readonly entries: Pipeline }
  readonly authenticator: Authenticator
  readonly news: SpaceNews
  readonly metrics: Metrics
}

export function openSpaces(config: Config, { databases, authenticator, news, metrics }: Parts): SpaceDesk {
  const parts = { asking: databases.asking, writing: databases.entries, authenticator, news }
  const { STATE_WRITES_PER_SECOND: perSecond, STATE_WRITES_BURST: burst } = config
  const desk = new SpaceDesk(parts, {
    entries: {
      entriesMax: config.STATE_ENTRIES_MAX,
      spaceBytesMax: config.STATE_BYTES_MAX,
      meshBytesMax: config.HISTORY_BYTES_MAX,
    },
    entryBytesMax: config.STATE_ENTRY_BYTES_MAX,
    writes: config.LIMITS === 'on' ? { perSecond, burst } : null,
  })
  const { counters } = desk
  metrics.count({
    state_entries_written: ['entries of shared state written, or already stored', () => counters.written],
    state_conflicts: ['entries refused with a conflict', () => counters.conflicts],
    state_entries_refused: ['entries refused for other reasons', () => counters.refused],
  })
  return desk
}
