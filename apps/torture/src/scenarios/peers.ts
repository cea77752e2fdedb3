/** Simulates peers that hang, are slow, never read, are absent, reject a message, or are very numerous. */

import { peakRssMb } from '@sealpost/harness/programs/machine'
import { OperatingError } from '@sealpost/std'
import type { Measure, TortureCluster, TortureClusterOptions } from '../cluster/stage.ts'
import { setProxy, stopProcess, type TortureScenario } from '../run.ts'

const programOf = (stage: TortureCluster) => stage.pick(stage.writers).program

export const peerStop: TortureScenario = {
  name: 'peer-stop',
  summary: 'a process of peers is suspended (SIGSTOP) and resumed',
  inject: async (stage, fault) => {
    const program = programOf(stage)
    await stopProcess(stage, fault, { pid: stage.population.pid(program), programs: [program], longestMs: 8000 })
  },
}

export const slowConsumer: TortureScenario = {
  name: 'slow-consumer',
  summary: 'the applications of a quarter of the peers handle messages slowly',
  inject: async (stage, fault) => {
    const slow = stage.writers.filter((_, i) => i % 4 === 0)
    fault.begins()
    stage.population.dawdle(slow, 200)
    await Bun.sleep(stage.amount(1500, 6000))
    stage.population.dawdle(slow, 0)
    fault.ends()
  },
}

export const neverReading: TortureScenario = {
  name: 'never-reading',
  summary: 'a process of peers stops reading its sockets for a while',
  inject: async (stage, fault) => {
    const program = programOf(stage)
    const proxy = stage.brokers.fronts[program]!
    await setProxy(stage, fault, { proxy, programs: [program], mode: { is: 'never reading' }, longestMs: 8000 })
  },
}

export const mailBomb: TortureScenario = {
  name: 'mail-bomb',
  summary: 'one peer sends thousands of messages to an offline peer, which then receives them',
  inject: async (stage, fault) => {
    const target = stage.pick(stage.sleepers)
    const bomber = stage.pick(stage.writers.filter(({ meshNo }) => meshNo === target.meshNo))
    const count = stage.amount(1000, 5000)
    fault.begins()
    await stage.population.burst({ from: bomber.no, to: target.no, count, kind: 'plain' })
    fault.ends()
    await stage.population.join([target])
    await stage.until('the target has received them', async () => (await stage.queuedFor(target)) < count / 100)
    await stage.population.leave([target])
  },
}

export const poison: TortureScenario = {
  name: 'poison',
  summary: "the recipient's handler throws for some messages until they become dead letters",
  inject: async (stage, fault) => {
    const victim = stage.pick(stage.writers)
    const sender = stage.pick(stage.writers.filter(({ meshNo, no }) => meshNo === victim.meshNo && no !== victim.no))
    const count = 3
    const before = await stage.postgres.countDead('strikes')
    fault.begins()
    await stage.population.burst({ from: sender.no, to: victim.no, count, kind: 'poison' })
    fault.ends()
    await stage.until(
      'the messages are dead letters',
      async () => (await stage.postgres.countDead('strikes')) >= before + count,
    )
  },
}

const RSS_MB_MAX = 512
const IDLE_PROGRAMS = 4
const SIZES: Readonly<Record<Measure, { idle: number; deaf: number; bodyBytes: number }>> = {
  short: { idle: 400, deaf: 40, bodyBytes: 4096 },
  full: { idle: 10_000, deaf: 200, bodyBytes: 4096 },
}
/** The program that writes and stops reading. Number 0 writes and reads, and others are idle. */
const DEAF = 1

function manySockets(measure: Measure): Partial<TortureClusterOptions> {
  const { idle, deaf, bodyBytes } = SIZES[measure]
  const silent = { peers: idle / IDLE_PROGRAMS, isWriting: false, sleepers: 0, isDirect: true }
  return {
    brokers: 1,
    meshes: 1,
    bodyBytes,
    env: { LEASE_MS: '60000' }, // one program runs many peers, so it settles late
    casts: [
      { peers: 12, isWriting: true, sleepers: 0 },
      { peers: deaf, isWriting: true, sleepers: 0 },
      ...Array.from({ length: IDLE_PROGRAMS }, () => silent),
    ],
  }
}

export const sockets: TortureScenario = {
  name: 'sockets',
  summary: `with 10,000 idle sessions and 200 that never read, the broker stays below ${RSS_MB_MAX} MB`,
  alone: (measure) => ({ setting: manySockets(measure) }),
  inject: async (stage, fault) => {
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
      throw new OperatingError(
        'memory_exceeded',
        `The broker used ${Math.round(rssMb)} MB, more than ${RSS_MB_MAX} MB.`,
      )
    await population.leave(crowd)
  },
}
