/**
 * Runs the broker as a child process, which is ready when it logs `broker.ready`. Ctrl-C in a terminal does not reach
 * it, so the parent controls the shutdown. With `setpriv` (util-linux), it ends with the *thread* that started it.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { type Millis, OperatingError, type PeerKey } from '@sealpost/std'

export interface BrokerFacts {
  /** ws://host:port/v1/ws, or wss:// */
  readonly url: string
  readonly httpUrl: string
  /** The private address for metrics, health and the operator API. */
  readonly adminUrl: string
  /** Present if `DEMO` is on. */
  readonly demoUrl?: string
  readonly brokerKey: PeerKey
  readonly pid: number
}

export interface BrokerProgram extends BrokerFacts {
  /** Resolves with the broker's last output once it has ended for any reason. */
  readonly exited: Promise<string>
  /** Stops the broker, and kills it after 15 seconds. Idempotent. */
  stop(): Promise<void>
  kill(): void
}

export interface BrokerOptions {
  /** The complete environment, which inherits nothing. */
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Arguments for the runtime, such as `--cpu-prof`. */
  readonly runtimeArgs?: readonly string[]
  /** A compiled program to run instead, without `runtimeArgs`. */
  readonly program?: string | undefined
  /** Called with each line of output. */
  readonly onLine?: (line: string) => void
}

/**
 * Settings that the Bun runtime reads when a process starts.
 *
 * RAM size: the runtime lets garbage grow with the machine's memory, so a smaller RAM size makes it collect earlier.
 * With 200 MB instead of 100 MB, p99 at 5,000 messages per second falls from 20 to 13 ms, but memory use under this
 * load grows by 95 MB (docs/benchmarks/notes/latency.md).
 *
 * Generation ratio: by default, every second collection is a full one. It runs concurrently for 35 ms and ends with a
 * pause of 10 ms. At 1,000 messages per second this happened twice a second and caused most of the p99. A lower ratio
 * makes full collections rarer and uses no more memory.
 *
 * Timer: by default, an idle runtime collects once a second. Every second collection covers the whole heap, which takes
 * 0.1 s with 10,000 sessions. With a collection every minute, and rarer counts of an empty queue, 1,000 idle sessions
 * cost 0.9 to 1.3 % of a core, compared with 1.2 to 1.5 %.
 *
 * Threshold: in a burst in which half of the messages crossed between two brokers, the last compiler tier took a
 * quarter of the brokers' CPU. With a ten times higher threshold, it compiles only code that runs all the time. A
 * message then cost 59 µs on both brokers together, compared with 78 µs.
 */
export const RUNTIME_SETTINGS: Readonly<Record<string, string>> = {
  BUN_JSC_forceRAMSize: '200000000',
  BUN_JSC_minEdenToOldGenerationRatio: '0.17',
  BUN_GC_TIMER_INTERVAL: '60000',
  BUN_JSC_thresholdForFTLOptimizeAfterWarmUp: '1000000',
}

const MAIN = join(import.meta.dirname, '../../../apps/broker/src/main.ts')

/** The argument that makes the compiled program run as the broker. */
export const BROKER_ARGUMENT = 'broker'

/** Returns the broker's command. A compiled program accepts no runtime arguments. */
export const brokerCommand = (runtimeArgs: readonly string[] = []): readonly [string, ...string[]] =>
  Bun.isStandaloneExecutable ? [process.execPath, BROKER_ARGUMENT] : [process.execPath, ...runtimeArgs, MAIN]

const READY_WITHIN_MS: Millis = 60_000
const STOP_WITHIN_MS: Millis = 15_000

/**
 * Starts a broker. @throws OperatingError `broker_not_started` (with the broker's last output), `port_taken`, and the
 * codes of `readTls`
 */
