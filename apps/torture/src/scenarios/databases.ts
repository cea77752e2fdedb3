/** A Postgres that dies, hangs, or throws its clients out. */

import type { TortureCluster } from '../cluster/stage.ts'
import type { TortureScenario } from '../scenario.ts'
import { missed } from '../scenario.ts'

function outage(name: string, summary: string, end: (stage: TortureCluster) => Promise<void>): TortureScenario {
  return {
    name,
    summary,
    strike: async (stage, fault) => {
      await stage.acks(20)
      fault.begins()
      await end(stage)
      await Bun.sleep(stage.amount(0, 2000))
      await stage.postgres.start()
      fault.ends()
    },
  }
}

export const postgresKill = outage(
  'postgres-kill',
  'kill -9 of the Postgres postmaster, or of all its programs, and a start',
  ({ random, postgres }) => (random.chance(0.5) ? postgres.kill() : postgres.killAll()),
)
export const postgresImmediate = outage(
  'postgres-immediate',
  'immediate shutdown of Postgres, and a start that recovers',
  (stage) => stage.postgres.stopAtOnce(),
)
export const postgresRestart = outage('postgres-restart', 'fast shutdown of Postgres, and a start', (stage) =>
  stage.postgres.stop(),
)

export const backendStop: TortureScenario = {
  name: 'backend-stop',
  summary: 'SIGSTOP of a Postgres backend of a broker, perhaps in the middle of a statement, and SIGCONT',
  strike: async (stage, fault) => {
    const backends = await stage.postgres.backends()
    const { pid } = stage.pick(backends)
    fault.begins()
    process.kill(pid, 'SIGSTOP')
    await Bun.sleep(stage.amount(1500, 9000))
    process.kill(pid, 'SIGCONT')
    fault.ends()
  },
}

export const terminateStorm: TortureScenario = {
  name: 'terminate-storm',
  summary: "pg_terminate_backend on all the brokers' connections, again and again",
  strike: async (stage, fault) => {
    let ended = 0
    fault.begins()
    for (let rounds = stage.amount(6, 20); rounds > 0; rounds--) {
      ended += await stage.postgres.terminateBackends()
      await Bun.sleep(stage.amount(100, 450))
    }
    fault.ends()
    if (ended < 6) throw missed(`Only ${ended} connections were ended.`)
  },
}
