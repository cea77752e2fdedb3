/** Measures an attack in pairs of turns, with and without it, which a busy machine affects equally. */
import { join } from 'node:path'
import { HistoryFixture } from '@sealpost/harness/members/history-fixture'
import { enrolMesh, generateMesh, identityOf } from '@sealpost/harness/members/mesh'
import { Child } from '@sealpost/harness/programs/child'
import { processFacts } from '@sealpost/harness/programs/machine'
import { startOwnBroker } from '@sealpost/harness/programs/own-broker'
import { openOwnDatabase } from '@sealpost/harness/programs/postgres'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { median, sum, tableText } from '@sealpost/harness/report/text'
import type { MeshId } from '@sealpost/std'
import { createColors } from 'picocolors'
import { type Attack, type AttackTarget, HISTORY, type StageMember } from './attack.ts'
import type { AttackerOrder, AttackerReply } from './attacker.ts'
import type { HonestFigures, HonestOrder, HonestReply } from './honest.ts'

/** A turn's figures of honest peers, and the broker's CPU time. */
export interface AttackTurn extends Omit<HonestFigures, 'sent'> {
  /** The broker's CPU time as a share of a core. */
  readonly cpuShare: number
  /** The replies to the attacker. */
  readonly answers: Readonly<Record<string, number>>
}

export interface TurnPair {
  readonly without: AttackTurn
  readonly under: AttackTurn
}

/** The medians over the pairs of turns. */
export interface AttackOutcome {
  readonly name: string
  readonly pairs: readonly TurnPair[]
  /** The differences between turns with and without the attack. */
  readonly p99MsMore: number
  readonly cpuShareMore: number
  readonly succeeded: number
  readonly tries: number
  readonly probe: string
  readonly isWithinBars: boolean
}

/** The number of honest members: four pairs, and one for the probe. */
const HONEST_MEMBERS = 4 * 2 + 1
/** The pause between turns, in which rate limits refill. */
const PAUSE_MS = 2_000

interface Scene {
  readonly attack: Attack
  readonly stage: AttackStage
  readonly seconds: number
  readonly honest: Child<HonestOrder, HonestReply>
  readonly attacker: Child<AttackerOrder, AttackerReply>
}

export async function measureAttack(
  attack: Attack,
  { pairs, seconds }: { pairs: number; seconds: number },
  teardown: Teardown,
): Promise<AttackOutcome> {
  const { members = 0, env = {}, probe = 'join', hasHistory = false } = attack
  const stage = await openStage({ env, hasHistory, honest: HONEST_MEMBERS, hostile: members }, teardown)
  const honest = new Child<HonestOrder, HonestReply>('honest', join(import.meta.dirname, 'honest.ts'))
  const endHonest = teardown.addProgram(honest)
  const attacker = new Child<AttackerOrder, AttackerReply>('attacker', join(import.meta.dirname, 'attacker.ts'))
  const endAttacker = teardown.addProgram(attacker)
  const opened = honest.nextReply((reply): reply is { isOpen: true } => 'isOpen' in reply)
  honest.send({ open: { target: stage.target, members: stage.honest, probe } })
  await opened
  const scene = { attack, stage, seconds, honest, attacker }
  await turnOf(scene, 'without') // lets the runtime compile the code
  const measured: TurnPair[] = []
  for (let i = 0; i < pairs; i++) measured.push(await pairOf(scene, i % 2 === 0 ? 'without' : 'under'))
  await endAttacker()
  await endHonest()
  const outcome = outcomeOf(attack, measured)
  process.stderr.write(`${attack.name}: p99 ${outcome.p99MsMore.toFixed(1)} ms more, ${pairs} pairs\n`)
  return outcome
}

async function pairOf(scene: Scene, first: keyof TurnPair): Promise<TurnPair> {
  const one = await turnOf(scene, first)
  const other = await turnOf(scene, first === 'without' ? 'under' : 'without')
  return first === 'without' ? { without: one, under: other } : { without: other, under: one }
}

async function turnOf({ attack, stage, seconds, honest, attacker }: Scene, kind: keyof TurnPair): Promise<AttackTurn> {
  await Bun.sleep(PAUSE_MS)
  const { target, hostile: members, brokerPid } = stage
  if (kind === 'under') attacker.send({ begin: { name: attack.name, target, members } })
  const figures = honest.nextReply((reply): reply is HonestFigures => 'p99Ms' in reply)
  honest.send({ seconds })
  const [cpuShare, { p50Ms, p99Ms, tries, succeeded }] = await Promise.all([cpuShareOver(brokerPid, seconds), figures])
  const answers = kind === 'under' ? await answersOf(attacker) : {}
  return { p50Ms, p99Ms, tries, succeeded, cpuShare, answers }
}

