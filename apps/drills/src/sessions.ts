/**
 * Starts and kills the sessions of several members at random, while one peer sends to members and to sessions by name.
 * Each session is a `sealpost listen`. Every message must be shown once; only a message that a killed process had just
 * shown may be shown again.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join as joinPath } from 'node:path'
import { createInterface } from 'node:readline'
import { generateMesh, identityOf } from '@sealpost/harness/members/mesh'
import { wholeNumber } from '@sealpost/harness/programs/command'
import { atRate, step, waitUntil } from '@sealpost/harness/programs/pace'
import { type Teardown, temporaryFolder } from '@sealpost/harness/programs/teardown'
import { count } from '@sealpost/harness/report/text'
import { connect, type Peer } from '@sealpost/sdk'
import { join } from '@sealpost/sdk/join'
import { usersOf } from '@sealpost/sdk/users'
import { OperatingError, type PeerKey } from '@sealpost/std'
import type { Drill } from './drill.ts'

interface SessionsOptions {
  readonly members: number
  /** The number of sessions of each member, of which half are named. */
  readonly sessions: number
  readonly sends: number
  readonly minutes: number
}

interface SessionsResult {
  readonly sent: number
  readonly refused: number
  readonly lost: number
  readonly duplicated: number
  /** The number of messages that a session showed again because a killed process had not settled them. */
  readonly repeatedAfterKill: number
  readonly kills: number
  /** The number of sends to unknown names that succeeded. */
  readonly unknownAccepted: number
}

const CLI = joinPath(import.meta.dirname, '../../cli/src/main.ts')
const THREAD_LENGTH = 20
const PAUSE_MS_MAX = 2_000
/** A process that is killed within this time may not have settled what it has shown. */
const UNSETTLED_MS = 5_000
const ARRIVED_WITHIN_MS = 180_000
/** A machine that is busy with 20 processes needs seconds to start another one. */
const STEP_WITHIN_MS = 60_000

export const sessionsDrill: Drill<SessionsOptions> = {
  name: 'sessions',
  description: 'Start and kill sessions at random under load, and count lost and duplicated messages.',
  configure: (command) =>
    command
      .option('--members <n>', 'the number of members', wholeNumber(1, 20), 4)
      .option('--sessions <n>', 'the number of sessions of each member', wholeNumber(1, 20), 5)
      .option('--sends <n>', 'the number of messages', wholeNumber(1, 1_000_000), 10_000)
      .option('--minutes <n>', 'the duration', wholeNumber(1, 1_000), 10),
  run: async (options, teardown) => {
    const result = await drillSessions(options, teardown)
    const { sent, lost, duplicated, repeatedAfterKill, kills, refused, unknownAccepted } = result
    const counts = `${lost} were lost, ${duplicated} duplicated, ${refused} refused, ${repeatedAfterKill} shown again after one of ${kills} kills`
    return {
      result,
      checks: [
        [lost + duplicated + refused === 0, `of ${count(sent)} messages ${counts}`],
        [unknownAccepted === 0, `${unknownAccepted} messages to unknown names were accepted`],
      ],
    }
  },
}

export async function drillSessions(options: SessionsOptions, teardown: Teardown): Promise<SessionsResult> {
  const machine = await Machine.open(teardown)
  const names = Array.from({ length: options.members }, (_, n) => `member-${n + 1}`)
  for (const name of names) await within(`${name} joins`, machine.join(name))
  const sender = await within('the sender connects', machine.sender())
  const keys = await within('the sender reads the members', machine.keysOf(sender, names))
  const log = new MessageLog()
  const seats = names.flatMap((name) =>
    Array.from(
      { length: options.sessions },
      (_, n) => new Seat(machine, log, { name, as: n % 2 ? `named-${n}` : null }),
    ),
  )
  await Promise.all(seats.map((seat) => seat.start()))
  let isOver = false
  const sending = sendAll(sender, { ...options, keys, log }).finally(() => {
    isOver = true
  })
  const [refused, kills] = await Promise.all([sending, killAtRandom(seats, () => isOver)])
  await waitUntil('every message has arrived', () => log.missing.length === 0, ARRIVED_WITHIN_MS).catch(() => undefined)
  const unknownAccepted = await within('sends to unknown names are refused', machine.sendToUnknown(names))
  await Promise.all(seats.map((seat) => seat.stop()))
  return { sent: log.sent.size, refused, lost: log.missing.length, ...log.repetitions, kills, unknownAccepted }
}

