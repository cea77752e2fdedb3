import type { Rate } from '@sealpost/core'
import type { Driver } from '@sealpost/driver'
import type { Database } from '@sealpost/pg'
import type { FrameOf } from '@sealpost/protocol'
import type { Queue } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'
import type { AttachmentParts } from '../attachments/http.ts'
import type { Authenticator } from '../directory/authenticator.ts'
import type { Replays } from '../history/replays.ts'
import type { Intakes } from '../server/intake.ts'
import type { SpaceRequests } from '../spaces/space-requests.ts'
import type { Log } from '../telemetry/log.ts'
import { apiRoutes } from './api.ts'
import { Challenges } from './challenges.ts'
import { GroupRosters } from './mailbox/group-routes.ts'
import { Inboxes } from './mailbox/polled-connection.ts'
import { RequestLimits } from './route-parts.ts'
import { Tokens } from './tokens.ts'

interface Parts {
  readonly driver: Driver
  readonly queue: Queue
  readonly db: Database
  readonly authenticator: Authenticator
  readonly attachments: AttachmentParts
  readonly spaces: SpaceRequests
  readonly replays: Replays
  readonly log: Log
}

interface Options {
  readonly greet: () => FrameOf<'hello'>
  readonly pollingIdleMs: Millis
  /** The request rate of one peer; `null` disables rate limits. */
  readonly rate: Rate | null
  /** The parse limit of a peer, over HTTP and its socket; `null`: none. */
  readonly intakes: Intakes | null
}

/** A handshake costs both sides a signature and a database lookup. */
const UNPROVEN_RATE: Rate = { perSecond: 20, burst: 100 }
const UNPROVEN_AT_A_TIME = 64
/** Limits the memory of one peer's requests: a send is at most as large as a frame. */
const PEER_AT_A_TIME = 16
const ENDS_WITHIN_MS = 1000

export function openApi(parts: Parts, { greet, pollingIdleMs, rate, intakes }: Options) {
  const { driver, queue, db, authenticator, attachments, spaces, replays, log } = parts
  const challenges = new Challenges(greet)
  const unproven = new RequestLimits(rate && UNPROVEN_RATE, UNPROVEN_AT_A_TIME)
  const peers = new RequestLimits(rate, PEER_AT_A_TIME)
  const tokens = new Tokens({ db, authenticator, challenges })
  const groups = new GroupRosters(db)
  const inboxes = new Inboxes(driver, queue, pollingIdleMs)
  const app = apiRoutes({
    driver,
    queue,
    tokens,
    challenges,
    inboxes,
    groups,
    attachments,
    spaces,
    replays,
    unproven,
    intakes,
    peers,
    log,
  })
  return {
    app,
    ended: async (): Promise<void> => {
      const deadline = performance.now() + ENDS_WITHIN_MS
      while (!(peers.isIdle && unproven.isIdle) && performance.now() < deadline) await Bun.sleep(10)
    },
  }
}