export async function startBroker(options: BrokerOptions): Promise<BrokerProgram> {
  const child = spawnBroker(options)
  const ready = Promise.withResolvers<Omit<BrokerFacts, 'pid'>>()
  let lastWords = ''
  for (const stream of [child.stdout, child.stderr])
    createInterface({ input: stream! }).on('line', (line) => {
      const fields = logLine(line)
      if (fields?.event === 'broker.ready') ready.resolve(fields as unknown as BrokerFacts)
      if (isExitReason(line, fields, lastWords)) lastWords = line
      options.onLine?.(line)
    })
  const exited = endOf(child).then((how) => lastWords || how)
  const timer = setTimeout(() => child.kill('SIGKILL'), READY_WITHIN_MS)
  const failed = exited.then((words) => Promise.reject(startFailure(words)))
  const { url, httpUrl, adminUrl, demoUrl, brokerKey } = await Promise.race([ready.promise, failed]).finally(() =>
    clearTimeout(timer),
  )
  failed.catch(() => undefined) // an exit after the start is no failed start
  return {
    ...{ url, httpUrl, adminUrl, ...(demoUrl === undefined ? {} : { demoUrl }), brokerKey, pid: child.pid!, exited },
    stop: () => stop(child, exited),
    kill: () => void child.kill('SIGKILL'),
  }
}

/** Parses a line of the log. Returns null for other output. */
export function logLine(line: string): Record<string, unknown> | null {
  if (!line.startsWith('{')) return null
  try {
    return JSON.parse(line) as Record<string, unknown>
  } catch {
    return null // not a log line after all
  }
}

/** Returns the errors that the broker would report for these settings. */
export async function settingErrors(environment: BrokerOptions['environment']): Promise<readonly string[]> {
  const child = Bun.spawn([...brokerCommand(), '--print-config'], {
    env: { ...environment },
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'pipe',
  })
  const [text, code] = await Promise.all([new Response(child.stderr).text(), child.exited])
  return code === 0 ? [] : text.trim().split('\n')
}

function spawnBroker({ environment, runtimeArgs, program }: BrokerOptions): ChildProcess {
  const command = program === undefined ? brokerCommand(runtimeArgs) : [program, BROKER_ARGUMENT]
  const [first, ...words] = [...dieWithParentArgs(), ...command]
  return spawn(first!, words, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...RUNTIME_SETTINGS, ...environment }, // otherwise, the broker re-executes itself, and a profiler's signal kills it
    detached: true,
  })
}

/** Returns whether the line explains the exit: a logged error, a plain sentence, or a crash. */
function isExitReason(line: string, fields: Record<string, unknown> | null, former: string): boolean {
  if (fields) return fields.level === 'error' || fields.level === 'fatal'
  return line !== '' && (/error/i.test(line) || !/error/i.test(former))
}

let dieWithParent: readonly string[] | undefined

function dieWithParentArgs(): readonly string[] {
  dieWithParent ??= canDieWithParent() ? DIE_WITH_PARENT : []
  return dieWithParent
}

const DIE_WITH_PARENT = ['setpriv', '--pdeathsig', 'TERM']

function canDieWithParent(): boolean {
  if (process.platform !== 'linux' || !Bun.which('setpriv')) return false
  return Bun.spawnSync([...DIE_WITH_PARENT, 'true'], { stderr: 'ignore' }).success
}

function startFailure(lastWords: string): OperatingError {
  const tlsCode = /\((tls_\w+)\)\.$/.exec(lastWords)?.[1]
  const code = tlsCode ?? (lastWords.startsWith('Another program listens on ') ? 'port_taken' : 'broker_not_started')
  return new OperatingError(code, `The broker did not start: ${lastWords}`)
}

async function endOf(child: ChildProcess): Promise<string> {
  try {
    const [code, signal] = (await once(child, 'close')) as [number | null, string | null]
    return signal ? `it was ended by ${signal}` : `it ended with exit code ${code}`
  } catch (error) {
    return (error as Error).message // the program does not exist
  }
}

async function stop(child: ChildProcess, exited: Promise<string>): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_WITHIN_MS)
  await exited
  clearTimeout(timer)
}
