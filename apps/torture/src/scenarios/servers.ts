/** Brokers that die, hang, or are replaced. */
import type { TortureCluster } from '../cluster/stage.ts'
import { missed, type TortureScenario } from '../run.ts'

/** Something is on its way to it, so that its end can lose something. */
async function midBurst(stage: TortureCluster, broker: number): Promise<void> {
  const programs = stage.brokers.programsOf(broker)
  await stage.until('its peers have sent what is not answered yet', () =>
    programs.some((program) => stage.population.progressOf(program).pending > 0),
  )
}

const brokerOf = (stage: TortureCluster) => stage.random.below(stage.brokers.count)

export const brokerKill: TortureScenario = {
  name: 'broker-kill',
  summary: 'kill -9 of a broker in the middle of a burst',
  strike: async (stage, fault) => {
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
  strike: async (stage, fault) => {
    const broker = brokerOf(stage)
    await midBurst(stage, broker)
    const pid = stage.brokers.pid(broker)
    fault.begins(stage.brokers.programsOf(broker))
    process.kill(pid, 'SIGSTOP')
    await Bun.sleep(stage.amount(1500, 8000))
    process.kill(pid, 'SIGCONT')
    fault.ends()
  },
}

export const rollingDeploy: TortureScenario = {
  name: 'rolling-deploy',
  summary: 'every broker in turn is replaced by a new one under load, and ended by SIGTERM',
  strike: async (stage, fault) => {
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
  strike: async (stage, fault) => {
    const { brokers, population, crowd } = stage
    const [program] = crowd.map((member) => member.program)
    const broker = program! % brokers.count
    await population.join(crowd)
    const online = () => population.progressOf(program!).online
    await stage.until('the crowd is there', () => online() === crowd.length)
    fault.begins(brokers.programsOf(broker))
    await brokers.kill(broker)
    await stage.until('the crowd has noticed', () => online() < crowd.length / 2)
    await brokers.start(broker)
    fault.ends()
    await stage.until('all are back', () => online() === crowd.length)
    await population.leave(crowd)
    if (crowd.length < 2) throw missed('There was no crowd.')
  },
}

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
