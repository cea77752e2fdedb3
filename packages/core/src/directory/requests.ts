/**
 * Defines the table of members' requests. Each request is one effect (`Effects.request`), one database statement in the
 * driver (`RequestTable`) and one reply (`Engine.replied`). A row defines the request's limits, the frames of its
 * reply, and how the reply changes this engine.
 */
import {
  type ClientFrame,
  type Consent,
  DEVICE_PAGE_MAX,
  type FrameOf,
  type PoolEntry,
  type ServerFrame,
} from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import type { DeliveryId, MeshId, PeerKey } from '@sealpost/std'
import type { LiveSession, SocketId } from '../model.ts'
import type {
  FrameOfRequest,
  GroupEntry,
  OwnRequests,
  Replies,
  Reply,
  Request,
  Requester,
  RequestOf,
  RequestType,
  RevokedMember,
  SignedUserRecords,
} from './request-types.ts'
import type { DoneRemoval } from './users.ts'

export interface RequestParts {
  readonly live: (socket: SocketId) => LiveSession | null
  readonly send: (live: LiveSession, frames: readonly ServerFrame[]) => void
  readonly effects: {
    request(request: Request): void
    hint(hint: Hint): void
    updateDeliveries(update: {
      readonly type: 'forgetLost'
      readonly requester: Requester
      readonly ids: readonly DeliveryId[]
    }): void
  }
  readonly groups: {
    listed(meshId: MeshId, groups: readonly GroupEntry[]): void
    wasSet(meshId: MeshId, group: GroupEntry, requester: LiveSession | null): void
  }
  readonly pools: {
    /** Returns the reply for a session that leaves the pool, which needs no statement. */
    asked(live: LiveSession, frame: FrameOf<'joinPool'>): FrameOf<'poolJoined'> | undefined
    joined(live: LiveSession, frame: FrameOf<'joinPool'>, pool: PoolEntry | null): FrameOf<'poolJoined'>['outcome']
    wasSet(meshId: MeshId, pool: PoolEntry): void
  }
  readonly users: {
    consented(requester: Requester, consent: Consent): void
    keyChanged(meshId: MeshId, peerKey: PeerKey): void
    deviceRemoved(requester: Requester, reply: DoneRemoval): void
    succeeded(requester: Requester, statement: Uint8Array): void
  }
  readonly disconnectMember: (member: RevokedMember) => void
}

interface Row<Type extends RequestType> {
  /** Called before the request goes to the driver. Returns the reply if no statement is needed. */
  readonly asked?: (live: LiveSession, frame: FrameOfRequest<Type>, parts: RequestParts) => ServerFrame | undefined
  readonly frames: (
    reply: Replies[Type],
    frame: FrameOfRequest<Type>,
    live: LiveSession,
    parts: RequestParts,
  ) => readonly ServerFrame[]
  /** Applies the reply to this engine, even if the requester has left. */
  readonly applied?: (
    reply: Replies[Type],
    request: RequestOf<Type>,
    parts: RequestParts,
    live: LiveSession | null,
  ) => void
}

