/** Networks that are slow, cut, silent, or lose an answer. Each link is a proxy (`proxy.ts`). */
import type { TcpProxy } from '@sealpost/harness/programs/proxy'
import type { TortureCluster } from '../cluster/stage.ts'
import type { Fault, TortureScenario } from '../run.ts'
import { missed } from '../run.ts'

/** Of this size a request to Postgres carries envelopes: a commit. */
const COMMIT_BYTES = 600

interface Broken {
  readonly proxy: TcpProxy
  /** Whom it reaches. */
  readonly programs: readonly number[]
}

/** The link of a broker with Postgres, or of a program of peers with its broker. */
const linkOf = (stage: TortureCluster): Broken => (stage.random.chance(0.5) ? databaseLink(stage) : peerLink(stage))

function databaseLink(stage: TortureCluster): Broken {
  const broker = stage.random.below(stage.brokers.count)
  return { proxy: stage.brokers.link(broker), programs: stage.brokers.programsOf(broker) }
}

function peerLink(stage: TortureCluster): Broken {
  const { program } = stage.pick(stage.writers)
  return { proxy: stage.brokers.fronts[program]!, programs: [program] }
}

async function whileDown({ proxy, programs }: Broken, stage: TortureCluster, fault: Fault): Promise<void> {
  if (proxy.linkCount === 0) throw missed('There was no connection to cut.')
  fault.begins(programs)
  proxy.set({ is: 'down' })
  proxy.cut()
  await Bun.sleep(stage.amount(500, 3000))
  proxy.set({ is: 'up' })
  fault.ends()
}

export const networkCut: TortureScenario = {
  name: 'network-cut',
  summary: 'connections are reset and new ones refused, between peers and broker and between broker and Postgres',
  strike: async (stage, fault) => {
    await whileDown(databaseLink(stage), stage, fault)
    await stage.acks(50)
    await whileDown(peerLink(stage), stage, fault)
  },
}

export const networkDelay: TortureScenario = {
  name: 'network-delay',
  summary: 'every piece of bytes takes up to 150 ms, on a link of each kind',
  strike: async (stage, fault) => {
    for (const { proxy, programs } of [databaseLink(stage), peerLink(stage)]) {
      const delayMs = () => stage.random.below(150)
      fault.begins(programs)
      proxy.set({ is: 'slow', delayMs })
      await Bun.sleep(stage.amount(1500, 5000))
      proxy.set({ is: 'up' })
      fault.ends()
    }
  },
}

export const halfOpen: TortureScenario = {
  name: 'half-open',
  summary: 'connections carry nothing any more and nobody is told; they must find out',
  strike: async (stage, fault) => {
    const { proxy, programs } = linkOf(stage)
    if (proxy.linkCount === 0) throw missed('There was no connection to silence.')
    fault.begins(programs)
    let areForgotten = false
    void proxy.forget().then(() => {
      areForgotten = true
    })
    await stage.until('those who called have given up', () => areForgotten)
    fault.ends()
  },
}

export const answerLost: TortureScenario = {
  name: 'answer-lost',
  summary: 'a commit reaches Postgres and its answer does not reach the broker, again and again',
  strike: async (stage, fault) => {
    for (let rounds = stage.amount(2, 5); rounds > 0; rounds--) {
      const { proxy, programs } = databaseLink(stage)
      fault.begins(programs)
      await proxy.loseReply(COMMIT_BYTES)
      fault.ends()
      await stage.acks(20)
    }
  },
}
