/**
 * Runs an agent so that no process of it survives unnoticed. The agent waits for a line on its stdin before it starts:
 * the journal first stores its process id. If the worker dies before that, the agent never starts. Where `setpriv`
 * (util-linux) exists, the kernel kills the agent when the worker ends; the next worker ends what is left.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { readdir, readFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { processStartedAt } from '@sealpost/sdk/file-store'
import { type Millis, OperatingError } from '@sealpost/std'
import type { EnvironmentVariables } from '../settings.ts'
import type { AgentOutput } from './agents.ts'
import type { ProcessId } from './turns.ts'

/** The variable that identifies all processes of a turn. */
export const TURN_VARIABLE = 'SEALPOST_TURN_ID'

const STDOUT_BYTES_MAX = 64 * 2 ** 20
const STDERR_KEPT = 4_096
/** How long an agent may take to end after SIGTERM. */
const TERM_MS: Millis = 5_000
/** How long output is read after the agent's exit, because a program that it left behind may hold the pipe open. */
const OUTPUT_AFTER_EXIT_MS: Millis = 1_000

/** Waits for a line, then becomes the agent. A worker that dies closes stdin without a line. */
const GATE = ['sh', '-c', 'read -r _ || exit 125; exec "$@"', 'sealpost-turn']

export interface AgentLaunch {
  readonly words: readonly string[]
  readonly environment: EnvironmentVariables
  readonly onLine: (line: string) => void
  /** Receives what the agent prints to stderr. */
  readonly onStderr: (text: string) => void
}

export interface AgentProcess {
  readonly id: ProcessId
  /** Lets the agent begin. */
  begin(stdin: Uint8Array): void
  /** Resolves when the agent has ended. */
  readonly ended: Promise<AgentOutput>
  /** Ends the agent and its children, and lets `ended` report the reason. */
  stop(why: string): void
  kill(): void
}

/** Starts an agent that does not begin yet. @throws OperatingError `agent_not_started` */
export async function launchAgent({ words, environment, onLine, onStderr }: AgentLaunch): Promise<AgentProcess> {
  const [program, ...args] = [...dieWithParent(), ...GATE, ...words]
  const child = spawn(program!, args, { stdio: ['pipe', 'pipe', 'pipe'], env: { ...environment }, detached: true })
  child.stdin!.on('error', () => undefined) // the agent may not read its input
  const state: { why: string | null; isTooLong: boolean } = { why: null, isTooLong: false }
  const stdout = collect(child, onLine, () => {
    state.isTooLong = true
    signal(child, 'SIGKILL')
  })
  let stderr = ''
  child.stderr!.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-STDERR_KEPT)
    onStderr(text)
  })
  const exit = exitOf(child)
  const startedAt = child.pid === undefined ? null : await startOf(child.pid)
  if (child.pid === undefined || startedAt === null) {
    child.kill('SIGKILL')
    throw new OperatingError('agent_not_started', `Can't start the agent ${words[0]}.`, { cause: await exit })
  }
  return {
    id: { pid: child.pid, startedAt },
    begin: (stdin) => {
      child.stdin!.write('\n')
      child.stdin!.end(stdin)
    },
    ended: exit.then((failure) => {
      const tooLong = state.isTooLong ? `it printed more than ${STDOUT_BYTES_MAX} bytes` : null
      return { stdout: Buffer.concat(stdout), stderr, failure: tooLong ?? state.why ?? failure }
    }),
    stop: (why) => {
      state.why ??= why
      signal(child, 'SIGTERM')
      setTimeout(() => signal(child, 'SIGKILL'), TERM_MS).unref()
    },
    kill: () => signal(child, 'SIGKILL'),
  }
}

function collect(child: ChildProcess, onLine: (line: string) => void, tooLong: () => void): Buffer[] {
  const chunks: Buffer[] = []
  let bytes = 0
  let line = ''
  child.stdout!.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes > STDOUT_BYTES_MAX) return tooLong()
    chunks.push(chunk)
    const parts = (line + chunk.toString()).split('\n')
    line = parts.pop()!
    for (const part of parts) onLine(part)
  })
  return chunks
}

/** Resolves with null for exit code 0, and with a reason otherwise. */
function exitOf(child: ChildProcess): Promise<string | null> {
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message))
    child.once('close', (code, cause) => resolve(failureOf(code, cause)))
    child.once('exit', (code, cause) => {
      setTimeout(() => resolve(failureOf(code, cause)), OUTPUT_AFTER_EXIT_MS).unref()
    })
  })
}

function failureOf(code: number | null, cause: NodeJS.Signals | null): string | null {
  if (code === 0) return null
  return cause ? `it was ended by ${cause}` : `it exited with code ${code}`
}

/** Signals the process group of a child that has not been reaped. */
function signal(child: ChildProcess, name: NodeJS.Signals): void {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return
  signalIfAlive(-child.pid, name)
}

/** A negative number is the whole group. */
function signalIfAlive(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name)
  } catch {
    // it has ended
  }
}

const DIE_WITH_PARENT = ['setpriv', '--pdeathsig', 'KILL']
let boundPrefix: readonly string[] | undefined

function dieWithParent(): readonly string[] {
  boundPrefix ??=
    process.platform === 'linux' && spawnSync(DIE_WITH_PARENT[0]!, [...DIE_WITH_PARENT.slice(1), 'true']).status === 0
      ? DIE_WITH_PARENT
      : []
  return boundPrefix
}

/** Returns when a process started; null if it has ended. */
async function startOf(pid: number): Promise<string | null> {
  if (process.platform !== 'linux')
    return (
      spawnSync('ps', ['-o', 'lstart=', '-p', `${pid}`])
        .stdout.toString()
        .trim() || null
    )
  const ticks = await processStartedAt(pid)
  return ticks === 0 ? null : String(ticks)
}

const GONE_WITHIN_MS: Millis = 10_000
const GONE_EVERY_MS: Millis = 20

/**
 * Ends all processes of a turn that an earlier worker began. Returns whether there were any.
 * @throws OperatingError `agent_still_running`
 */
export async function endOrphans(turn: string, id: ProcessId): Promise<boolean> {
  for (const lateMs = performance.now() + GONE_WITHIN_MS, found = new Set<number>(); ; ) {
    const pids = await processesOf(turn, id)
    if (pids.length === 0) return found.size > 0
    if (performance.now() > lateMs)
      throw new OperatingError('agent_still_running', `The agent of an earlier turn (process ${pids[0]}) does not end.`)
    for (const pid of pids) {
      found.add(pid)
      signalIfAlive(pid, 'SIGKILL')
    }
    await delay(GONE_EVERY_MS)
  }
}

/**
 * On Linux, finds every process whose environment names the turn, also those that left the process group. Elsewhere, a
 * negative number is the whole group.
 */
async function processesOf(turn: string, { pid, startedAt }: ProcessId): Promise<number[]> {
  if (process.platform !== 'linux') return (await startOf(pid)) === startedAt ? [-pid] : []
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number)
  const found = await Promise.all(pids.map(async (each) => ((await isOfTurn(each, turn)) ? [each] : [])))
  return found.flat()
}

async function isOfTurn(pid: number, turn: string): Promise<boolean> {
  // A zombie has no environment, and other users' processes can't be read.
  const environment = await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '')
  return environment.split('\0').includes(`${TURN_VARIABLE}=${turn}`)
}