const ROWS: { readonly [Type in RequestType]: Row<Type> } = {
  lookup: {
    asked: (live, { peers }) => void live.notesLookup(peers),
    frames: ({ bindings, users }, { ref, peers }) => {
      const known = new Set(bindings.map(({ peer }) => peer))
      const unknown = peers.filter((peer) => !known.has(peer))
      return [...introductions(users), { type: 'directory', ref, bindings: [...bindings], unknown }]
    },
  },
  lookupHistory: {
    asked: (live, { peer }) => void live.notesLookup([peer]),
    frames: (bindings, { ref }) => [{ type: 'keyHistory', ref, bindings: [...bindings] }],
  },
  members: {
    frames: (page, { ref }) => [{ type: 'roster', ref, ...page }],
  },
  revoke: {
    frames: (reply, { ref, members }) => {
      const ended = new Set(reply.outcome === 'done' ? reply.ended.map(({ peerKey }) => peerKey) : members)
      return [{ type: 'revoked', ref, outcome: reply.outcome, unknown: members.filter((peer) => !ended.has(peer)) }]
    },
    applied: (reply, _, { disconnectMember }) => {
      if (reply.outcome === 'done') for (const member of reply.ended) disconnectMember(member)
    },
  },
  consent: {
    frames: ({ consent, ...reply }, { ref }) => [{ type: 'consented', ref, policy: consent.policy, ...reply }],
    applied: ({ consent }, { requester, frame: { policy, changes } }, { users, effects }) => {
      users.consented(requester, consent)
      const { meshId, user } = requester
      if (policy !== 'keep' || changes.length > 0) effects.hint({ type: 'staleConsent', meshId, user })
    },
  },
  bind: {
    frames: (outcome, { ref }) => [{ type: 'bound', ref, outcome }],
    applied: (outcome, { requester: { meshId, peerKey } }, { users, effects }) => {
      if (outcome !== 'done') return
      effects.hint({ type: 'staleKey', meshId, peer: peerKey })
      users.keyChanged(meshId, peerKey)
    },
  },
  groups: {
    frames: ({ groups, isLast }, { ref }) => {
      return [{ type: 'groupList', ref, statements: groups.map(({ statement }) => statement), isLast }]
    },
    applied: ({ groups: found }, { requester }, { groups }) => groups.listed(requester.meshId, found),
  },
  setGroup: {
    frames: ({ outcome }, { ref }) => [{ type: 'groupSet', ref, outcome }],
    applied: (reply, { requester }, { groups }, live) => {
      if (reply.outcome === 'done') groups.wasSet(requester.meshId, reply.group, live)
    },
  },
  pools: {
    frames: ({ statements, isLast }, { ref }) => [{ type: 'groupList', ref, statements: [...statements], isLast }],
  },
  setPool: {
    frames: ({ outcome }, { ref }) => [{ type: 'groupSet', ref, outcome }],
    applied: (reply, { requester }, { pools }) => {
      if (reply.outcome === 'done' && reply.pool) pools.wasSet(requester.meshId, reply.pool)
    },
  },
  joinPool: {
    asked: (live, frame, { pools }) => pools.asked(live, frame),
    frames: ({ pool }, frame, live, { pools }) => [
      { type: 'poolJoined', ref: frame.ref, pool: frame.pool, outcome: pools.joined(live, frame, pool) },
    ],
  },
  devices: {
    asked: (live, { peers }) => void live.notesLookup(peers),
    frames: (users, { ref }) => {
      const frames = introductions({ ...users, statements: [], removals: [] })
      const lists = deviceListsOf(users)
      const last = lists.pop() ?? NO_DEVICES
      return [...frames, ...lists, { ...last, ref }]
    },
  },
  removeDevice: {
    frames: ({ outcome }, { ref }) => [{ type: 'deviceRemoved', ref, outcome }],
    applied: (reply, { requester }, { users, disconnectMember }) => {
      if (reply.outcome !== 'done') return
      users.deviceRemoved(requester, reply)
      for (const member of reply.ended) disconnectMember(member)
    },
  },
  succeed: {
    frames: ({ outcome }, { ref }) => [{ type: 'succeeded', ref, outcome }],
    applied: (reply, { requester }, { users }) => {
      if (reply.outcome === 'done') users.succeeded(requester, reply.statement)
    },
  },
  findLost: {
    frames: ({ lost, isAll }) => [{ type: 'recovered', lost: [...lost], isAll }],
    applied: ({ lost }, { requester }, { effects }, live) => {
      const ids = lost.map(({ id }) => id)
      if (live && ids.length > 0) effects.updateDeliveries({ type: 'forgetLost', requester, ids })
    },
  },
}

type RequestFrame = FrameOf<Exclude<RequestType, keyof OwnRequests>>

export const isRequest = (frame: ClientFrame): frame is RequestFrame => frame.type in ROWS

/** Frames that count as requests, because each sends a frame to every watcher or waits for a commit. */
const COSTLY: ReadonlySet<ClientFrame['type']> = new Set(['status', 'watch', 'ping'])

export const isRated = (frame: ClientFrame): boolean => isRequest(frame) || COSTLY.has(frame.type)

export class MemberRequests {
  readonly #parts: RequestParts

  constructor(parts: RequestParts) {
    this.#parts = parts
  }

  ask(live: LiveSession, frame: Request['frame']): void {
    const parts = this.#parts
    const reply = rowOf(frame.type).asked?.(live, frame, parts)
    if (reply) return parts.send(live, [reply])
    parts.effects.request({ socket: live.socket, requester: requesterOf(live), frame } as Request)
  }

  replied(request: Request, reply: Reply): void {
    const parts = this.#parts
    const row = rowOf(request.frame.type)
    const live = parts.live(request.socket)
    if (live) parts.send(live, row.frames(reply, request.frame, live, parts))
    row.applied?.(reply, request, parts, live)
  }
}

/** A row of any type. The types of `ROWS` and `RequestOf` keep requests and replies matched. */
interface AnyRow {
  asked?(live: LiveSession, frame: Request['frame'], parts: RequestParts): ServerFrame | undefined
  frames(reply: Reply, frame: Request['frame'], live: LiveSession, parts: RequestParts): readonly ServerFrame[]
  applied?(reply: Reply, request: Request, parts: RequestParts, live: LiveSession | null): void
}
const rowOf = (type: RequestType): AnyRow => ROWS[type] as unknown as AnyRow

const requesterOf = ({ mesh: { meshId }, peer: { peer, peerKey, user } }: LiveSession): Requester => ({
  meshId,
  peer,
  peerKey,
  user,
})

/** Returns the signed records about users that precede the requested keys. */
function introductions(users: SignedUserRecords): ServerFrame[] {
  const { successions } = users
  const renamed: ServerFrame[] = successions.length > 0 ? [{ type: 'successions', statements: [...successions] }] : []
  return [...renamed, ...deviceListsOf(users)]
}

const NO_DEVICES: FrameOf<'deviceList'> = { type: 'deviceList', ref: 0, statements: [], removals: [] }

/** Returns the statements in as many frames as they need. */
function deviceListsOf({ statements, removals }: SignedUserRecords): FrameOf<'deviceList'>[] {
  const count = Math.ceil(Math.max(statements.length, removals.length) / DEVICE_PAGE_MAX)
  return Array.from({ length: count }, (_, page) => {
    const [from, to] = [page * DEVICE_PAGE_MAX, (page + 1) * DEVICE_PAGE_MAX]
    return { ...NO_DEVICES, statements: statements.slice(from, to), removals: removals.slice(from, to) }
  })
}
