/**
 * Compares Sealpost with other durable brokers on this machine under the same conditions. Each round runs every server,
 * so that ratios stay valid if the machine's speed changes.
 */
import { join } from 'node:path'
import { Child, commandAll } from '@sealpost/harness/programs/child'
import { forever, Teardown } from '@sealpost/harness/programs/teardown'
import { sum } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import { OperatingError, toHex } from '@sealpost/std'
import { SDK_WINDOW, sharesOf } from '../generators/plan.ts'
import type { Report } from '../report/page.ts'
import type { RunConditions } from '../run/result.ts'
import type { RunContext } from '../run/run.ts'
import { type ClientFigures, PAYLOAD_BYTES, type RivalOrder, type RivalPhase, type RivalReply } from './client.ts'
import {
  type ComparisonResult,
  type ContenderFigures,
  type ContenderName,
  type ContenderRun,
  comparisonText,
  phaseName,
  type RivalName,
} from './result.ts'
import { type ContenderOptions, type RivalPrograms, type RivalServer, startRival, startServer } from './servers.ts'

/** The rates of the open loop, in messages per second of all peers. */
const RATES = [1_000, 5_000]
const START_IN_MS = 200
const LOOK_MS = 20

export interface ComparisonOptions {
  readonly rivals: readonly RivalName[]
  readonly rounds: number
  readonly programs: RivalPrograms
}

interface ComparisonContext extends Pick<RunContext, 'options' | 'display'> {
  readonly isColored: boolean
}

/** Runs the comparison. @throws OperatingError `rival_missing`, `rival_exited`, `rival_not_started`, `messages_lost` */
export async function runComparison(
  { rivals, rounds, programs }: ComparisonOptions,
  { options, display, isColored }: ComparisonContext,
  teardown: Teardown,
): Promise<Report> {
  for (const name of rivals) await within(teardown, (own) => startRival(name, programs, own)) // reports a missing server before the first run
  const contenders = ['sealpost', ...rivals] as const
  const versions: Partial<Record<ContenderName, string>> = {}
  const runs: ContenderRun[] = []
  let conditions: RunConditions | null = null
  for (let round = 1; round <= rounds; round++)
    for (const name of contenders) {
      const tell = (step: string) => display.step(`round ${round} of ${rounds}, ${name}: ${step}`)
      const contender = { ...options, programs, tell }
      await within(teardown, async (own) => {
        const server = await startServer(name, contender, own)
        versions[name] = server.version
        conditions ??= server.conditions
        if (own.isRunning) await forever()
        const clients = new RivalClients(name, server, contender, own)
        const measured = await Promise.race([clients.run(), server.failed])
        runs.push(...measured.map((each) => ({ ...each, server: name, round })))
      })
    }
  const { peers, messages: messagesPerPeer, seconds, generators: clients } = options
  const window = windowOf(options)
  const shape = { peers, messagesPerPeer, seconds, window, payloadBytes: PAYLOAD_BYTES, rounds, clients }
  const comparison: ComparisonResult = { ...shape, versions, runs }
  const json = { comparison, ...(conditions as RunConditions | null) }
  return { text: comparisonText(comparison, { isColored }), json, isGood: true, page: null }
}

const windowOf = ({ window }: Pick<ContenderOptions, 'window'>): number => window ?? SDK_WINDOW

/** Runs `work`, and then ends everything that it has started. */
async function within<T>(teardown: Teardown, work: (own: Teardown) => Promise<T>): Promise<void> {
  if (teardown.isRunning) await forever()
  const own = new Teardown()
  const end = teardown.add({ end: () => own.run(), kill: () => own.kill() })
  try {
    await work(own)
  } finally {
    await end()
  }
}

type PhaseRun = Omit<ContenderRun, 'server' | 'round'>
type ReplyWith<Did extends RivalReply['did']> = Extract<RivalReply, { did: Did }>

/** The client programs of one server in one round. */
class RivalClients {
  readonly #name: ContenderName
  readonly #server: RivalServer
  readonly #options: ContenderOptions
  readonly #programs: readonly Child<RivalOrder, RivalReply>[]
  readonly #received: number[]
  #phases = 0