const within = <T>(name: string, done: Promise<T>): Promise<T> => step(name, done, STEP_WITHIN_MS)

/** Runs `sealpost` with a broker of its own and profiles in a temporary folder. */
class Machine {
  readonly #env: Record<string, string>
  readonly #running = new Set<ChildProcess>()

  private constructor(folder: string) {
    this.#env = {
      PATH: '/usr/local/bin:/usr/bin:/bin',
      HOME: folder,
      SEALPOST_HOME: joinPath(folder, 'profiles'),
      NO_COLOR: '1',
    }
  }

  static async open(teardown: Teardown): Promise<Machine> {
    const folder = await temporaryFolder('sealpost-sessions', teardown)
    const machine = new Machine(folder)
    const up = machine.start(['up', '--json', '--port', '0', '--name', 'admin', '--data', joinPath(folder, 'data')])
    const ended = once(up, 'exit')
    const end = async () => {
      up.kill('SIGINT')
      await ended
    }
    teardown.add({ end, kill: () => up.kill('SIGKILL') })
    const killAll = () => machine.#killAll(up)
    teardown.add({ end: async () => killAll(), kill: killAll })
    await within('the broker starts', once(createInterface(up.stdout!), 'line'))
    return machine
  }

  start(words: readonly string[]): ChildProcess {
    const child = spawn(process.execPath, [CLI, ...words], { env: this.#env, stdio: ['ignore', 'pipe', 'pipe'] })
    this.#running.add(child)
    child.once('exit', () => this.#running.delete(child))
    return child
  }

  /** Kills what a failed step has left, except for the broker. */
  #killAll(broker: ChildProcess): void {
    for (const child of this.#running) if (child !== broker) child.kill('SIGKILL')
  }

  async run(words: readonly string[]): Promise<{ code: number | null; stdout: string }> {
    const child = this.start(words)
    const printed: string[] = []
    child.stdout!.on('data', (text) => printed.push(String(text)))
    child.stderr!.resume()
    const [code] = (await once(child, 'close')) as [number | null]
    return { code, stdout: printed.join('') }
  }

  async join(name: string): Promise<void> {
    const { code } = await this.run(['join', await this.#invite(), '--name', name, '--profile', name])
    if (code !== 0) throw new OperatingError('join_failed', `${name} could not join.`)
  }

  async sender(): Promise<Peer> {
    const mesh = await generateMesh(1)
    const identity = identityOf(mesh.secrets[0]!)
    return connect({ ...(await join({ invite: await this.#invite(), identity, name: 'sender' })), identity })
  }

  async keysOf(peer: Peer, names: readonly string[]): Promise<ReadonlyMap<string, PeerKey>> {
    const members = await peer.members()
    return new Map(names.map((name) => [name, members.find((member) => member.name === name)!.peer]))
  }

  /** Returns how many sends to unknown names succeeded. */
  async sendToUnknown(names: readonly string[]): Promise<number> {
    const words = ['nobody', `${names[0]}/nobody`, `${names[0]}-1`]
    const ended = await Promise.all(words.map((word) => this.run(['send', word, 'lost', '--profile', names[0]!])))
    return ended.filter(({ code }) => code === 0).length
  }

  async #invite(): Promise<string> {
    return (await this.run(['invite', 'create', '--quiet'])).stdout.trim()
  }
}

interface SeatTerms {
  readonly name: string
  /** Null for an unnamed session. */
  readonly as: string | null
}

/** A place for one session, in which one process after another runs. */
class Seat {
  readonly #machine: Machine
  readonly #log: MessageLog
  readonly #terms: SeatTerms
  #child: ChildProcess | null = null

  constructor(machine: Machine, log: MessageLog, terms: SeatTerms) {
    this.#machine = machine
    this.#log = log
    this.#terms = terms
  }

  async start(): Promise<void> {
    const { name, as } = this.#terms
    const words = ['listen', '--json', '--profile', name, ...(as === null ? [] : ['--as', as])]
    const child = this.#machine.start(words)
    this.#child = child
    const shown = createInterface(child.stdout!)
    shown.on('line', (line) => this.#log.shown(JSON.parse(line).text, child))
    child.once('exit', (_, signal) => signal === 'SIGKILL' && this.#log.killed(child))
    const listens = new Promise<void>((resolve) => {
      createInterface(child.stderr!).on('line', (line) => line.startsWith('listening') && resolve())
      child.once('exit', () => resolve())
    })
    await within(`process ${child.pid} of ${this.#label} listens`, listens)
  }

  async stop(signal: 'SIGINT' | 'SIGKILL' = 'SIGINT'): Promise<void> {
    const child = this.#child!
    if (child.exitCode !== null || child.signalCode !== null) return
    const closed = once(child, 'close')
    child.kill(signal)
    await within(`process ${child.pid} of ${this.#label} ends after ${signal}`, closed)
  }

  get #label(): string {
    const { name, as } = this.#terms
    return as === null ? name : `${name}/${as}`
  }
}

/** Ends a session at a time, most of them without warning, and starts it again. @returns the number of kills */
async function killAtRandom(seats: readonly Seat[], isOver: () => boolean): Promise<number> {
  let kills = 0
  while (!isOver()) {
    await Bun.sleep(Math.random() * PAUSE_MS_MAX)
    const seat = seats[Math.floor(Math.random() * seats.length)]!
    const signal = Math.random() < 0.7 ? 'SIGKILL' : 'SIGINT'
    if (signal === 'SIGKILL') kills += 1
    await seat.stop(signal)
    await Bun.sleep(Math.random() * PAUSE_MS_MAX)
    await seat.start()
  }
  return kills
}

interface Sending extends SessionsOptions {
  readonly keys: ReadonlyMap<string, PeerKey>
  readonly log: MessageLog
}

/** Sends half of the messages to members, and half to sessions by their labels. @returns how many were refused */
async function sendAll(sender: Peer, { sends, minutes, keys, log }: Sending): Promise<number> {
  const users = usersOf(sender)
  const members = [...keys.values()]
  const sessions = new Map(await Promise.all(members.map(async (key) => [key, await users.devices(key)] as const)))
  let refused = 0
  await atRate({ perSecond: sends / (minutes * 60), until: minutes * 60 }, async (turn) => {
    const member = members[turn % members.length]!
    const own = sessions.get(member)!
    const to = turn % 2 ? member : own[Math.floor(Math.random() * own.length)]!.key
    const thread = (Math.floor(turn / THREAD_LENGTH) + 1).toString(16).padStart(32, '0')
    log.sent.add(String(turn))
    const stored = sender.send(to, String(turn), { thread }).catch(() => {
      log.sent.delete(String(turn))
      refused += 1
    })
    await within(`message ${turn} is stored`, stored)
  })
  return refused
}

/** Which processes have shown which messages. */
class MessageLog {
  readonly sent = new Set<string>()
  readonly #shown = new Map<string, { readonly child: ChildProcess; readonly atMs: number }[]>()
  readonly #killedAtMs = new Map<ChildProcess, number>()

  shown(text: string, child: ChildProcess): void {
    this.#shown.set(text, [...(this.#shown.get(text) ?? []), { child, atMs: performance.now() }])
  }

  killed(child: ChildProcess): void {
    this.#killedAtMs.set(child, performance.now())
  }

  get missing(): string[] {
    return [...this.sent].filter((text) => !this.#shown.has(text))
  }

  /** A repetition is excused if the process that showed the message before was killed soon afterwards. */
  get repetitions(): Pick<SessionsResult, 'duplicated' | 'repeatedAfterKill'> {
    let [duplicated, repeatedAfterKill] = [0, 0]
    for (const all of this.#shown.values())
      for (const { child, atMs } of all.slice(0, -1)) {
        const killedAtMs = this.#killedAtMs.get(child) ?? Infinity
        if (killedAtMs - atMs <= UNSETTLED_MS) repeatedAfterKill += 1
        else duplicated += 1
      }
    return { duplicated, repeatedAfterKill }
  }
}
