/** Every scenario there is. A new one is a file beside this, a line here, and a size in `mixed`. */
import { attachments } from './attachments.ts'
import { burst } from './burst.ts'
import { connections } from './connections.ts'
import { hotGroup } from './hot-group.ts'
import { httpCeiling } from './http-ceiling.ts'
import { httpGroupSend } from './http-group-send.ts'
import { httpSend } from './http-send.ts'
import { listing } from './listing.ts'
import { mixed } from './mixed.ts'
import { reactions } from './reactions.ts'
import { replay } from './replay.ts'
import { roundtrip } from './roundtrip.ts'
import type { Scenario } from './scenario.ts'
import { soak } from './soak.ts'
import { stream } from './stream.ts'
import { sweep } from './sweep.ts'
import { throughput } from './throughput.ts'
import { votes } from './votes.ts'

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
