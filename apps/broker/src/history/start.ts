/** Composes state and history: writing, reading, and upkeep. */
import { CopyOutPool, openDatabase, openPipeline } from '@sealpost/pg'
import { REPLAY_SESSION } from '@sealpost/replay'
import type { Config } from '../config/config.ts'
import type { DatabaseOrigin } from '../database/origin.ts'
import type { Authenticator } from '../directory/authenticator.ts'
import type { SpaceHints } from '../spaces/space-requests.ts'
import { openSpaces } from '../spaces/space-requests.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { Followers } from './followers.ts'
import { HistoryPages, ReplaySlots, Replays } from './replays.ts'
import { HistoryUpkeep, UPKEEP_STATEMENT_MS, watchRetention } from './upkeep.ts'

interface Parts {
  readonly spaceHints: SpaceHints
  readonly log: Log
  readonly metrics: Metrics
  readonly databases: Parameters<typeof openSpaces>[1]['databases']
  readonly origin: DatabaseOrigin
  readonly authenticator: Authenticator
}

/**
 * The maximum duration of a response, during which vacuum can't remove dead rows. A reader that is cut off can resume.
 */
const LONGEST_MS = 120_000
const WAITING_MAX = 256
const WAITING_EACH_MAX = 12

export async function openHistory(
  config: Config,
  { databases, origin, authenticator, spaceHints, log, metrics }: Parts,
) {
  const spaces = openSpaces(config, { databases, authenticator, spaceHints, metrics })
  const settings = { ...REPLAY_SESSION }
  const atATime = config.REPLAYS_AT_ONCE
  const db = await openDatabase(config.DATABASE_URL, {
    ...{ applicationName: 'sealpost history', connections: 2, settings },
    statementTimeoutMs: UPKEEP_STATEMENT_MS,
    ...origin.guard,
  })
  const paging = await openPipeline(config.DATABASE_URL, {
    applicationName: 'sealpost pages',
    connections: 2,
    settings,
    ...origin.guard,
  })
  origin.guards(db)
  origin.guards(paging)
  const copies = new CopyOutPool(config.DATABASE_URL, {
    ...{ applicationName: 'sealpost replay', settings, idleMax: atATime },
    statementTimeoutMs: LONGEST_MS,
  })
  const slots = new ReplaySlots({ atATime, waitingMax: WAITING_MAX, waitingEachMax: WAITING_EACH_MAX })
  const followers = new Followers({ db: paging, spaceHints, pollMs: config.POLL_MS })
  const upkeep = new HistoryUpkeep({ db, log, metrics, everyMs: config.HISTORY_MS })
  const stopWatching = watchRetention({ db, log, metrics })
  spaceHints.onChange(() => upkeep.soon())
  metrics.show({
    replays_running: ['replays in progress', () => slots.running],
    replays_waiting: ['replays waiting in the queue', () => slots.waiting],
    followers: ["open requests that follow a space's history", () => followers.count],
  })
  return {
    spaces,
    replays: new Replays({
      db,
      copies,
      slots,
      metrics,
      pages: new HistoryPages(paging),
      followers,
      spaces: spaces.spaces,
    }),
    stop: async (): Promise<void> => {
      upkeep.stop()
      stopWatching()
      await Promise.all([copies.close(), paging.close(), db.close()])
    },
  }
}
