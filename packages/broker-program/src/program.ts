/**
 * The broker as a program of its own. It is ready when its log says so; what it says when it can't start is the error
 * here. Ctrl-C in a terminal does not reach it, so that its starter ends things in order; where `setpriv` (util-linux) is
 * at hand the kernel ends it when the *thread* that started it is gone, so that a killed starter leaves none behind.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { type Millis, OperatingError, type PeerKey } from '@sealpost/std'

/**
 * The platform lets garbage grow by the size of the machine; told a smaller one it collects earlier. Measured over a
 * burst of 100,000 messages on a machine of 24 GB: 128–139 MB; with 200 MB told 153–159, at 3 µs less of CPU a message.
 *
 * Every other collection was of the whole heap: 35 ms beside the program with a stop of 10 at its end, twice a second at 1,000
 * messages a second, and most of what p99 is there. With a lower ratio it is a rarer one, and told 100 MB the memory is as before.
 *
 * Beside that it collects once a second, every other time the whole heap, which with 10,000 sessions takes a tenth of a
 * second. Every ten seconds is 40 % less CPU with 3,000 silent sessions and a fifth less in that burst, for the same memory;
 * every minute, and an empty queue counted less often, 1,000 of them cost 0.9 to 1.3 % of a core instead of 1.2 to 1.5.
 *
 * And it compiles for the last time what has run a while; that took a fourth of the CPU of two brokers in such a burst with
 * half of it crossing. Ten times later it is only what runs always: 59 µs a message of both instead of 78.
 */
export const PLATFORM_SETTINGS = {
  BUN_JSC_forceRAMSize: '100000000',
  BUN_JSC_minEdenToOldGenerationRatio: '0.17',
  BUN_GC_TIMER_INTERVAL: '60000',
  BUN_JSC_thresholdForFTLOptimizeAfterWarmUp: '1000000',
} as const

export interface BrokerFacts {
  /** ws://host:port/v1/ws, or wss:// */
  readonly url: string
  readonly httpUrl: string
  /** Private: metrics and health. */
  readonly adminUrl: string
  /** The page of the demo; absent unless `DEMO` is on. */
  readonly demoUrl?: string
  readonly brokerKey: PeerKey
  readonly pid: number
}

export interface BrokerProgram extends BrokerFacts {
  /** Settles when it has ended, for whatever reason, with what it said last. */
  readonly exited: Promise<string>
  /** A clean end, and after 15 seconds a hard one. Idempotent. */
  stop(): Promise<void>
  kill(): void
}

export interface BrokerOptions {
  /** All of it: nothing of the starter's own goes in. */
  readonly environment: Readonly<Record<string, string | undefined>>
  /** For the platform, before the program: `--cpu-prof` and the like. */
  readonly runtimeArgs?: readonly string[]
  /** Each line of its log, and of what it says beside it. */
  readonly onLine?: (line: string) => void
}

const MAIN = join(import.meta.dirname, '../../../apps/broker/src/main.ts')
const READY_WITHIN_MS: Millis = 60_000
const STOP_WITHIN_MS: Millis = 15_000

/** @throws OperatingError `broker_not_started` with what the broker said, `port_taken`, and those of `readTls` */
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
  failed.catch(() => undefined) // its later end is no failed start
  return {
    ...{ url, httpUrl, adminUrl, ...(demoUrl === undefined ? {} : { demoUrl }), brokerKey, pid: child.pid!, exited },
    stop: () => stop(child, exited),
    kill: () => void child.kill('SIGKILL'),
  }
}

/** A line of the broker's log, or null for anything else. */
export function logLine(line: string): Record<string, unknown> | null {
  if (!line.startsWith('{')) return null
  try {
    return JSON.parse(line) as Record<string, unknown>
  } catch {
    return null // a line that only looks like one
  }
}

/** Checks the settings as the broker does at its start. @returns its errors; none when it would start */
export async function settingErrors(environment: BrokerOptions['environment']): Promise<readonly string[]> {
  const child = Bun.spawn([process.execPath, MAIN, '--print-config'], {
    env: { ...environment },
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'pipe',
  })
  const [text, code] = await Promise.all([new Response(child.stderr).text(), child.exited])
  return code === 0 ? [] : text.trim().split('\n')
}

function spawnBroker({ environment, runtimeArgs: platformWords = [] }: BrokerOptions): ChildProcess {
  const [program, ...words] = [...dieWithParentArgs(), process.execPath, ...platformWords, MAIN]
  return spawn(program!, words, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...PLATFORM_SETTINGS, ...environment },
    detached: true,
  })
}

/** Its sentence, or the log line of an error; of a crash the line that names it, not what the platform says after it. */
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
  const code = tlsCode ?? (lastWords.startsWith('Something else listens on ') ? 'port_taken' : 'broker_not_started')
  return new OperatingError(code, `The broker did not start: ${lastWords}`)
}

async function endOf(child: ChildProcess): Promise<string> {
  try {
    const [code, signal] = (await once(child, 'close')) as [number | null, string | null]
    return signal ? `it was ended by ${signal}` : `it ended with exit code ${code}`
  } catch (error) {
    return (error as Error).message // there is no such program
  }
}

async function stop(child: ChildProcess, exited: Promise<string>): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_WITHIN_MS)
  await exited
  clearTimeout(timer)
}
