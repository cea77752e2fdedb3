/**
 * Passes the status that an agent's hook sets to the session of that agent. The agent starts both the hook and its
 * `sealpost mcp`, so they have a near ancestor in common. Each `sealpost mcp` has a file in the folder `agents` of the
 * profile, and watches a second one, which hooks write.
 */
import { execFile } from 'node:child_process'
import { watch } from 'node:fs'
import { mkdir, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { processStartedAt } from '@sealpost/sdk/file-store'
import type { MemberSession } from '@sealpost/sdk/sessions'
import { isRecord, isStatus, type Profile, readJsonFile, type SavedStatus, writeJsonFile } from '../profile/profile.ts'
import type { Shell } from '../shell.ts'

interface AgentFile {
  readonly pid: number
  /** The working directory of the server. */
  readonly folder: string
}

interface RunningAgent extends AgentFile {
  readonly name: string
}

const isAgentFile = (value: unknown): value is AgentFile =>
  isRecord(value) && typeof value.pid === 'number' && typeof value.folder === 'string'

const folderOf = ({ folder }: Profile): string => join(folder, 'agents')
const agentFileOf = (profile: Profile, name: string): string => join(folderOf(profile), `${name}.json`)
const statusNameOf = (name: string): string => `${name}.status.json`

/** Gives the session what hooks set, unless its status is `dnd` or has the same availability. */
export async function followHooks({ profile, output }: Shell, session: MemberSession): Promise<AsyncDisposable> {
  const folder = folderOf(profile)
  await mkdir(folder, { recursive: true, mode: 0o700 })
  await runningAgents(profile) // removes what killed servers have left
  const name = await nameOf(process.pid)
  const statusName = statusNameOf(name)
  const apply = async () => {
    const status = await readJsonFile(join(folder, statusName), isStatus)
    const { availability } = session.status
    if (status && availability !== 'dnd' && availability !== status.availability) session.setStatus(status)
  }
  const changed = () => apply().catch((error: Error) => output.warn(error.message))
  const watcher = watch(folder, { persistent: false }, (_, file) => file === statusName && changed())
  await writeJsonFile(agentFileOf(profile, name), { pid: process.pid, folder: process.cwd() })
  return {
    [Symbol.asyncDispose]: async () => {
      watcher.close()
      await forget(profile, name)
    },
  }
}

/** Sets the status of the agent that has started this process. Returns whether its session is known. */
export async function setAgentStatus(profile: Profile, status: SavedStatus): Promise<boolean> {
  const agent = await callingAgent(await runningAgents(profile))
  if (agent) await writeJsonFile(join(folderOf(profile), statusNameOf(agent.name)), status)
  return agent !== null
}

const nameOf = async (pid: number): Promise<string> => `${pid}-${await processStartedAt(pid)}`

async function forget(profile: Profile, name: string): Promise<void> {
  await rm(agentFileOf(profile, name), { force: true })
  await rm(join(folderOf(profile), statusNameOf(name)), { force: true })
}

async function runningAgents(profile: Profile): Promise<RunningAgent[]> {
  const files = await readdir(folderOf(profile)).catch(() => []) // no server has run yet
  const names = files.map((file) => /^(\d+-\d+)\.json$/.exec(file)?.[1]).filter((name) => name !== undefined)
  const agents: RunningAgent[] = []
  for (const name of names) {
    const file = await readJsonFile(agentFileOf(profile, name), isAgentFile).catch(() => undefined)
    if (file && (await isRunning(file.pid, name))) agents.push({ ...file, name })
    else await forget(profile, name)
  }
  return agents
}

async function isRunning(pid: number, name: string): Promise<boolean> {
  try {
    process.kill(pid, 0)
  } catch (error) {
    if ((error as { code?: string }).code === 'ESRCH') return false
  }
  return (await nameOf(pid)) === name
}

/**
 * Returns the agent with the nearest common ancestor. If several have the same one, or if the platform shows no
 * ancestors, returns the one with the same working directory.
 */
async function callingAgent(agents: readonly RunningAgent[]): Promise<RunningAgent | null> {
  const own = await ancestorsOf(process.pid)
  if (own.length === 0) return onlyOne(agents)
  const others = await Promise.all(agents.map(({ pid }) => ancestorsOf(pid)))
  const shared = own.find((pid) => others.some((ancestors) => ancestors.includes(pid)))
  return onlyOne(agents.filter((_, i) => shared !== undefined && others[i]!.includes(shared)))
}

function onlyOne(agents: readonly RunningAgent[]): RunningAgent | null {
  const here = agents.filter(({ folder }) => folder === process.cwd())
  const [agent, ...others] = agents.length > 1 ? here : agents
  return agent && others.length === 0 ? agent : null
}

/** The first process of the system is an ancestor of all. In a container, it may be the agent. */
const FIRST_PID = 1
const NEAR = 2

/** Returns the ancestors of a process, nearest first; none if the platform does not show them. */
async function ancestorsOf(pid: number): Promise<number[]> {
  const ancestors: number[] = []
  for (let parent = await parentOf(pid); parent > 0; parent = await parentOf(parent)) {
    if (parent === FIRST_PID && ancestors.length >= NEAR) break
    ancestors.push(parent)
  }
  return ancestors
}

/** Returns the parent of a process; 0 if it has none or is unknown. */
async function parentOf(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => null)
  // The second field, in brackets, is the program's name and may contain anything.
  if (stat !== null) return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
  if (process.platform === 'linux') return 0
  const printed = await promisify(execFile)('ps', ['-o', 'ppid=', '-p', `${pid}`]).catch(() => ({ stdout: '' }))
  return Number(printed.stdout)
}
