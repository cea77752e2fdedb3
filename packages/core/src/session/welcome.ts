/** What a session is told of its broker when it begins. */
import type { FrameOf, Member } from '@sealpost/protocol'
import type { EngineLimits } from '../limits.ts'

export interface Welcome {
  readonly limits: EngineLimits
  readonly incarnation: string
  readonly durability: 'fsync' | 'degraded'
}

export function welcomeOf(
  { limits, incarnation, durability }: Welcome,
  { lineage }: Member,
  { epoch, proof }: Pick<FrameOf<'welcome'>, 'epoch' | 'proof'>,
): FrameOf<'welcome'> {
  return {
    type: 'welcome',
    proof,
    epoch,
    incarnation: lineage?.cameIn === incarnation ? lineage.incarnation : incarnation,
    durability,
    heartbeatMs: limits.heartbeatMs,
    leaseMs: limits.leaseMs,
    dedupeSeconds: Math.floor(limits.dedupeMs / 1000),
    creditMax: limits.creditMax,
    envelopeBytesMax: limits.envelopeBytesMax,
    ttlSecondsMax: limits.ttlSecondsMax,
    inFlightMax: limits.inFlightMax,
  }
}
