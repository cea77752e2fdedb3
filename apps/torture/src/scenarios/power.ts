/** Simulates power loss: programs die at the same time and lose everything that they wrote without fsync. */

import { mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { cutPower, mountLazyFolder, powerObstacle } from '@sealpost/harness/programs/lazyfs'
import { OperatingError } from '@sealpost/std'
import type { TortureCluster } from '../cluster/stage.ts'
import type { PopulationMember } from '../peers/population.ts'
import type { Fault, TortureScenario } from '../run.ts'

export const powerLoss: TortureScenario = {
  name: 'power-loss',
  summary: 'Postgres loses power, and its writes without fsync are lost',
  obstacle: powerObstacle,
  alone: async () => {
    const disk = await mountLazyFolder()
    return {
      setting: { postgres: { dataDir: join(disk.path, 'postgres') } },
      place: disk.path,
      end: async () => disk.unmount(),
    }
  },
  inject: async (stage, fault) => {
    await stage.acks(50)
    fault.begins()
    await stage.postgres.killAll()
    await cutPower(stage.place!)
    await stage.postgres.start()
    fault.ends()
  },
}

export const storePowerLoss: TortureScenario = {
  name: 'store-power-loss',
  summary: 'a sender and a recipient lose power, and the writes of their file stores without fsync are lost',
  obstacle: powerObstacle,
  alone: async () => {
    const disk = await mountLazyFolder()
    const casts = [
      { peers: 6, isWriting: true, sleepers: 1 },
      { peers: 4, isWriting: false, sleepers: 0 },
    ]
    return { setting: { casts }, place: disk.path, end: () => killPeers().then(disk.unmount) }
  },
  inject: cutStores,
}

const PROGRAM = join(import.meta.dirname, '../../../../packages/sdk/src/test/peer-process.ts')
const TEXTS_PER_RUN = 500
/**
 * The number of writes after which a message's mark is certainly on disk: the first may have begun before its handler
 * returned.
 */
const WRITES_UNTIL_MARKED = 2

/**
 * Cuts the power of a sender and a recipient on file stores repeatedly, and records what they report. Every message
 * whose `post` resolved must arrive in order, and none whose mark was on disk again.
 */
async function cutStores(stage: TortureCluster, fault: Fault): Promise<void> {
  const pair = await StoredPair.open(stage)
  const cuts = stage.amount(2, 12)
  for (let cut = 0; cut < cuts; cut++) {
    const run = pair.start(TEXTS_PER_RUN)
    await stage.until('both stores are written', () => isBusy(run))
    fault.begins()
    await pair.kill(run)
    await cutPower(stage.place!)
    fault.ends()
  }
  const last = pair.start(0)
  try {
    await stage.until('every kept message arrives', () => pair.hasAll(last))
    await stage.until('its queue is empty', async () => (await stage.queuedFor(pair.recipient)) === 0)
  } finally {
    await pair.kill(last)
  }
}

interface Run {
  readonly sender: Program
  readonly recipient: Program
}

const isBusy = ({ sender, recipient }: Run): boolean =>
  sender.reported('kept').length >= 100 && recipient.reported('ended').length >= 20 && recipient.marked().length >= 10

type Args = Readonly<Record<'sender' | 'recipient', readonly string[]>>

/** A sender and a recipient, each a series of processes on one store. */
class StoredPair {
  readonly recipient: PopulationMember
  readonly #args: Args
  readonly #kept: string[] = []
  readonly #handled = new Set<string>()
  readonly #marked = new Set<string>()
  #posted = 0
  #latest = -1

  private constructor(recipient: PopulationMember, args: Args) {
    this.recipient = recipient
    this.#args = args
  }

  static async open(stage: TortureCluster): Promise<StoredPair> {
    const from = stage.pick(stage.crowd)
    const to = stage.pick(stage.crowd.filter(({ meshNo, no }) => meshNo === from.meshNo && no !== from.no))
    const folder = join(stage.place!, crypto.randomUUID())
    mkdirSync(folder)
    const filesOf = async (member: PopulationMember) => {
      const keyFile = join(dirname(stage.place!), `${crypto.randomUUID()}.json`) // outside the mount, because the fault must spare keys
      await stage.writeKeyFileOf(member, keyFile)
      return [keyFile, join(folder, `${member.no}.store`)]
    }
    const sender = ['post', ...(await filesOf(from)), to.key]
    return new StoredPair(to, { sender, recipient: ['receive', ...(await filesOf(to))] })
  }

  /** Starts both. The sender posts this many messages. */
  start(count: number): Run {
    const texts = Array.from({ length: count }, (_, i) => String(this.#posted + i))
    this.#posted += count
    const { sender, recipient } = this.#args
    return { sender: new Program([...sender, ...texts]), recipient: new Program(recipient) }
  }

  hasAll({ recipient }: Run): boolean {
    const now = new Set(recipient.reported('begun'))
    return this.#kept.every((text) => this.#handled.has(text) || now.has(text))
  }

  /** Kills both, and judges their reports. @throws OperatingError `store_broken` */
  async kill({ sender, recipient }: Run): Promise<void> {
    await Promise.all([sender.kill(), recipient.kill()])
    this.#kept.push(...sender.reported('kept'))
    for (const text of recipient.reported('begun')) this.#judge(text)
    for (const text of recipient.marked()) this.#marked.add(text)
  }

  #judge(text: string): void {
    if (this.#marked.has(text)) throw broken(`message ${text} was handled again although its mark was on disk`)
    if (this.#handled.has(text)) return
    if (Number(text) < this.#latest) throw broken(`message ${text} was first handled after message ${this.#latest}`)
    this.#handled.add(text)
    this.#latest = Number(text)
  }
}

const broken = (what: string) => new OperatingError('store_broken', `With stores that lost power, ${what}.`)

const running = new Set<Program>()

/** An interrupted run's processes must end before their folder. */
const killPeers = async () => void (await Promise.all([...running].map((program) => program.kill())))

/** A peer's process, which reports lines of JSON. */
class Program {
  readonly #child: Bun.Subprocess<'ignore', 'pipe', 'inherit'>
  readonly #lines: (readonly [kind: string, value: string])[] = []
  readonly #read: Promise<void>

  constructor(args: readonly string[]) {
    this.#child = Bun.spawn([process.execPath, PROGRAM, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
    this.#read = this.#collect()
    running.add(this)
  }

  reported(kind: string): string[] {
    return this.#lines.flatMap(([each, value]) => (each === kind ? [value] : []))
  }

  /** Returns the messages whose mark is on disk after their handler has ended. */
  marked(): string[] {
    const found: string[] = []
    let ended: { text: string; writes: number[] }[] = []
    for (const [kind, value] of this.#lines) {
      if (kind === 'ended') ended.push({ text: value, writes: [] })
      if (kind === 'writing') for (const each of ended) each.writes.push(Number(value))
      if (kind !== 'written') continue
      const isMarked = ({ writes }: { writes: number[] }) => writes[WRITES_UNTIL_MARKED - 1]! <= Number(value)
      found.push(...ended.filter(isMarked).map(({ text }) => text))
      ended = ended.filter((each) => !isMarked(each))
    }
    return found
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.#child.exited
    await this.#read
    running.delete(this)
  }

  async #collect(): Promise<void> {
    const decoder = new TextDecoder()
    let rest = ''
    for await (const bytes of this.#child.stdout) {
      const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n')
      rest = lines.pop()!
      for (const line of lines) {
        const [entry] = Object.entries(JSON.parse(line) as Record<string, string | number>)
        this.#lines.push([entry![0], String(entry![1])])
      }
    }
  }
}