async function answersOf(attacker: Scene['attacker']): Promise<AttackTurn['answers']> {
  const ended = attacker.nextReply((reply): reply is AttackerReply => 'answers' in reply)
  attacker.send({ end: true })
  return (await ended).answers
}

/** Measures a process's CPU time, which a busy machine hardly affects. */
async function cpuShareOver(pid: number, seconds: number): Promise<number> {
  const cpuSeconds = () => processFacts(pid)?.cpuSeconds ?? Number.NaN
  const before = cpuSeconds()
  await Bun.sleep(seconds * 1000)
  return (cpuSeconds() - before) / seconds
}

const P99_MS_MORE_MAX = 50
const UNPROVEN_CPU_SHARE_MAX = 0.05

export function outcomeOf(attack: Attack, pairs: readonly TurnPair[]): AttackOutcome {
  const more = (pick: (turn: AttackTurn) => number) =>
    median(pairs.map(({ without, under }) => pick(under) - pick(without)))
  const [p99MsMore, cpuShareMore] = [more(({ p99Ms }) => p99Ms), more(({ cpuShare }) => cpuShare)]
  const isCheap = !attack.isOneUnprovenAddress || cpuShareMore <= UNPROVEN_CPU_SHARE_MAX
  const [succeeded, tries] = [
    sum(pairs.map(({ under }) => under.succeeded)),
    sum(pairs.map(({ under }) => under.tries)),
  ]
  return {
    ...{ name: attack.name, pairs, p99MsMore, cpuShareMore, succeeded, tries, probe: attack.probe ?? 'join' },
    isWithinBars: isCheap && p99MsMore <= P99_MS_MORE_MAX && succeeded === tries,
  }
}

export function reportText(outcomes: readonly AttackOutcome[]): string {
  const paint = createColors(process.stdout.isTTY)
  const head = ['attack', 'p99 without', 'p99 under', 'p99 more', 'broker CPU more', 'probes', 'bars', 'answers']
  const rows = outcomes.map(({ name, pairs, p99MsMore, cpuShareMore, succeeded, tries, probe, isWithinBars }) => [
    name,
    ms(median(pairs.map(({ without }) => without.p99Ms))),
    ms(median(pairs.map(({ under }) => under.p99Ms))),
    ms(p99MsMore),
    `${(cpuShareMore * 100).toFixed(1)} %`,
    `${probe} ${succeeded}/${tries}`,
    isWithinBars ? paint.green('ok') : paint.red('over'),
    answersText(pairs.at(-1)?.under.answers ?? {}),
  ])
  const bars = `Bars: p99 at most ${P99_MS_MORE_MAX} ms more (median of the pairs), every probe succeeds, and one unproven address costs at most ${UNPROVEN_CPU_SHARE_MAX * 100} % of a core.`
  return `${tableText(head, rows, paint)}\n${bars}`
}

const ms = (value: number): string => `${value.toFixed(1)} ms`

/** Lists the four most frequent replies. */
const answersText = (answers: AttackTurn['answers']): string =>
  Object.entries(answers)
    .toSorted(([, a], [, b]) => b - a)
    .slice(0, 4)
    .map(([answer, times]) => `${answer} ×${times}`)
    .join(', ')

/** A broker with its limits on, a mesh and its members. */
interface AttackStage {
  readonly target: AttackTarget
  readonly brokerPid: number
  readonly honest: readonly StageMember[]
  readonly hostile: readonly StageMember[]
}

interface StageOptions {
  readonly hasHistory: boolean
  readonly env: Readonly<Record<string, string>>
  readonly honest: number
  readonly hostile: number
}

/** One database for all attacks of a run. */
let database: Promise<string> | undefined

async function openStage({ env, honest, hostile, hasHistory }: StageOptions, teardown: Teardown): Promise<AttackStage> {
  database ??= openOwnDatabase(teardown)
  const databaseUrl = await database
  const broker = await startOwnBroker({ databaseUrl, env: { LIMITS: 'on', ...env } }, teardown)
  const mesh = await generateMesh(honest + hostile)
  const { meshId } = mesh
  await enrolMesh(databaseUrl, mesh, `attack ${meshId}`)
  const members = mesh.secrets.map((keys) => ({ identity: identityOf(keys) }))
  if (hasHistory) await fillHistory(databaseUrl, meshId)
  const { url, httpUrl, brokerKey } = broker
  return {
    target: { url, httpUrl, brokerKey, meshId },
    brokerPid: broker.pid,
    honest: members.slice(0, honest),
    hostile: members.slice(honest),
  }
}

async function fillHistory(databaseUrl: string, meshId: MeshId): Promise<void> {
  const fixture = await HistoryFixture.open(databaseUrl)
  try {
    await fixture.createPartitions()
    await fixture.fillSpaceOf({ meshId }, HISTORY)
  } finally {
    await fixture.close()
  }
}
