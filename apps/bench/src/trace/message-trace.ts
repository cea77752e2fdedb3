/** Records the functions that run for a plain envelope and its settle. */
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { BrokerProgram } from '@sealpost/broker-program'
import { enrolMesh, generateMesh, identityOf } from '@sealpost/harness/members/mesh'
import { startOwnBroker } from '@sealpost/harness/programs/own-broker'
import { startOwnPostgres } from '@sealpost/harness/programs/postgres'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { migrate } from '@sealpost/schema'
import { connect } from '@sealpost/sdk'
import type { Recording } from './preload.ts'

/** Files that only read and write bytes, and are no steps of the path. */
const BYTE_FILES = [
  ...['packages/protocol/src/layout.ts', 'packages/queue/src/postgres/binary.ts', 'packages/pg/src/pipeline/wire.ts'],
  ...['packages/protocol/src/cursor.ts', 'packages/protocol/src/items.ts'],
  ...['packages/queue/src/postgres/batch-writer.ts', 'packages/std/src/encodings.ts'],
]
/** Files of background work: operators' scans, and replies via postgres.js. */
const BACKGROUND = ['apps/broker/src/admin/', 'packages/pg/src/column-types.ts', 'packages/pg/src/connection.ts']
/** The function that starts periodic work. */
const PERIODIC = 'packages/driver/src/background.ts every'
const PRELOAD = join(import.meta.dirname, 'preload.ts')
/** The number of rounds, because timers run in some of them. */
const ROUNDS = 7
/** How long a round rests: longer than the SDK collects settles (100 ms) and a commit takes. */
const REST_MS = 400

export interface MessageTrace {
  /** The calls from the sender's frame to the ack and the push. */
  readonly envelope: PathTrace
  /** The calls from the recipient's frame to its commit. */
  readonly settle: PathTrace
}

export interface PathTrace {
  /** The files, in the order of first entry. */
  readonly files: readonly string[]
  /** The number of calls between files. */
  readonly moves: number
  readonly calls: number
  /** The calls in order, as `file name`. */
  readonly functions: readonly string[]
}

export async function traceMessage(teardown: Teardown): Promise<MessageTrace> {
  const { mesh, broker, recordings } = await openTracedBroker(teardown)
  const place = { url: broker.url, brokerKey: broker.brokerKey, meshId: mesh.meshId }
  const [from, to] = mesh.secrets
  const sender = await connect({ ...place, identity: identityOf(from!) })
  const recipient = await connect({ ...place, identity: identityOf(to!) })
  teardown.add({ end: async () => void (await Promise.all([sender.close(), recipient.close()])) })
  const arrivals: ((settle: () => void) => void)[] = []
  recipient.onMessage(() => new Promise<void>((settle) => arrivals.shift()!(settle)))
  const toggle = () => process.kill(broker.pid, 'SIGUSR2')

  const envelopes: Recording[] = []
  const settles: Recording[] = []
  for (let round = 0; round < ROUNDS; round++) {
    const arrival = new Promise<() => void>((resolve) => arrivals.push(resolve))
    const recording = async (made: Recording[], run: () => Promise<unknown>) => {
      toggle()
      await delay(REST_MS)
      await run()
      await delay(REST_MS)
      toggle()
      made.push(await recordings.next())
    }
    let settle: (() => void) | undefined
    await recording(envelopes, async () => {
      await sender.send(recipient.key, 'a plain message')
      settle = await arrival
    })
    await recording(settles, async () => settle?.())
  }
  return { envelope: pathOf(envelopes), settle: pathOf(settles) }
}

async function openTracedBroker(teardown: Teardown) {
  const postgres = await startOwnPostgres(teardown)
  await migrate(postgres.url)
  const mesh = await generateMesh(2)
  await enrolMesh(postgres.url, mesh, 'trace')
  const recordings = new Recordings()
  const broker: BrokerProgram = await startOwnBroker(
    {
      databaseUrl: postgres.url,
      runtimeArgs: ['--preload', PRELOAD],
      onLine: (line) => recordings.take(line),
    },
    teardown,
  )
  return { mesh, broker, recordings }
}

/** Finds the recordings in the broker's log. */
class Recordings {
  readonly #made: Recording[] = []
  #waiting: ((recording: Recording) => void) | null = null

  take(line: string): void {
    if (!line.startsWith('{"functions":')) return
    const recording = JSON.parse(line) as Recording
    if (this.#waiting) this.#waiting(recording)
    else this.#made.push(recording)
    this.#waiting = null
  }

  next(): Promise<Recording> {
    const made = this.#made.shift()
    if (made) return Promise.resolve(made)
    return new Promise((resolve) => {
      this.#waiting = resolve
    })
  }
}

/** Derives a message's path from recordings. Files in only some are background work. */
export function pathOf(recordings: readonly Recording[]): PathTrace {
  const traces = recordings.map(stepsOf)
  const common = traces.map(({ files }) => new Set(files)).reduce((all, files) => all.intersection(files))
  const shortest = traces.toSorted((a, b) => a.steps.length - b.steps.length)[0]!
  const { functions, calls } = shortest.recording
  const fileOf = (call: number) => functions[calls[call]![0]]!.file
  const steps = shortest.steps.filter((call) => common.has(fileOf(call)))
  return {
    files: [...new Set(steps.map(fileOf))],
    moves: steps.filter((call) => calls[call]![1] >= 0 && fileOf(call) !== fileOf(calls[call]![1])).length,
    calls: steps.length,
    functions: steps.map((call) => keyOf(functions[calls[call]![0]]!)),
  }
}

function stepsOf(recording: Recording) {
  const { functions, calls } = recording
  const fileOf = (call: number) => functions[calls[call]![0]]!.file
  const rootOf = (call: number): number => (calls[call]![1] < 0 ? call : rootOf(calls[call]![1]))
  const periodic = new Set(
    [...calls.keys()].filter((call) => keyOf(functions[calls[call]![0]]!) === PERIODIC).map(rootOf),
  )
  const isBackground = (root: number) => periodic.has(root) || BACKGROUND.some((path) => fileOf(root).startsWith(path))
  const isStep = (call: number) => !BYTE_FILES.includes(fileOf(call)) && !isBackground(rootOf(call))
  const steps = [...calls.keys()].filter(isStep)
  return { recording, steps, files: steps.map(fileOf) }
}

const keyOf = ({ file, name }: Recording['functions'][number]) => `${file} ${name}`
