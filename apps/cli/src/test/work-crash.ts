/**
 * Kills `sealpost work` and its agents at random, and checks that every message gets exactly one reply and that every
 * paid turn is either the one whose reply arrived, or reported. Several workers share the messages to the member, and
 * the first of them has a name, to which every third message is sent.
 *     bun apps/cli/src/test/work-crash.ts --messages 200 --seed 7 --workers 3
 */
import { chmod, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { connect, generateIdentity, type Peer, ready } from '@sealpost/sdk'
import { join as joinMesh } from '@sealpost/sdk/join'
import { type PeerKey, type Random, seededRandom } from '@sealpost/std'
import { jsonLinesOf, jsonOf, Machine, type Running } from './cli.ts'

/**
 * An agent that is paid at its start. It dies in a third of its turns, which its seed, the message and the attempt
 * determine.
 */
const AGENT = `#!/bin/sh
text=$(cat)
echo "$SEALPOST_ENVELOPE_ID $SEALPOST_TURN_ID" >> "$PAID"
chance=$(echo "$SEED $text $SEALPOST_TURN_ATTEMPT" | cksum | cut -d' ' -f1)
sleep 0.$((chance / 7 % 3))
if [ $((chance % 3)) = 0 ]; then kill -9 $$; fi
echo "done: $text"
`

export interface CrashRun {
  readonly seed: number
  readonly messages: number
  /** The number of workers at a time. */
  readonly workers: number
}

export interface CrashReport {
  readonly messages: number
  /** Paid turns, as the agents recorded them. */
  readonly turns: number
  readonly workersKilled: number
  readonly agentsDied: number
  readonly turnsCut: number
  readonly turnsResumed: number
  readonly errorReplies: number
  /** Messages without a reply. */
  readonly lost: readonly string[]
  /** Messages with more than one reply. */
  readonly answeredTwice: readonly string[]
  /** Paid turns that were neither replied nor reported. */
  readonly unreported: readonly string[]
  /** Messages with more turns than `--attempts` allows. */
  readonly loops: readonly string[]
  /** Processes of agents that outlived the run. */
  readonly orphans: readonly string[]
}

const ATTEMPTS = 3
const NAME = 'reviewer'
/** How long a worker lives before it is killed: at times less than its start takes. */
const LIFE_MS = { min: 200, max: 1_600 }

/** `machine`: a machine with a broker and the profile bob. */
export async function crashWorkers(
  { seed, messages, workers: count }: CrashRun,
  machine: Machine,
): Promise<CrashReport> {
  const paid = join(machine.folder, 'paid')
  const agent = join(machine.folder, 'agent.sh')
  await writeFile(paid, '')
  await writeFile(agent, AGENT)
  await chmod(agent, 0o700)
  await using sender = await newMember(machine, 'sender')
  const replies = new Replies(sender, messages)
  const sent = await sendAll(sender, messages, [await keyOf(machine, 'bob'), await keyOfNamed(machine)])
  const workers: Running[] = []
  const startWorker = (afterCut: string, isNamed: boolean): Running => {
    const options = ['--json', '--attempts', `${ATTEMPTS}`, '--concurrency', '3', '--after-cut', afterCut]
    const env = { PAID: paid, SEED: `${seed}` }
    const session = ['--profile', 'bob', ...(isNamed ? ['--as', NAME] : [])]
    const words = ['work', ...session, ...options, '--env', 'PAID', 'SEED', '--', agent]
    const worker = machine.start(words, env)
    workers.push(worker)
    return worker
  }
  const runInTurn = async (no: number): Promise<void> => {
    const random = seededRandom(seed * 100 + no)
    for (let isAll = false; !isAll; ) {
      const worker = startWorker(random.chance(0.5) ? 'resume' : 'report', no === 0)
      isAll = await Promise.race([replies.all.then(() => true), dueOf(worker, random).then(() => false)])
      if (isAll) await worker.interrupt()
      else worker.child.kill('SIGKILL')
      await worker.ended()
    }
  }
  await Promise.all(Array.from({ length: count }, (_, no) => runInTurn(no)))
  return reportOf({ workers, count, paid: await readFile(paid, 'utf8'), sent, replies, orphans: await orphans(paid) })
}

/** Resolves when the worker is to die: after a random time, or right after it has reported a turn. */
async function dueOf(worker: Running, random: Random): Promise<void> {
  const reports = 1 + random.below(7)
  const lifeMs = LIFE_MS.min + random.next() * (LIFE_MS.max - LIFE_MS.min)
  if (random.chance(0.5)) return delay(lifeMs)
  await worker.until('it has reported a turn', ({ lines }) => lines.length >= reports).catch(() => undefined)
}

class Replies {
  /** The texts of the replies, by the message that they answer. */
  readonly texts = new Map<string, string[]>()
  readonly all: Promise<void>

  constructor(peer: Peer, count: number) {
    const all = Promise.withResolvers<void>()
    this.all = all.promise
    peer.onMessage((message) => {
      const id = message.inReplyTo!
      this.texts.set(id, [...(this.texts.get(id) ?? []), message.isError ? 'error' : message.text()])
      if (this.texts.size === count) all.resolve()
    })
  }
}

/** Returns a new member of the mesh that runs in this process. */
export async function newMember(machine: Machine, name: string): Promise<Peer> {
  await ready()
  const invite = (await machine.run(['invite', 'create', '--quiet'])).stdout.trim()
  const identity = generateIdentity()
  return connect({ ...(await joinMesh({ invite, identity, name })), identity })
}

export async function keyOf(machine: Machine, profile: string): Promise<PeerKey> {
  return (jsonOf(await machine.run(['status', '--json', '--profile', profile])) as { key: PeerKey }).key
}

/** Returns the key of the named worker, which is enrolled by its first start. */
async function keyOfNamed(machine: Machine): Promise<PeerKey> {
  const first = machine.start(['work', '--profile', 'bob', '--as', NAME, '--', 'cat'])
  await first.until('it works', ({ stderr }) => stderr.includes('working as'))
  await first.interrupt()
  const sessions = jsonLinesOf(await machine.run(['sessions', '--json', '--profile', 'bob']))
  return sessions.find(({ label }) => label === NAME).key
}

/** Sends messages in several threads, every third to the named worker. */
async function sendAll(sender: Peer, count: number, [member, named]: readonly PeerKey[]): Promise<string[]> {
  const receipts = Array.from({ length: count }, (_, i) =>
    sender.send(i % 3 === 0 ? named! : member!, `message ${i}`, { thread: `${i % 5}`.padStart(32, '0') }),
  )
  return (await Promise.all(receipts)).map(({ envelopeId }) => envelopeId)
}

interface CrashFacts {
  readonly count: number
  readonly workers: readonly Running[]
  readonly paid: string
  readonly sent: readonly string[]
  readonly replies: Replies
  readonly orphans: readonly string[]
}

function reportOf({ workers, count, paid, sent, replies, orphans }: CrashFacts): CrashReport {
  const lines = workers.flatMap((worker) => jsonLinesOf({ stdout: `${worker.lines.join('\n')}\n` }))
  const reported = new Set(
    lines.filter(({ outcome }) => outcome === 'failed' || outcome === 'cut').map(({ turn }) => turn),
  )
  const turns = paid
    .trim()
    .split('\n')
    .map((line) => line.split(' ') as [string, string])
  const turnsOf = (id: string) => turns.filter(([message]) => message === id).map(([, turn]) => turn)
  const answersOf = (id: string) => replies.texts.get(id) ?? []
  const isReplied = (id: string) => answersOf(id).some((text) => text !== 'error')
  return {
    messages: sent.length,
    turns: turns.length,
    workersKilled: workers.length - count,
    agentsDied: new Set(lines.filter(({ outcome }) => outcome === 'failed').map(({ turn }) => turn)).size,
    turnsCut: new Set(lines.filter(({ outcome }) => outcome === 'cut').map(({ turn }) => turn)).size,
    turnsResumed: lines.filter(({ isResumed }) => isResumed).length,
    errorReplies: sent.filter((id) => answersOf(id).includes('error')).length,
    lost: sent.filter((id) => answersOf(id).length === 0),
    answeredTwice: sent.filter((id) => answersOf(id).length > 1),
    unreported: sent.flatMap((id) => {
      const silent = turnsOf(id).filter((turn) => !reported.has(turn))
      return isReplied(id) ? silent.slice(1) : silent // the turn whose reply arrived need not be reported
    }),
    loops: sent.filter((id) => turnsOf(id).length > ATTEMPTS),
    orphans,
  }
}

/** Returns processes whose environment contains the file of this run. */
async function orphans(paid: string): Promise<string[]> {
  const pids = await readdir('/proc').catch(() => [])
  const isAgent = async (pid: string) => {
    const environment = await readFile(`/proc/${pid}/environ`, 'latin1').catch(() => '')
    return environment.includes(`PAID=${paid}`)
  }
  const found = await Promise.all(
    pids.filter((pid) => /^\d+$/.test(pid)).map(async (pid) => ((await isAgent(pid)) ? [pid] : [])),
  )
  return found.flat()
}

/** Whether the run kept every promise. */
export function isClean({ lost, answeredTwice, unreported, loops, orphans }: CrashReport): boolean {
  return [lost, answeredTwice, unreported, loops, orphans].every((failures) => failures.length === 0)
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      messages: { type: 'string', default: '100' },
      seed: { type: 'string', default: '1' },
      workers: { type: 'string', default: '2' },
    },
  })
  const machine = await Machine.withBroker('bob')
  const run = { messages: Number(values.messages), seed: Number(values.seed), workers: Number(values.workers) }
  const report = await crashWorkers(run, machine).finally(() => machine[Symbol.asyncDispose]())
  process.stdout.write(`${JSON.stringify(report, null, 2)}\n`)
  process.exit(isClean(report) ? 0 : 1)
}
