import type { PipelineStep } from '@sealpost/pg'
import type { DeliveryRef, Settle } from '@sealpost/protocol'
import { SETTLE, SETTLE_AND_TELL, SETTLE_IN_POOL } from '../sql/sql.ts'
import { int2s, int4s, int8s, uuids } from './binary.ts'

interface Run {
  readonly of: DeliveryRef
  readonly first: number
  last: number
}

/** One step for most, and one more each for those whose senders want to hear of it, and for those of pools. */
export function settleSteps(all: readonly Settle[]): PipelineStep[] {
  if (all.length === 0) return []
  const ofPools = all.filter(({ holder }) => holder !== undefined)
  const settles = ofPools.length === 0 ? all : all.filter(({ holder }) => holder === undefined)
  const steps = ownSteps(settles)
  return ofPools.length > 0 ? [...steps, poolStep(ofPools)] : steps
}

function poolStep(settles: readonly Settle[]): PipelineStep {
  return {
    text: SETTLE_IN_POOL,
    parameters: [
      uuids(settles.map(({ meshId }) => meshId)),
      int4s(settles.map(({ recipient }) => recipient)),
      int2s(settles.map(({ priority }) => priority)),
      int8s(settles.map(({ id }) => id)),
      int4s(settles.map(({ holder }) => holder!)),
    ],
  }
}

function ownSteps(settles: readonly Settle[]): PipelineStep[] {
  const told = settles.filter(({ receiptTo }) => receiptTo)
  const quiet = told.length === 0 ? settles : settles.filter(({ receiptTo }) => !receiptTo)
  const steps = quiet.length > 0 ? [settleStep(SETTLE, quiet)] : []
  return told.length > 0 ? [...steps, settleStep(SETTLE_AND_TELL, told)] : steps
}

/** Settles of one recipient come together, so that neighbours share one walk over the index. */
function settleStep(text: string, settles: readonly DeliveryRef[]): PipelineStep {
  const runs: Run[] = []
  settles.forEach((settle, i) => {
    const run = runs.at(-1)
    if (run && isSameLane(run.of, settle)) run.last = i + 1
    else runs.push({ of: settle, first: i + 1, last: i + 1 })
  })
  return {
    text,
    parameters: [
      uuids(runs.map(({ of }) => of.meshId)),
      int4s(runs.map(({ of }) => of.recipient)),
      int2s(runs.map(({ of }) => of.priority)),
      int4s(runs.map(({ first }) => first)),
      int4s(runs.map(({ last }) => last)),
      int8s(settles.map(({ id }) => id)),
    ],
  }
}

const isSameLane = (a: DeliveryRef, b: DeliveryRef): boolean =>
  a.recipient === b.recipient && a.priority === b.priority && a.meshId === b.meshId
