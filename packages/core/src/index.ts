/** The engine: pure and synchronous. Drivers do the waiting. */
export type { Counters, Timed, TimedStage } from './context.ts'
export type { FoundGroups, SpaceFacts } from './directory/groups.ts'
export {
  type ConsentReply,
  type FrameOfRequest,
  type GroupEntry,
  type OwnRequests,
  type RemovalReply,
  type Replies,
  type Reply,
  type Request,
  type Requester,
  type RequestOf,
  type RequestTable,
  type RequestType,
  type RevokedMember,
  type RevokeReply,
  replyFrom,
  type SetGroupReply,
  type SetPoolReply,
  type SignedUserRecords,
  type SuccessionReply,
} from './directory/requests.ts'
export type { NewDevice } from './directory/users.ts'
export * from './effects.ts'
export { Engine, type EngineOptions } from './engine.ts'
export * from './limits.ts'
export type { LivePeer } from './presence/presence.ts'
export { type Rate, Rates, TokenBucket } from './send/rate.ts'
export type { Authentication, Enrolment } from './session/session.ts'
export type { LiveShard, Placement, RedirectTarget } from './shards/homes.ts'
export { homeOf } from './shards/homes.ts'
