/** Lists all scenarios. For a new one, add a file, a line below, and a size in `mixed`. */

import { soak } from '../soak/soak.ts'
import { httpCeiling, throughput } from './ceiling.ts'
import { listing } from './history/listing.ts'
import { reactions } from './history/reactions.ts'
import { replay } from './history/replay.ts'
import { httpGroupSend } from './http/http-group-send.ts'
import { httpSend } from './http/http-send.ts'
import { roundtrip } from './http/roundtrip.ts'
import { votes } from './http/votes.ts'
import { attachments } from './messages/attachments.ts'
import { burst, sweep } from './messages/burst.ts'
import { connections } from './messages/connections.ts'
import { hotGroup } from './messages/hot-group.ts'
import { mixed } from './messages/mixed.ts'
import { stream } from './messages/stream.ts'
import type { Scenario } from './scenario.ts'

export const SCENARIOS: readonly Scenario[] = [
  burst,
  sweep,
  roundtrip,
  connections,
  throughput,
  hotGroup,
  votes,
  httpSend,
  httpCeiling,
  httpGroupSend,
  stream,
  attachments,
  replay,
  listing,
  reactions,
  mixed,
  soak,
]
