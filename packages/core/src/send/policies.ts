/** Implements the router's policies for envelopes with a shared body: broadcasts to groups and messages to pools. */
import type { NackCode } from '@sealpost/protocol'
import type { GroupId, PeerKey, PoolId, SpaceId } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { GroupDirectory } from '../directory/groups.ts'
import type { LiveSession, RecipientState } from '../model.ts'
import type { BroadcastRequest, PoolRequest, SendRequest, SentItem } from './send-request.ts'

export interface Unknowns {
  readonly peers: Set<PeerKey>
  readonly groups: Set<GroupId>
  readonly pools: Set<PoolId>
  readonly spaces: Set<SpaceId>
}

export interface SendPolicy<R extends SendRequest> {
  recipientOf(from: LiveSession, request: R): RecipientState | undefined
  /** Returns whether everything that `refusalOf` reads was looked up recently. */
  isKnown(from: LiveSession, request: R): boolean
  /** Adds the recipients, groups and spaces that must be looked up. */
  seek(from: LiveSession, request: R, unknown: Unknowns): void
  refusalOf(from: LiveSession, request: R): NackCode | null
}

/** The policy for broadcasts, which the group or the recording space may refuse. */
export class BroadcastPolicy implements SendPolicy<BroadcastRequest> {
  readonly #context: Context
  readonly #groups: GroupDirectory

  constructor(context: Context, groups: GroupDirectory) {
    this.#context = context
    this.#groups = groups
  }

  recipientOf(from: LiveSession, { item }: BroadcastRequest): RecipientState | undefined {
    return from.mesh.find(item.recipient, this.#context.nowMs)
  }

  isKnown(from: LiveSession, { body }: BroadcastRequest): boolean {
    return this.#groups.isKnown(from, body.membership) && this.#isSpaceKnown(from, body)
  }

  seek(from: LiveSession, request: BroadcastRequest, unknown: Unknowns): void {
    const { body } = request
    if (!this.recipientOf(from, request)) unknown.peers.add(request.item.recipient)
    if (!this.#groups.isKnown(from, body.membership)) unknown.groups.add(body.membership!.group)
    else if (!this.#isSpaceKnown(from, body)) unknown.spaces.add(body.shared.record!.spaceId)
  }

  refusalOf(from: LiveSession, { body }: BroadcastRequest): NackCode | null {
    const code = this.#groups.refusalOf(from, body.membership)
    if (code || !body.shared.record) return code
    const space = from.spaces.find(body.shared.record.spaceId, this.#context.nowMs)
    if (!space) return null
    if (!space.keepsMessages) return 'not_kept'
    return space.isFull ? 'history_full' : null
  }

  #isSpaceKnown(from: LiveSession, { shared: { record } }: BroadcastRequest['body']): boolean {
    return !record || from.spaces.find(record.spaceId, this.#context.nowMs) !== undefined
  }
}

/** The policy for messages to pools, which refuses one sealed for former members. */
export class PoolPolicy implements SendPolicy<PoolRequest> {
  readonly #context: Context

  constructor(context: Context) {
    this.#context = context
  }

  recipientOf({ mesh }: LiveSession, { item }: PoolRequest): RecipientState | undefined {
    return mesh.pools.find(poolOf(item), this.#context.nowMs)
  }

  isKnown(): boolean {
    return true
  }

  seek(from: LiveSession, request: PoolRequest, { pools }: Unknowns): void {
    if (!this.recipientOf(from, request)) pools.add(poolOf(request.item))
  }

  refusalOf({ mesh }: LiveSession, { item, body: { toPool } }: PoolRequest): NackCode | null {
    const pool = mesh.pools.find(poolOf(item), this.#context.nowMs)!
    const isOld = toPool.epoch !== 0 && toPool.epoch < pool.epoch
    return isOld || !toPool.readers.some((reader) => pool.members.has(reader)) ? 'stale_roster' : null
  }
}

/** Returns the pool of an item, whose `recipient` is the pool's id. */
export const poolOf = ({ recipient }: SentItem): PoolId => recipient as string as PoolId
