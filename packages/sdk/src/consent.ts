/** Whom a peer takes mail from, as it tells its broker. */
import { CONSENT_CHANGES_MAX, type ConsentPolicy, type FrameOf } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import { refusedBy, SealpostError } from './errors.ts'
import type { Ask } from './members.ts'
import { pieces } from './send-frames.ts'

export interface ConsentState {
  /** `open`: from everybody but those blocked; `contacts`: from those allowed. */
  readonly policy: ConsentPolicy
  readonly allowed: readonly PeerKey[]
  readonly blocked: readonly PeerKey[]
}

export interface ConsentUpdate {
  /** Default: as it is. */
  readonly policy?: ConsentPolicy
  /** A key that stands in two of these lists is blocked or forgotten, whichever comes last here. */
  readonly allow?: readonly PeerKey[]
  readonly block?: readonly PeerKey[]
  readonly forget?: readonly PeerKey[]
}

type Change = FrameOf<'consent'>['changes'][number]

/**
 * How it stands afterwards; an empty update only asks. More than 256 changes are done one part after the other.
 * @throws SealpostError `unknown_recipient`, `too_many_named`
 */
export async function updateConsent(ask: Ask, update: ConsentUpdate): Promise<ConsentState> {
  const { policy = 'keep' } = update
  const [changes = [], ...more] = pieces(changesOf(update), CONSENT_CHANGES_MAX)
  let answer = await ask({ type: 'consent', policy, changes })
  const unknown = [...answer.unknown]
  for (const piece of more) {
    check(answer)
    answer = await ask({ type: 'consent', policy: 'keep', changes: piece })
    unknown.push(...answer.unknown)
  }
  check(answer)
  if (unknown.length > 0) throw refusedBy('unknown_recipient')
  return stateOf(answer)
}

function changesOf({ allow = [], block = [], forget = [] }: ConsentUpdate): Change[] {
  const changes = (peers: readonly PeerKey[], verdict: Change['verdict']) => peers.map((peer) => ({ peer, verdict }))
  return [...changes(allow, 'allowed'), ...changes(block, 'blocked'), ...changes(forget, 'forgotten')]
}

function check({ outcome }: FrameOf<'consented'>): void {
  if (outcome === 'too_many')
    throw new SealpostError('too_many_named', 'This peer can allow or block no more others: forget some first.')
}

function stateOf({ policy, peers }: FrameOf<'consented'>): ConsentState {
  const named = (wanted: string) => peers.filter(({ verdict }) => verdict === wanted).map(({ peer }) => peer)
  return { policy, allowed: named('allowed'), blocked: named('blocked') }
}
