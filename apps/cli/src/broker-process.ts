/**
 * The broker as a program of its own. It is ready when its log says so; what it says when it can't start is the error
 * here. Ctrl-C in a terminal does not reach it, so that its starter ends things in order; where `setpriv` (util-linux) is
 * at hand the kernel ends it when its starter is gone.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { type Millis, OperatingError, type PeerKey } from '@sealpost/std'
import type { Environment } from './settings.ts'

/** Told a smaller machine, the platform collects garbage earlier: at most 139 MB in a burst of 100,000 messages. */
const SMALL_HEAP = { BUN_JSC_forceRAMSize: String(120_000_000) }

export interface BrokerFacts {
  /** ws://host:port/v1/ws */
  readonly url: string
  readonly httpUrl: string
  /** Private: metrics and health. */
  readonly adminUrl: string
  readonly brokerKey: PeerKey
  readonly pid: number
}

export interface BrokerProcess extends BrokerFacts {
  /** Settles when it has ended, for whatever reason, with what it said last. */
  readonly exited: Promise<string>
  /** A clean end, and after 15 seconds a hard one. */
  stop(): Promise<void>
}

export interface BrokerOptions {
  readonly environment: Environment
  /** Each line of its log, and of what it says beside it. */
  readonly onLine: (line: string) => void
}

const READY_WITHIN_MS: Millis = 60_000
const STOP_WITHIN_MS: Millis = 15_000

/** @throws OperatingError `broker_not_started` with what the broker said, `port_taken` */
export async function startBroker({ environment, onLine }: BrokerOptions): Promise<BrokerProcess> {
  const program = fileURLToPath(import.meta.resolve('@sealpost/broker'))
  const [word, ...words] = [...leash(), process.execPath, program]
  const child = spawn(word!, words, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...SMALL_HEAP, ...environment },
    detached: true,
  })
  const ready = Promise.withResolvers<Omit<BrokerFacts, 'pid'>>()
  let lastWords = ''
  for (const stream of [child.stdout, child.stderr])
    createInterface({ input: stream }).on('line', (line) => {
      const fields = logLine(line)
      if (fields?.event === 'broker.ready') ready.resolve(fields as unknown as BrokerFacts)
      if (isLastWord(line, fields, lastWords)) lastWords = line
      onLine(line)
    })
  const exited = endOf(child).then((how) => lastWords || how)
  const timer = setTimeout(() => child.kill('SIGKILL'), READY_WITHIN_MS)
  const failed = exited.then((words) => Promise.reject(startFailure(words)))
  const { url, httpUrl, adminUrl, brokerKey } = await Promise.race([ready.promise, failed]).finally(() =>
    clearTimeout(timer),
  )
  failed.catch(() => undefined) // its later end is no failed start
  return { url, httpUrl, adminUrl, brokerKey, pid: child.pid!, exited, stop: () => stop(child, exited) }
}

/** Its sentence, or the log line of an error; of a crash the line that names it, not what the platform says after it. */
function isLastWord(line: string, fields: Record<string, unknown> | null, former: string): boolean {
  if (fields) return fields.level === 'error'
  return line !== '' && (/error/i.test(line) || !/error/i.test(former))
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

function leash(): string[] {
  if (process.platform !== 'linux' || !Bun.which('setpriv')) return []
  const words = ['setpriv', '--pdeathsig', 'TERM']
  return Bun.spawnSync([...words, 'true'], { stderr: 'ignore' }).success ? words : []
}

function startFailure(lastWords: string): OperatingError {
  const code = /port .*(?:taken|in use)|EADDRINUSE/i.test(lastWords) ? 'port_taken' : 'broker_not_started'
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
