/** Turns with and without an attack, in pairs: what a busy machine does to one it does to the other. */
import { join } from 'node:path'
import { Child } from '@sealpost/harness/programs/child'
import { processFacts } from '@sealpost/harness/programs/process-facts'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import type { Attack } from './attack.ts'
import type { AttackerAnswer, AttackerOrder } from './attacker.ts'
import { HONEST_MEMBERS, type HonestAnswer, type HonestOrder } from './honest.ts'
import { type Outcome, outcomeOf } from './report.ts'
import { openStage, type Stage } from './stage.ts'

/** What honest peers met in one turn, and what the broker spent. */
export interface Turn {
  readonly p50Ms: number
  readonly p99Ms: number
  readonly tries: number
  readonly succeeded: number
  /** Of one core. */
  readonly cpuShare: number
  /** Of the attacker; empty without an attack. */
  readonly answers: Readonly<Record<string, number>>
}

export interface Pair {
  readonly without: Turn
  readonly under: Turn
}

type Measured = Extract<HonestAnswer, { p99Ms: number }>

/** Limits fill up again between two turns. */
const PAUSE_MS = 2_000

interface Scene {
  readonly attack: Attack
  readonly stage: Stage
  readonly seconds: number
  readonly honest: Child<HonestOrder, HonestAnswer>
  readonly attacker: Child<AttackerOrder, AttackerAnswer>
}

export async function measureAttack(
  attack: Attack,
  { pairs, seconds }: { pairs: number; seconds: number },
  outer: Teardown,
): Promise<Outcome> {
  const scene = await openScene(attack, seconds, outer)
  await scene.turn('without') // compiles what the turns run
  const measured: Pair[] = []
  for (let i = 0; i < pairs; i++) measured.push(await scene.pair(i % 2 === 0 ? 'without' : 'under'))
  await scene.close()
  const outcome = outcomeOf(attack, measured)
  process.stderr.write(`${attack.name}: p99 ${outcome.p99MsMore.toFixed(1)} ms more, ${pairs} pairs\n`)
  return outcome
}

async function openScene(attack: Attack, seconds: number, outer: Teardown) {
  const { members = 0, env = {}, probe = 'join', hasHistory = false } = attack
  const ends: (() => Promise<void>)[] = []
  const own = { add: (step: Parameters<Teardown['add']>[0]) => ends.push(outer.add(step)) }
  const stage = await openStage({ env, hasHistory, honest: HONEST_MEMBERS, hostile: members }, outer)
  const child = <Order extends object, Answer extends object>(name: string) => {
    const started = new Child<Order, Answer>(name, join(import.meta.dirname, `${name}.ts`))
    own.add({ end: () => started.stop(), kill: () => started.kill() })
    return started
  }
  const honest = child<HonestOrder, HonestAnswer>('honest')
  const attacker = child<AttackerOrder, AttackerAnswer>('attacker')
  const scene: Scene = { attack, stage, seconds, honest, attacker }
  const opened = honest.nextReply((said): said is { isOpen: true } => 'isOpen' in said)
  honest.send({ open: { target: stage.target, members: stage.honest, probe } })
  await opened
  return {
    turn: (kind: keyof Pair) => turnOf(scene, kind),
    pair: (first: keyof Pair) => pairOf(scene, first),
    close: async () => {
      for (const end of ends.reverse()) await end()
    },
  }
}

async function pairOf(scene: Scene, first: keyof Pair): Promise<Pair> {
  const one = await turnOf(scene, first)
  const other = await turnOf(scene, first === 'without' ? 'under' : 'without')
  return first === 'without' ? { without: one, under: other } : { without: other, under: one }
}

async function turnOf(scene: Scene, kind: keyof Pair): Promise<Turn> {
  const { attack, stage, seconds, honest, attacker } = scene
  await Bun.sleep(PAUSE_MS)
  const { target, hostile: members } = stage
  if (kind === 'under') attacker.send({ begin: { name: attack.name, target, members } })
  const [spent, met] = await Promise.all([cpuShareOver(stage.brokerPid, seconds), measuredBy(honest, seconds)])
  const { p50Ms, p99Ms, tries, succeeded } = met
  const answers = kind === 'under' ? await answersOf(attacker) : {}
  return { p50Ms, p99Ms, tries, succeeded, cpuShare: spent, answers }
}

function measuredBy(honest: Scene['honest'], seconds: number): Promise<Measured> {
  const measured = honest.nextReply((said): said is Measured => 'p99Ms' in said)
  honest.send({ seconds })
  return measured
}

async function answersOf(attacker: Scene['attacker']): Promise<Turn['answers']> {
  const ended = attacker.nextReply((said): said is AttackerAnswer => 'answers' in said)
  attacker.send({ end: true })
  return (await ended).answers
}

/** User and system time: a busy machine hardly changes it. */
async function cpuShareOver(pid: number, seconds: number): Promise<number> {
  const spent = () => processFacts(pid)?.cpuSeconds ?? Number.NaN
  const before = spent()
  await Bun.sleep(seconds * 1000)
  return (spent() - before) / seconds
}
