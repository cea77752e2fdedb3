/** Simulates networks that are slow, cut or silent, or that lose a reply. Each link is a `TcpProxy`. */
import type { TcpProxy } from '@sealpost/harness/programs/proxy'
import type { TortureCluster } from '../cluster/stage.ts'
import type { Fault, TortureScenario } from '../run.ts'
import { missed, setProxy } from '../run.ts'

/** The size from which a request to Postgres is a commit with envelopes. */
const COMMIT_BYTES = 600

interface Link {
  readonly proxy: TcpProxy
  /** The programs of peers that depend on the link. */
  readonly programs: readonly number[]
}

function databaseLink(stage: TortureCluster): Link {
  const broker = stage.random.below(stage.brokers.count)
  return { proxy: stage.brokers.link(broker), programs: stage.brokers.programsOf(broker) }
}

function peerLink(stage: TortureCluster): Link {
  const { program } = stage.pick(stage.writers)
  return { proxy: stage.brokers.fronts[program]!, programs: [program] }
}

async function cut({ proxy, programs }: Link, stage: TortureCluster, fault: Fault): Promise<void> {
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
  inject: async (stage, fault) => {
    await cut(databaseLink(stage), stage, fault)
    await stage.acks(50)
    await cut(peerLink(stage), stage, fault)
  },
}

export const networkDelay: TortureScenario = {
  name: 'network-delay',
  summary: 'data is delayed by up to 150 ms on one link of each kind',
  inject: async (stage, fault) => {
    const mode = { is: 'slow', delayMs: () => stage.random.below(150) } as const
    for (const link of [databaseLink(stage), peerLink(stage)])
      await setProxy(stage, fault, { ...link, mode, longestMs: 5000 })
  },
}

export const halfOpen: TortureScenario = {
  name: 'half-open',
  summary: 'connections silently stop carrying data; both ends must detect it',
  inject: async (stage, fault) => {
    const { proxy, programs } = stage.random.chance(0.5) ? databaseLink(stage) : peerLink(stage)
    if (proxy.linkCount === 0) throw missed('There was no connection to silence.')
    fault.begins(programs)
    let areForgotten = false
    void proxy.forget().then(() => {
      areForgotten = true
    })
    await stage.until('the clients of the silent connections have given up', () => areForgotten)
    fault.ends()
  },
}

export const answerLost: TortureScenario = {
  name: 'answer-lost',
  summary: 'a commit reaches Postgres, but its reply does not reach the broker, repeatedly',
  inject: async (stage, fault) => {
    for (let rounds = stage.amount(2, 5); rounds > 0; rounds--) {
      const { proxy, programs } = databaseLink(stage)
      fault.begins(programs)
      await proxy.loseReply(COMMIT_BYTES)
      fault.ends()
      await stage.acks(20)
    }
  },
}
