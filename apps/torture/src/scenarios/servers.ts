/** Brokers and Postgres servers that die, hang, are replaced, or lose their connections. */

import type { TortureCluster } from '../cluster/stage.ts'
import type { TortureScenario } from '../run.ts'
import { missed, stopProcess } from '../run.ts'

/** Waits until the broker's peers have unanswered sends, so that its end can lose something. */
async function midBurst(stage: TortureCluster, broker: number): Promise<void> {
  const programs = stage.brokers.programsOf(broker)
  await stage.until('the peers of the broker have unanswered sends', () =>
    programs.some((program) => stage.population.progressOf(program).pending > 0),
  )
}

const brokerOf = (stage: TortureCluster) => stage.random.below(stage.brokers.count)

export const brokerKill: TortureScenario = {
  name: 'broker-kill',
  summary: 'kill -9 of a broker in the middle of a burst',
  inject: async (stage, fault) => {
    const broker = brokerOf(stage)
    await midBurst(stage, broker)
    fault.begins(stage.brokers.programsOf(broker))
    await stage.brokers.kill(broker)
    await Bun.sleep(stage.amount(0, 1500))
    await stage.brokers.start(broker)
    fault.ends()
  },
}

export const brokerStop: TortureScenario = {
  name: 'broker-stop',
  summary: 'SIGSTOP of a broker, longer than its heartbeat, and SIGCONT',
  inject: async (stage, fault) => {
    const broker = brokerOf(stage)
    await midBurst(stage, broker)
    await stopProcess(stage, fault, {
      pid: stage.brokers.pid(broker),
      programs: stage.brokers.programsOf(broker),
      longestMs: 8000,
    })
  },
}

export const rollingDeploy: TortureScenario = {
  name: 'rolling-deploy',
  summary: 'every broker in turn is replaced by a new one under load, and ended by SIGTERM',
  inject: async (stage, fault) => {
    for (let broker = 0; broker < stage.brokers.count; broker++) {
      fault.begins(stage.brokers.programsOf(broker))
      await stage.brokers.roll(broker)
      fault.ends()
      await stage.acks(50)
    }
  },
}

export const herd: TortureScenario = {
  name: 'herd',
  summary: 'a broker is killed under 2,000 sessions, which all come back at once',
  crowd: { short: 200, full: 2000 },
  inject: async (stage, fault) => {
    const { brokers, population, crowd } = stage
    const [program] = crowd.map((member) => member.program)
    const broker = program! % brokers.count
    await population.join(crowd)
    const online = () => population.progressOf(program!).online
    await stage.until('the crowd is online', () => online() === crowd.length)
    fault.begins(brokers.programsOf(broker))
    await brokers.kill(broker)
    await stage.until('the crowd has noticed', () => online() < crowd.length / 2)
    await brokers.start(broker)
    fault.ends()
    await stage.until('the whole crowd is online again', () => online() === crowd.length)
    await population.leave(crowd)
    if (crowd.length < 2) throw missed('There was no crowd.')
  },
}

function outage(name: string, summary: string, end: (stage: TortureCluster) => Promise<void>): TortureScenario {
  return {
    name,
    summary,
    inject: async (stage, fault) => {
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
  inject: async (stage, fault) => {
    const { pid } = stage.pick(await stage.postgres.backends())
    await stopProcess(stage, fault, { pid, longestMs: 9000 })
  },
}

export const terminateStorm: TortureScenario = {
  name: 'terminate-storm',
  summary: "pg_terminate_backend on all the brokers' connections, again and again",
  inject: async (stage, fault) => {
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
