/** Starts the servers of a comparison, and measures their CPU and memory. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { createConnection } from 'node:net'
import { join } from 'node:path'
import { jetstreamManager, RetentionPolicy, StorageType } from '@nats-io/jetstream'
import { connect } from '@nats-io/transport-node'
import { freePort } from '@sealpost/embedded-pg'
import { generateMesh, type MeshMembers } from '@sealpost/harness/members/mesh'
import { type ProcessFacts, postgresFacts, processFacts } from '@sealpost/harness/programs/machine'
import { type Teardown, temporaryFolder } from '@sealpost/harness/programs/teardown'
import { sum } from '@sealpost/harness/report/text'
import { OperatingError, type PeerKey } from '@sealpost/std'
import { openEnvironment } from '../environment/environment.ts'
import { planOf } from '../generators/plan.ts'
import { conditionsOf, type RunConditions } from '../run/result.ts'
import { newMesh, type WorkloadOptions } from '../run/run.ts'
import { NATS_STREAM, NATS_SUBJECTS } from './peers.ts'
import type { ContenderName, RivalName } from './result.ts'

export interface RivalServer {
  readonly port: number
  readonly mesh: MeshMembers
  /** The products and their versions. */
  readonly version: string
  /** A Sealpost broker's key. */
  readonly brokerKey: PeerKey | null
  /** A Sealpost run's conditions. */
  readonly conditions: RunConditions | null
  /** Rejects if the server ends. */
  readonly failed: Promise<never>
  /** Returns the CPU time so far, with Postgres for Sealpost. */
  cpuSeconds(): number
  rssMb(): number
}

export interface ContenderOptions extends WorkloadOptions {
  readonly programs: RivalPrograms
  readonly tell: (step: string) => void
}

/** The programs' paths; undefined for installed ones. */
export interface RivalPrograms {
  readonly redis: string | undefined
  readonly nats: string | undefined
}

/**
 * Starts a server. @throws OperatingError `rival_missing`, `rival_exited` with the program's error, `rival_not_started`
 */
export async function startServer(
  name: ContenderName,
  options: ContenderOptions,
  teardown: Teardown,
): Promise<RivalServer> {
  if (name === 'sealpost') return startSealpost(options, teardown)
  const program = await startRival(name, options.programs, teardown)
  const mesh = await generateMesh(options.peers)
  return { ...program, ...facts(() => [processFacts(program.pid)]), mesh, brokerKey: null, conditions: null }
}

async function startSealpost(options: ContenderOptions, teardown: Teardown): Promise<RivalServer> {
  const target = await openEnvironment({ ...options, ...options.spread }, teardown)
  const mesh = await newMesh(planOf({ peers: options.peers }), target, teardown)
  const { url, pid, brokerKey } = target.shards[0]!
  const conditions = conditionsOf(target)
  const { gitSha, postgresVersion, durability } = conditions
  const settings = `fsync=${durability.fsync}, synchronous_commit=${durability.synchronousCommit}`
  return {
    ...facts(() => [processFacts(pid!), ...target.postmasterPids.map(postgresFacts)]),
    ...{ port: Number(new URL(url).port), mesh, brokerKey, conditions, failed: target.failed },
    version: `Sealpost ${gitSha}, PostgreSQL ${postgresVersion} (${settings})`,
  }
}

/** Returns functions that measure the server, without figures once it has ended. */
const facts = (read: () => (ProcessFacts | null)[]): Pick<RivalServer, 'cpuSeconds' | 'rssMb'> => ({
  cpuSeconds: () => sum(read().map((each) => each?.cpuSeconds ?? 0)),
  rssMb: () => sum(read().map((each) => each?.rssMb ?? 0)),
})

/** Another product's server, ready for peers. */
export interface RivalProgram {
  readonly port: number
  readonly pid: number
  readonly version: string
  readonly failed: Promise<never>
  stop(): Promise<void>
  kill(): void
}

export async function startRival(name: RivalName, programs: RivalPrograms, teardown: Teardown): Promise<RivalProgram> {
  const kind = name === 'redis' ? 'redis' : 'nats'
  const path = programPath(kind, programs)
  const folder = await temporaryFolder(kind, teardown)
  return teardown.startingProgram(name === 'redis' ? startRedis(path, folder) : startNats(path, folder, name))
}

