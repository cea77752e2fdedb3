/** Makes brokers and Postgres servers die, hang, be replaced, or lose their connections. */

import type { TortureCluster } from '../cluster/stage.ts'
import type { TortureScenario } from '../run.ts'
import { missed, stopProcess } from '../run.ts'

/** Waits for unanswered sends, so that the broker's end loses some. */
async function midBurst(stage: TortureCluster, broker: number): Promise<void> {
  const programs = stage.brokers.programsOf(broker)
  await stage.until('the peers of the broker have unanswered sends', () =>
    programs.some((program) => stage.population.progressOf(program).pending > 0),
  )
}

const brokerOf = (stage: TortureCluster) => stage.random.below(stage.brokers.count)

export const brokerKill: TortureScenario = {
  name: 'broker-kill',
  summary: 'a broker is killed (kill -9) in the middle of a burst',
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
  summary: 'a broker is suspended (SIGSTOP) for longer than its heartbeat, and resumed',
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
  summary: 'every broker in turn is replaced under load and ended with SIGTERM',
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
  summary: 'a broker with 2,000 sessions is killed, and all of them reconnect at once',
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
    if (crowd.length < 2) throw missed('There were no sessions to disconnect.')
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
  'the Postgres postmaster or all its processes are killed (kill -9), and Postgres is started again',
  ({ random, postgres }) => (random.chance(0.5) ? postgres.kill() : postgres.killAll()),
)
export const postgresImmediate = outage(
  'postgres-immediate',
  'Postgres is stopped in immediate mode, and recovers at its next start',
  (stage) => stage.postgres.stopAtOnce(),
)
export const postgresRestart = outage(
  'postgres-restart',
  'Postgres is stopped in fast mode, and started again',
  (stage) => stage.postgres.stop(),
)

export const backendStop: TortureScenario = {
  name: 'backend-stop',
  summary: 'a Postgres backend of a broker is suspended (SIGSTOP), possibly during a statement, and resumed',
  inject: async (stage, fault) => {
    const { pid } = stage.pick(await stage.postgres.backends())
    await stopProcess(stage, fault, { pid, longestMs: 9000 })
  },
}

export const terminateStorm: TortureScenario = {
  name: 'terminate-storm',
  summary: 'all connections of the brokers are ended with pg_terminate_backend, repeatedly',
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
