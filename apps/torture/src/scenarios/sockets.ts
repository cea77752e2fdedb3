/** Very many sessions, most of them idle, and some that are sent mail and never read it. */

import { peakRssMb } from '@sealpost/harness/programs/process-facts'
import { OperatingError } from '@sealpost/std'
import type { Measure, TortureClusterOptions } from '../cluster/stage.ts'
import type { TortureScenario } from '../scenario.ts'

const RSS_MB_MAX = 512
const IDLE_PROGRAMS = 4
const SIZES: Readonly<Record<Measure, { idle: number; deaf: number; bodyBytes: number }>> = {
  short: { idle: 400, deaf: 40, bodyBytes: 4096 },
  full: { idle: 10_000, deaf: 200, bodyBytes: 4096 },
}
/** Programs of peers: one that writes and reads, one that writes and stops reading, and the idle ones. */
const DEAF = 1

function settingFor(measure: Measure): Partial<TortureClusterOptions> {
  const { idle, deaf, bodyBytes } = SIZES[measure]
  const silent = { peers: idle / IDLE_PROGRAMS, isWriting: false, sleepers: 0, isDirect: true }
  return {
    brokers: 1,
    meshes: 1,
    bodyBytes,
    env: { LEASE_MS: '60000' }, // there are many, and their program settles what is pushed only after a while
    casts: [
      { peers: 12, isWriting: true, sleepers: 0 },
      { peers: deaf, isWriting: true, sleepers: 0 },
      ...Array.from({ length: IDLE_PROGRAMS }, () => silent),
    ],
  }
}

export const sockets: TortureScenario = {
  name: 'sockets',
  summary: `10,000 idle sessions and 200 that never read: the broker stays under ${RSS_MB_MAX} MB`,
  alone: (measure) => ({ setting: settingFor(measure) }),
  strike: async (stage, fault) => {
    const { population, brokers, crowd } = stage
    await population.join(crowd)
    const front = brokers.fronts[DEAF]!
    fault.begins([DEAF])
    front.set({ is: 'never reading' })
    await stage.acks(stage.amount(400, 8000))
    front.set({ is: 'up' })
    fault.ends()
    const online = population.progress.online
    if (online < crowd.length) throw new OperatingError('sessions_lost', `Only ${online} sessions are left.`)
    const rssMb = peakRssMb(brokers.pid(0))
    if (rssMb !== null && rssMb > RSS_MB_MAX)
      throw new OperatingError('memory_exceeded', `The broker took ${Math.round(rssMb)} MB, over ${RSS_MB_MAX}.`)
    await population.leave(crowd)
  },
}
