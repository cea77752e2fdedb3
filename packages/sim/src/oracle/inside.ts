/**
 * Records which states of engine, credit and SDK occurred. Reads private members with bracket access, which TypeScript
 * checks.
 */
import type { Engine } from '@sealpost/core'
import type { PeerEngine } from '@sealpost/sdk/engine'
import type { Oracle } from './oracle.ts'

type SessionOf<Sessions> = Sessions extends ReadonlyMap<unknown, infer Session> ? Session : never
type SessionState = SessionOf<Engine['sessions']>['state']
type LiveSession = Extract<SessionState, { name: 'live' }>['live']

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
  for (const { state } of engine['sessions'].values()) {
    oracle.mark(`session: ${state.name}`)
    if (state.name !== 'live') continue
    const { live } = state
    markAll(oracle, 'live', liveFacts(live))
    markAll(oracle, 'credit', creditFacts(live.credit))
    for (const { waits } of live.credit['lanes'].values()) oracle.mark(`credit lane: waits ${waits}`)
  }
}

function markPeer(engine: PeerEngine, oracle: Oracle): void {
  const outbox = engine['outbox']
  const receiver = engine['receiver']
  oracle.mark(`connection: ${engine.state.name}`)
  for (const { place, mayBeStored } of outbox['unanswered'].values())
    oracle.mark(`outbox entry: ${place}${mayBeStored ? ', may be stored' : ''}`)
  markAll(oracle, 'outbox', {
    'a lane is paused': outbox['paused'].size > 0,
    'the broker leaves': outbox['isLeaving'],
  })
  markAll(oracle, 'receiver', {
    'wait for a key': receiver['parked'].size > 0,
    'wait for an earlier one': !receiver['reorderBuffer'].isEmpty,
  })
}

const liveFacts = (live: LiveSession): Facts => ({
  paused: live.isPaused,
  'looks up recipients': live.isResolving,
  'has parked deliveries': live.parked.length > 0,
  'not to be disturbed': !live.isFree,
  'bars a lane': live['barred'].size > 0,
})

function creditFacts(credit: LiveSession['credit']): Facts {
  const asked = credit['asked']
  const isAskedForAny = credit['isAskedForAny']
  const insertLeases = credit['insertLeases']
  const held = [...credit.unsettled.values()]
  return {
    congested: credit.isCongested,
    fenced: credit.isFenced,
    'may have more': credit['mayWait'],
    'a claim of anything': asked !== null && isAskedForAny,
    'a claim of known ids': asked !== null && !isAskedForAny,
    'insert leases': insertLeases > 0,
    'insert leases beside a claim': insertLeases > 0 && asked !== null,
    'insert leases and plain ones of one sender': [...credit['lanes'].values()].some(
      (lane) => lane.insertLeases > 0 && lane.plain > 0,
    ),
    'scanned to the end': credit['scanned'] !== null,
    'no room': credit['freeCount'] <= 0,
    'a lease lapsed': held.some(({ isLapsed }) => isLapsed),
    'a lease was extended': held.some(({ heldFromMs }) => heldFromMs !== undefined),
  }
}

function markAll(oracle: Oracle, of: string, facts: Facts): void {
  for (const [name, isSo] of Object.entries(facts)) if (isSo) oracle.mark(`${of}: ${name}`)
}
