/** Brokers that die, hang, or are replaced. */

import type { TortureCluster } from '../cluster/stage.ts'
import type { TortureScenario } from '../scenario.ts'
import { missed } from '../scenario.ts'

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
