/** The engine: pure and synchronous. Drivers do the waiting. */
export type { Counters } from './context.ts'
export * from './effects.ts'
export {
  type Authentication,
  Engine,
  type EngineOptions,
  type Enrolment,
  type RevokedMember,
} from './engine.ts'
export type { FoundGroups, GroupAnswer, GroupEntry, GroupPage } from './groups.ts'
export * from './limits.ts'
export type { ConsentAnswer, MemberPage } from './owner-answers.ts'
export type { NewDevice, PersonRecords, RemovalAnswer, SuccessionAnswer } from './persons.ts'
export { homeOf } from './placement.ts'
export type { PoolAnswer, PoolPage } from './pool-answers.ts'
export { type Rate, Rates, TokenBucket } from './rate.ts'