/** The programs, also the names of Debian's packages. */
const PROGRAMS = {
  redis: { program: 'redis-server', variable: 'REDIS_SERVER', product: 'Redis' },
  nats: { program: 'nats-server', variable: 'NATS_SERVER', product: 'NATS' },
} as const

function programPath(kind: keyof typeof PROGRAMS, programs: RivalPrograms): string {
  const { program, variable } = PROGRAMS[kind]
  const given = programs[kind]
  const path = Bun.which(given ?? program, { PATH: `${process.env.PATH ?? ''}:/usr/sbin` })
  if (path) return path
  const sentence = given
    ? `${variable}=${given}: there is no such program.`
    : `There is no ${program} here. Install Debian's package ${program}, or set ${variable} to the path of the program.`
  throw new OperatingError('rival_missing', sentence)
}

/** Starts a Redis that syncs every command before its reply. */
async function startRedis(path: string, folder: string): Promise<RivalProgram> {
  const port = await freePort()
  const sync = ['--appendonly', 'yes', '--appendfsync', 'always', '--save', '']
  const args = ['--bind', '127.0.0.1', '--port', String(port), '--dir', folder, ...sync]
  return startProgram({ kind: 'redis', path, args, port })
}

/** Starts NATS, which with `nats-sync` syncs every message before its ack, otherwise every two minutes. */
async function startNats(path: string, folder: string, name: RivalName): Promise<RivalProgram> {
  const port = await freePort()
  const config = join(folder, 'nats.conf')
  const sync = name === 'nats-sync' ? ', sync_interval: always' : ''
  await writeFile(config, `host: 127.0.0.1\nport: ${port}\njetstream { store_dir: "${folder}"${sync} }\n`)
  const program = await startProgram({ kind: 'nats', path, args: ['--config', config], port })
  try {
    const connection = await connect({ servers: `127.0.0.1:${port}` })
    const manager = await jetstreamManager(connection)
    const [retention, storage] = [RetentionPolicy.Workqueue, StorageType.File]
    await manager.streams.add({ name: NATS_STREAM, subjects: [NATS_SUBJECTS], retention, storage })
    await connection.close()
    return program
  } catch (error) {
    await program.stop()
    throw error
  }
}

interface ProgramStart {
  readonly kind: keyof typeof PROGRAMS
  readonly path: string
  readonly args: readonly string[]
  readonly port: number
}

async function startProgram({ kind, path, args, port }: ProgramStart): Promise<RivalProgram> {
  const { program, product } = PROGRAMS[kind]
  const child = spawn(path, args, { stdio: ['ignore', 'ignore', 'pipe'], detached: true })
  let lastError = ''
  child.stderr.on('data', (text: Buffer) => (lastError = text.toString().trim().split('\n').at(-1) ?? ''))
  const exited = once(child, 'close')
  const failed = exited.then((): never => {
    throw new OperatingError('rival_exited', `${program} exited: ${lastError.replace(`${program}: `, '')}`)
  })
  failed.catch(() => undefined) // the waiting caller reports the error
  const stop = () => stopped(child, exited)
  try {
    await Promise.race([untilListening(port, program), failed])
  } catch (error) {
    await stop()
    throw error
  }
  const version = `${product} ${versionOf(path)}`
  return { port, pid: child.pid!, version, failed, stop, kill: () => child.kill('SIGKILL') }
}

const versionOf = (path: string): string =>
  /\d+\.\d+\.\d+/.exec(Bun.spawnSync([path, '--version']).stdout.toString())?.[0] ?? 'of unknown version'

const STOP_WITHIN_MS = 5_000

async function stopped(child: ChildProcess, exited: Promise<unknown>): Promise<void> {
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_WITHIN_MS)
  await exited
  clearTimeout(timer)
}

const READY_WITHIN_MS = 20_000

async function untilListening(port: number, program: string): Promise<void> {
  const startedAtMs = performance.now()
  while (!(await canConnect(port))) {
    if (performance.now() - startedAtMs > READY_WITHIN_MS)
      throw new OperatingError('rival_not_started', `${program} did not listen within ${READY_WITHIN_MS} ms.`)
    await Bun.sleep(50)
  }
}

function canConnect(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ host: '127.0.0.1', port })
    const end = (isConnected: boolean) => () => {
      socket.destroy()
      resolve(isConnected)
    }
    socket.once('connect', end(true)).once('error', end(false))
  })
}
