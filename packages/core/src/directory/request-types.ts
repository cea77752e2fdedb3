/** Defines the types of members' requests and of the driver's replies. The engine handles them in `requests.ts`. */
import type { Consent, Frame, FrameOf, KeyBindingEntry, Lost, Member, PoolEntry } from '@sealpost/protocol'
import type { GroupId, PeerKey } from '@sealpost/std'
import type { SocketId } from '../model.ts'

/** The authenticated sender of a request. */
export type Requester = Pick<Member, 'meshId' | 'peer' | 'peerKey' | 'user'>

export type RevokedMember = Pick<Member, 'meshId' | 'peer' | 'peerKey'>

/** A group's newest statement, whose signature the broker has verified. */
export interface GroupEntry {
  readonly groupId: GroupId
  readonly epoch: number
  readonly statement: Uint8Array
}

/** Statements about users, whose signatures the broker has verified. */
export interface SignedUserRecords {
  readonly statements: readonly Uint8Array[]
  readonly removals: readonly Uint8Array[]
  readonly successions: readonly Uint8Array[]
}

/** `not_admin`: only an admin may revoke peers other than itself. */
export type RevokeReply =
  | { readonly outcome: 'done'; readonly ended: readonly RevokedMember[] }
  | { readonly outcome: 'not_admin' }

/** The new consent: with keys for its owner, with peer numbers for routing. */
export interface ConsentReply extends Pick<FrameOf<'consented'>, 'outcome' | 'peers' | 'unknown'> {
  readonly consent: Consent
}

type Refused<Type extends 'groupSet' | 'deviceRemoved' | 'succeeded'> = {
  readonly outcome: Exclude<FrameOf<Type>['outcome'], 'done'>
}

export type SetGroupReply = { readonly outcome: 'done'; readonly group: GroupEntry } | Refused<'groupSet'>

/** `pool`: the stored pool, including this change. */
export type SetPoolReply = { readonly outcome: 'done'; readonly pool: PoolEntry | null } | Refused<'groupSet'>

/** `ended`: the device, and the devices that it has vouched for. */
export type RemovalReply =
  | {
      readonly outcome: 'done'
      readonly user: PeerKey
      readonly ended: readonly RevokedMember[]
      readonly removal: Uint8Array
    }
  | Refused<'deviceRemoved'>

export type SuccessionReply =
  | { readonly outcome: 'done'; readonly successor: PeerKey; readonly statement: Uint8Array }
  | Refused<'succeeded'>

export interface Replies {
  lookup: { readonly bindings: readonly KeyBindingEntry[]; readonly users: SignedUserRecords }
  lookupHistory: readonly KeyBindingEntry[]
  members: Pick<FrameOf<'roster'>, 'members' | 'isLast'>
  revoke: RevokeReply
  consent: ConsentReply
  bind: FrameOf<'bound'>['outcome']
  groups: { readonly groups: readonly GroupEntry[]; readonly isLast: boolean }
  setGroup: SetGroupReply
  pools: { readonly statements: readonly Uint8Array[]; readonly isLast: boolean }
  setPool: SetPoolReply
  /** `pool`: null if the pool does not exist. */
  joinPool: { readonly pool: PoolEntry | null }
  devices: SignedUserRecords
  removeDevice: RemovalReply
  succeed: SuccessionReply
  /** Lost deliveries that were not reported to the peer yet, oldest first. `isAll`: whether the list is complete. */
  findLost: { readonly lost: readonly Lost[]; readonly isAll: boolean }
}

/** Requests that the engine itself makes when a session opens. */
export interface OwnRequests {
  findLost: { readonly type: 'findLost' }
}

export type RequestType = keyof Replies
export type FrameOfRequest<Type extends RequestType> = Type extends keyof OwnRequests
  ? OwnRequests[Type]
  : FrameOf<Extract<Type, Frame['type']>>

export interface RequestOf<Type extends RequestType> {
  readonly socket: SocketId
  readonly requester: Requester
  readonly frame: FrameOfRequest<Type>
}
export type Request = { [Type in RequestType]: RequestOf<Type> }[RequestType]
export type Reply = Replies[RequestType]

/**
 * The driver's handlers of requests. They return null if too many requests wait, or the requester is no longer a
 * member.
 */
export type RequestTable = {
  readonly [Type in RequestType]: (requester: Requester, frame: FrameOfRequest<Type>) => Promise<Replies[Type] | null>
}

export function replyFrom(table: RequestTable, { requester, frame }: Request): Promise<Reply | null> {
  const reply = table[frame.type] as (requester: Requester, frame: Request['frame']) => Promise<Reply | null>
  return reply(requester, frame)
}
