/** Shared state and history: apart from the core, so that a page loads it only if it has use for it. */
export type { HistoryAudience, SpaceStatement } from '@sealpost/identity'
export type { FetchLike } from '../http/access.ts'
export {
  type SealedChange,
  type StateChange,
  type StateDeletion,
  StateEntry,
  type StateEvent,
  type Tamper,
} from './entry-verifier.ts'
export {
  type OpenStateOptions,
  openState,
  type SpaceOptions,
  type StateRequestOptions,
  setSpace,
} from './open.ts'
export { openReactions, type ReactionCount, type Reactions, type ReactionsOptions } from './reactions.ts'
export type { HistoryEvent, HistoryMessage, SealedMessage } from './space-reader.ts'
export type { MemberGrant, SpaceStatus } from './space-service.ts'
export type { Written } from './space-writer.ts'
export { type Moment, type SpaceTerms, State, type StateValue, type WriteOptions } from './state.ts'