  constructor(name: ContenderName, server: RivalServer, options: ContenderOptions, teardown: Teardown) {
    this.#name = name
    this.#server = server
    this.#options = options
    this.#received = Array.from({ length: options.generators }, () => 0)
    this.#programs = this.#received.map((_, i) => {
      const file = join(import.meta.dirname, 'client.ts')
      const program = new Child<RivalOrder, RivalReply>(`Client ${i + 1} of ${name}`, file)
      program.onReply((reply) => {
        if (reply.did === 'progress') this.#received[i] = reply.received
      })
      teardown.addProgram(program)
      return program
    })
  }

  async run(): Promise<PhaseRun[]> {
    const { peers, messages, seconds, tell } = this.#options
    tell('opening the peers')
    await this.#open()
    // Exchange keys and compile the code before the measurement.
    await this.#runPhase({ kind: 'exchange', total: peers * (peers - 1), rate: null })
    const runs: PhaseRun[] = []
    for (const rate of [null, ...RATES]) {
      tell(phaseName(rate))
      runs.push(await this.#measure(rate, rate === null ? peers * messages : rate * seconds))
    }
    return runs
  }

  async #open(): Promise<void> {
    const { port, brokerKey, mesh } = this.#server
    const { meshId, peerKeys, bindings, secrets } = mesh
    const boxKeys = bindings.map(({ boxKey }) => toHex(boxKey))
    const cast = { server: this.#name, port, brokerKey, meshId, peerKeys, boxKeys, window: windowOf(this.#options) }
    const shares = sharesOf({ first: 0, end: peerKeys.length }, this.#programs.length)
    await this.#each('open', (i) => {
      const share = shares[i]!
      return { do: 'open', cast: { ...cast, share, secrets: secrets.slice(share.first, share.end) } }
    })
  }

  async #measure(rate: number | null, total: number): Promise<PhaseRun> {
    const cpuSeconds = this.#server.cpuSeconds()
    const { startMs, rssMb, clients } = await this.#runPhase({ kind: 'measured', total, rate })
    const endMs = Math.max(...clients.map(({ lastReceivedAtMs }) => lastReceivedAtMs))
    const latencies = Float32Array.from(clients.flatMap((client) => [...client.latencies])).sort()
    const at = (share: number) => latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))]!
    const figures: ContenderFigures = {
      perSecond: (total * 1000) / (endMs - startMs),
      p50: at(0.5),
      p99: at(0.99),
      serverMicros: ((this.#server.cpuSeconds() - cpuSeconds) * 1e6) / total,
      clientMicros: (sum(clients.map((client) => client.cpuSeconds)) * 1e6) / total,
      rssMb,
    }
    return { rate, ...figures, redelivered: sum(clients.map(({ redelivered }) => redelivered)) }
  }

  /** Runs a phase. Resolves once everything is acknowledged and has arrived. */
  async #runPhase(shape: Omit<RivalPhase, 'number'>) {
    this.#phases += 1
    this.#received.fill(0)
    const phase = { ...shape, number: this.#phases }
    const startMs = clockMs() + START_IN_MS
    let isSent = false
    const sent = this.#each('sent', () => ({ do: 'run', phase, atMs: startMs })).then(() => (isSent = true))
    sent.catch(() => undefined) // prevents an unhandled rejection
    await this.#arrived(phase, () => isSent)
    await sent
    const rssMb = this.#server.rssMb()
    const clients: readonly ClientFigures[] = await this.#each('finish', () => ({ do: 'finish' }))
    return { startMs, rssMb, clients }
  }

  async #arrived({ total, rate }: RivalPhase, isSent: () => boolean): Promise<void> {
    const died = Promise.race(this.#programs.map((program) => program.died))
    let before = -1
    let movedAtMs = clockMs()
    for (;;) {
      const received = sum(this.#received)
      if (received === total && isSent()) return
      if (received > before) movedAtMs = clockMs()
      before = received
      if (clockMs() - movedAtMs > this.#options.drainMs) throw this.#lost(total - received, total, rate)
      await Promise.race([Bun.sleep(LOOK_MS), died])
    }
  }

  #lost(missing: number, total: number, rate: number | null): OperatingError {
    const sentence = `${this.#name}, ${phaseName(rate)}: ${missing} of ${total} messages did not arrive.`
    return new OperatingError('messages_lost', sentence)
  }

  #each<Did extends RivalReply['did']>(did: Did, orderOf: (i: number) => RivalOrder): Promise<ReplyWith<Did>[]> {
    return commandAll(this.#programs, orderOf, (reply): reply is ReplyWith<Did> => reply.did === did)
  }
}
