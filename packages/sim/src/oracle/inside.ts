/**
 * Marks the states in which engine, credit and SDK were seen. It reads private fields: after a rename its marks are
 * missing, and the test that requires each mark fails.
 */
import type { Engine } from '@sealpost/core'
import type { PeerEngine } from '@sealpost/sdk'
import type { Oracle } from './oracle.ts'

interface CreditInside {
  readonly isCongested: boolean
  readonly isFenced: boolean
  readonly mayWait: boolean
  readonly insertLeases: number
  readonly asked: object | null
  readonly isAskedForAny: boolean
  readonly scanned: object | null
  readonly lanes: ReadonlyMap<unknown, { insertLeases: number; plain: number; waits: string }>
  readonly unsettled: ReadonlyMap<unknown, { isLapsed: boolean; heldFromMs?: number }>
  readonly freeCount: number
}

interface LiveInside {
  readonly credit: CreditInside
  readonly isPaused: boolean
  readonly isResolving: boolean
  readonly parked: readonly unknown[]
  readonly isFree: boolean
  readonly barred: ReadonlyMap<string, number>
}

interface SessionInside {
  readonly state: { readonly name: string; readonly live?: LiveInside }
}

interface PeerInside {
  readonly outbox: {
    readonly unanswered: ReadonlyMap<unknown, { place: string; mayBeStored?: boolean }>
    readonly paused: ReadonlySet<unknown>
    readonly isLeaving: boolean
  }
  readonly arrivals: {
    readonly parked: ReadonlyMap<unknown, unknown>
    readonly reorderBuffer: { readonly isEmpty: boolean }
  }
}

type Facts = Readonly<Record<string, boolean>>

const STEPS_A_LOOK = 8

export class Inside {
  private readonly oracle: Oracle
  private steps = 0

  constructor(oracle: Oracle) {
    this.oracle = oracle
  }

  look(engine: Engine): void {
    if (this.isDue()) markEngine(engine, this.oracle)
  }

  lookAtPeer(engine: PeerEngine): void {
    if (this.isDue()) markPeer(engine, this.oracle)
  }

  private isDue(): boolean {
    this.steps += 1
    return this.steps % STEPS_A_LOOK === 0
  }
}

function markEngine(engine: Engine, oracle: Oracle): void {
  const { sessions } = engine as unknown as { sessions: ReadonlyMap<unknown, SessionInside> }
  for (const { state } of sessions.values()) {
    oracle.mark(`session: ${state.name}`)
    if (!state.live) continue
    markAll(oracle, 'live', liveFacts(state.live))
    markAll(oracle, 'credit', creditFacts(state.live.credit))
    for (const { waits } of state.live.credit.lanes.values()) oracle.mark(`credit lane: waits ${waits}`)
  }
}

function markPeer(engine: PeerEngine, oracle: Oracle): void {
  const { outbox, arrivals } = engine as unknown as PeerInside
  oracle.mark(`connection: ${engine.state.name}`)
  for (const { place, mayBeStored } of outbox.unanswered.values())
    oracle.mark(`outbox entry: ${place}${mayBeStored ? ', may be stored' : ''}`)
  markAll(oracle, 'outbox', { 'a lane is paused': outbox.paused.size > 0, 'the broker leaves': outbox.isLeaving })
  markAll(oracle, 'arrivals', {
    'wait for a key': arrivals.parked.size > 0,
    'wait for an earlier one': !arrivals.reorderBuffer.isEmpty,
  })
}

const liveFacts = ({ isPaused, isResolving, parked, isFree, barred }: LiveInside): Facts => ({
  paused: isPaused,
  'looks up recipients': isResolving,
  'has parked deliveries': parked.length > 0,
  'not to be disturbed': !isFree,
  'bars a lane': barred.size > 0,
})

function creditFacts({ asked, insertLeases, freeCount, lanes, scanned, unsettled, ...credit }: CreditInside): Facts {
  const { isAskedForAny, isCongested, isFenced, mayWait } = credit
  const held = [...unsettled.values()]
  return {
    congested: isCongested,
    fenced: isFenced,
    'may have more': mayWait,
    'a claim of anything': asked !== null && isAskedForAny,
    'a claim of known ids': asked !== null && !isAskedForAny,
    'insert leases': insertLeases > 0,
    'insert leases beside a claim': insertLeases > 0 && asked !== null,
    'insert leases and plain ones of one sender': [...lanes.values()].some(
      (lane) => lane.insertLeases > 0 && lane.plain > 0,
    ),
    'scanned to the end': scanned !== null,
    'no room': freeCount <= 0,
    'a lease lapsed': held.some(({ isLapsed }) => isLapsed),
    'a lease was extended': held.some(({ heldFromMs }) => heldFromMs !== undefined),
  }
}

function markAll(oracle: Oracle, of: string, facts: Facts): void {
  for (const [name, isSo] of Object.entries(facts)) if (isSo) oracle.mark(`${of}: ${name}`)
}
