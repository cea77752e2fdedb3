/** What a session is told of its broker when it begins. */
import type { FrameOf } from '@sealpost/protocol'
import type { EngineOptions } from './engine.ts'

export function welcomeOf(
  { limits, incarnation, durability }: EngineOptions,
  epoch: number,
  proof: Uint8Array,
): FrameOf<'welcome'> {
  return {
    type: 'welcome',
    proof,
    epoch,
    incarnation,
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
