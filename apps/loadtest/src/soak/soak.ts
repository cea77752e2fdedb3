/**
 * A soak: an open loop for minutes or hours, with storage and broker watched beside it. It may have a transaction that
 * holds a snapshot in its middle, and a backlog for absent peers all along.
 */

import { holdSnapshot } from '@sealpost/harness/postgres/long-transaction'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import type { Percentiles } from '@sealpost/harness/report/latencies'
import type { LoadOptions, SoakOptions } from '../command/arguments.ts'
import type { Display } from '../command/progress.ts'
import type { Environment } from '../environment/environment.ts'
import type { Plan } from '../generators/plan.ts'
import { type LoadOutcome, newMeshes, runOnce } from '../run/run.ts'
import { Backlog, type Drained } from './backlog.ts'
import { type Hold, rowsOf, type SoakRow, type SoakVerdict, soakVerdicts, spanSecondsOf } from './soak-judge.ts'
import { type SoakSample, SoakWatch, uncountedOf } from './soak-watch.ts'

export interface SoakFigures {
  readonly seconds: number
  readonly spanSeconds: number
  readonly rows: readonly SoakRow[]
  readonly verdicts: readonly SoakVerdict[]
  readonly hold: Hold | null
  readonly backlog: BacklogFigures | null
  readonly startMs: number
  readonly series: readonly SoakSample[]
}

export interface BacklogFigures extends Drained {
  /** Of a run before, when nothing waited. */
  readonly aloneMs: Percentiles
  /** p99 beside the backlog by p99 alone. */
  readonly p99Ratio: number
}

export interface SoakSetup {
  readonly soak: SoakOptions
  readonly plan: Plan
  readonly target: Environment
  readonly options: LoadOptions
  readonly display: Display
}

/** How long the run before a backlog is at most; its second half is what counts. */
const ALONE_SECONDS = 60

export async function runSoak(
  setup: SoakSetup,
  teardown: Teardown,
): Promise<{ outcome: LoadOutcome; figures: SoakFigures }> {
  const { soak, plan, target, options, display } = setup
  const uncounted = await uncountedOf(target)
  const aloneMs = soak.backlog > 0 ? await runAlone(setup, teardown) : null
  const meshes = await newMeshes(setup, teardown)
  const backlogSetup = { messages: soak.backlog, meshId: meshes[0]!.meshId, target, options, display }
  const backlog = aloneMs && (await Backlog.store(backlogSetup, teardown))
  const watch = new SoakWatch(target, uncounted)
  const holding = new Holding(setup)
  const spanMs = spanSecondsOf(soak.seconds) * 1000
  const during = { spanMs, resting: soak.backlog, onStart: () => holding.begin() }
  const outcome = await runOnce({ plan, meshes, target, options, display, ...during }, teardown)
  const samples = watch.stop()
  await holding.ended
  const rows = rowsOf({ ...soak, startMs: outcome.startMs, samples, spans: outcome.verdict.spans })
  const drained = await backlog?.drain()
  const figures: SoakFigures = {
    seconds: soak.seconds,
    spanSeconds: spanMs / 1000,
    rows,
    verdicts: soakVerdicts(rows, holding.hold),
    hold: holding.hold,
    backlog: drained && aloneMs ? { ...drained, aloneMs, p99Ratio: outcome.verdict.e2eMs.p99 / aloneMs.p99 } : null,
    startMs: outcome.startMs,
    series: samples,
  }
  return { outcome, figures }
}

/** Whether its figures held, and what waited arrived. */
export function isSteady({ verdicts, backlog }: SoakFigures): boolean {
  const isDrained =
    backlog === null || (backlog.delivered === backlog.messages && backlog.misdelivered + backlog.outOfOrder === 0)
  return isDrained && verdicts.every(({ isMet }) => isMet)
}

/** The same load while nothing waits. The first half warms up. */
async function runAlone(setup: SoakSetup, teardown: Teardown): Promise<Percentiles> {
  const seconds = Math.min(ALONE_SECONDS, setup.soak.seconds)
  const meshes = await newMeshes(setup, teardown)
  const plan = { ...setup.plan, total: setup.plan.rate! * seconds }
  const { verdict } = await runOnce({ ...setup, plan, meshes, spanMs: seconds * 500 }, teardown)
  return (verdict.spans[1] ?? verdict).e2eMs
}

/** The snapshot that is held in the middle of a run, if one is asked for. */
class Holding {
  readonly hold: Hold | null
  readonly #databaseUrl: string
  #ended: Promise<void> = Promise.resolve()

  constructor({ soak, target }: SoakSetup) {
    const { seconds, holdSeconds } = soak
    const fromSeconds = (seconds - (holdSeconds ?? 0)) / 2
    this.hold = holdSeconds === null ? null : { fromSeconds, toSeconds: fromSeconds + holdSeconds }
    this.#databaseUrl = target.databaseUrl
  }

  begin(): void {
    if (!this.hold) return
    this.#ended = this.#keep(this.hold)
    this.#ended.catch(() => undefined) // told by `ended`
  }

  /** @throws what the database said */
  get ended(): Promise<void> {
    return this.#ended
  }

  async #keep({ fromSeconds, toSeconds }: Hold): Promise<void> {
    await Bun.sleep(fromSeconds * 1000)
    const held = await holdSnapshot(this.#databaseUrl)
    await Bun.sleep((toSeconds - fromSeconds) * 1000)
    await held.release()
  }
}
