/**
 * A broker as a program of its own, started and ended by a script or a test. It is ready when its log says so; what it
 * says when it can't start is the error here.
 *
 * Where `setpriv` (util-linux) is at hand the kernel ends the broker when the *thread* that started it ends, so a killed
 * script leaves none behind. Ctrl-C in a terminal does not reach it: its starter ends things in its own order.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { OperatingError, type PeerKey } from '@sealpost/std'

export interface BrokerOptions {
  readonly databaseUrl: string
  /** Over this process's own environment and over PORT=0 (any free port) on 127.0.0.1. */
  readonly env?: Readonly<Record<string, string>>
  /** For the platform, before the program: `--cpu-prof` and the like. */
  readonly words?: readonly string[]
  /** Each line of its log, and of what it says beside it. */
  readonly onLine?: (line: string) => void
}

export interface BrokerProcess {
  /** ws://host:port/v1/ws */
  readonly url: string
  readonly httpUrl: string
  /** Private: metrics and health. */
  readonly adminUrl: string
  readonly brokerKey: PeerKey
  readonly pid: number
  /** Settles when it has ended, for whatever reason, with what it said last. */
  readonly exited: Promise<string>
  /** A clean end, and after 15 seconds a hard one. Idempotent. @returns its exit code, null when it was killed */
  stop(): Promise<number | null>
  kill(): void
}

const READY_WITHIN_MS = 60_000
const STOP_WITHIN_MS = 15_000
const LINES_KEPT = 20
const MAIN = join(import.meta.dirname, '../../apps/broker/src/main.ts')

/** @throws OperatingError `broker_not_started` with what the broker said */
export async function startBroker(options: BrokerOptions): Promise<BrokerProcess> {
  const child = spawnBroker(options)
  const lastLines: string[] = []
  const ready = Promise.withResolvers<ReadyLine>()
  for (const stream of [child.stdout, child.stderr]) {
    createInterface({ input: stream! }).on('line', (line) => {
      lastLines.push(line)
      if (lastLines.length > LINES_KEPT) lastLines.shift()
      const readyLine = readyLineOf(line)
      if (readyLine) ready.resolve(readyLine)
      options.onLine?.(line)
    })
  }
  const exited = endOf(child, lastLines)
  const timer = setTimeout(() => child.kill('SIGKILL'), READY_WITHIN_MS)
  const { url, httpUrl, adminUrl, brokerKey } = await Promise.race([
    ready.promise,
    exited.then((lastWords) => {
      throw new OperatingError('broker_not_started', `The broker did not start: ${lastWords}`)
    }),
  ]).finally(() => clearTimeout(timer))
  return {
    url,
    httpUrl,
    adminUrl,
    brokerKey: brokerKey as PeerKey,
    pid: child.pid!,
    exited,
    stop: () => stop(child, exited),
    kill: () => void child.kill('SIGKILL'),
  }
}

interface ReadyLine {
  url: string
  httpUrl: string
  adminUrl: string
  brokerKey: string
}

function spawnBroker({ databaseUrl, env = {}, words: platformWords = [] }: BrokerOptions): ChildProcess {
  const [program, ...words] = [...leash(), process.execPath, ...platformWords, MAIN]
  return spawn(program!, words, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: {
      ...SMALL_HEAP,
      ...process.env,
      HOST: '127.0.0.1',
      PORT: '0',
      ADMIN_PORT: '0',
      ...env,
      DATABASE_URL: databaseUrl,
    },
    detached: true,
  })
}

/**
 * The platform lets garbage grow by the size of the machine; told a smaller one it collects earlier. Measured over a
 * burst of 100,000 messages on a machine of 24 GB: 128–139 MB; with 200 MB told 153–159, at 3 µs less of CPU a message.
 */
const SMALL_HEAP = { BUN_JSC_forceRAMSize: String(120_000_000) }

let leashWords: string[] | undefined

function leash(): string[] {
  leashWords ??= hasLeash() ? ['setpriv', '--pdeathsig', 'TERM'] : []
  return leashWords
}

function hasLeash(): boolean {
  if (process.platform !== 'linux' || !Bun.which('setpriv')) return false
  return Bun.spawnSync(['setpriv', '--pdeathsig', 'TERM', 'true'], { stderr: 'ignore' }).success
}

function readyLineOf(line: string): ReadyLine | null {
  if (!line.includes('broker.ready')) return null
  try {
    const fields = JSON.parse(line) as ReadyLine & { event: string }
    return fields.event === 'broker.ready' ? fields : null
  } catch {
    return null // a line that only speaks of it
  }
}

/** Resolves with its last words: the sentence on stderr, or the log line of an error, or how it ended. */
async function endOf(child: ChildProcess, lastLines: string[]): Promise<string> {
  try {
    const [code, signal] = (await once(child, 'close')) as [number | null, string | null]
    const last = lastLines.findLast((line) => !line.startsWith('{') || /"level":"(error|fatal)"/.test(line))
    return last ?? (signal ? `it was ended by ${signal}` : `it ended with exit code ${code}`)
  } catch (error) {
    return (error as Error).message // there is no such program
  }
}

async function stop(child: ChildProcess, exited: Promise<string>): Promise<number | null> {
  if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_WITHIN_MS)
  await exited
  clearTimeout(timer)
  return child.exitCode
}
