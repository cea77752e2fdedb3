/** Every scenario there is. A new one is a file beside this and a line here. */
import { connections } from './connections.ts'
import { hotGroup } from './hot-group.ts'
import { httpSend } from './http-send.ts'
import { roundtrip } from './roundtrip.ts'
import type { Scenario } from './scenario.ts'
import { stream } from './stream.ts'
import { throughput } from './throughput.ts'
import { votes } from './votes.ts'

export const SCENARIOS: readonly Scenario[] = [roundtrip, connections, throughput, hotGroup, votes, httpSend, stream]

export const scenarioNamed = (name: string): Scenario | undefined =>
  SCENARIOS.find((scenario) => scenario.name === name)
