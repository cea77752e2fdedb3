/** Provides engine tests with a world without database and sockets, which records effects in lists. */
import {
  type Append,
  type ClientFrame,
  type DeliveryRef,
  type Extension,
  type Member,
  OPEN,
  type Reject,
  type Release,
  type Retry,
  type ServerFrame,
  type SessionRef,
  type Settle,
} from '@sealpost/protocol'
import { type EnvelopeId, type GroupId, type MeshId, type PeerKey, type PeerNo, unreachable } from '@sealpost/std'
import type { FrameOfRequest, Replies, Request, RequestType } from '../directory/request-types.ts'
import type { ClaimWantOf, DeliveryUpdate, Effects, PeerSpace } from '../effects.ts'
import { Engine } from '../engine.ts'
import { defaultLimits, type EngineLimits } from '../limits.ts'

export const MESH = 'a0'.repeat(16) as MeshId
export const keyOf = (n: number) => n.toString(16).padStart(64, '0') as PeerKey
export const idOf = (n: number) => n.toString(16).padStart(32, '0') as EnvelopeId
export const memberOf = (n: number): Member => ({
  meshId: MESH,
  peer: n as PeerNo,
  peerKey: keyOf(n),
  user: n as PeerNo,
  isRevoked: false,
  sessionEpoch: 0,
  consent: OPEN,
})

type Send = Extract<ClientFrame, { type: 'send' }>['envelopes'][number]
export const sendOf = (n: number, to: number, more: Partial<Send> = {}): Send => ({
  envelopeId: idOf(n),
  recipient: keyOf(to),
  priority: 'next',
  isHead: true,
  ttlSeconds: 0,
  envelope: new Uint8Array(50),
  ...more,
})

const ignored = () => undefined
/** Effects that most tests ignore. */
const SILENT = {
  pause: ignored,
  resume: ignored,
  verify: ignored,
  open: ignored,
  fence: ignored,
  whenSettled: (_: SessionRef, then: () => void) => then(),
  measure: ignored,
  hint: ignored,
  checkSessions: ignored,
  follow: ignored,
  awaitPresence: ignored,
  unfollow: ignored,
}

const noUpdates = () => ({
  rejects: [] as Reject[],
  failedAttempts: [] as DeliveryRef[],
  retries: [] as Retry[],
  extensions: [] as Extension[],
  releases: [] as Release[],
  pushedNotices: [] as Settle[],
})

function recordUpdate(its: ReturnType<typeof noUpdates>, update: DeliveryUpdate): void {
  switch (update.type) {
    case 'retry':
      return void its.retries.push(...update.retries)
    case 'reject':
      return void its.rejects.push(...update.rejects)
    case 'extend':
      return void its.extensions.push(...update.extensions)
    case 'release':
      return void its.releases.push(...update.releases)
    case 'failAttempt':
      return void its.failedAttempts.push(update.delivery)
    case 'notifyPushed':
      return void its.pushedNotices.push(...update.deliveries)
    case 'forgetLost':
      return
    default:
      unreachable(update)
  }
}

function recording() {
  const its = {
    ...noUpdates(),
    appends: [] as Append[],
    wants: [] as ClaimWantOf<'mailbox'>[],
    remoteWants: [] as ClaimWantOf<'remote'>[],
    poolWants: [] as ClaimWantOf<'pool'>[],
    requests: [] as Request[],
    asked: [] as PeerKey[][],
    settles: [] as Settle[],
    sent: [] as ServerFrame[],
    closes: [] as [socket: number, how: string][],
    groupsSought: [] as GroupId[],
    spacesSought: [] as PeerSpace[],
    pings: [] as number[],
  }
  const effects: Effects = {
    ...SILENT,
    send: (_, frames) => {
      its.sent.push(...frames)
      return 'sent'
    },
    append: (append) => void its.appends.push(append),
    resolve: (_, __, { peers, groups, spaces }) => {
      its.asked.push([...peers])
      its.groupsSought.push(...groups)
      its.spacesSought.push(...spaces)
    },
    close: (socket, refusal) => void its.closes.push([socket, refusal?.code ?? 'done']),
    ping: (socket) => void its.pings.push(socket),
    settle: (settle) => void its.settles.push(settle),
    updateDeliveries: (update) => recordUpdate(its, update),
    claim: (want) => {
      if (want.kind === 'mailbox') its.wants.push(want)
      else if (want.kind === 'remote') its.remoteWants.push(want)
      else its.poolWants.push(want)
    },
    request: (request) => void its.requests.push(request),
  }
  return { ...its, effects }
}

/** Returns an engine with one live peer on socket 1, and its recorded effects. */
export function world(limits: Partial<EngineLimits> = {}) {
  const its = recording()
  const engine = new Engine(its.effects, {
    limits: { ...defaultLimits, rate: null, byteRate: null, ...limits },
    nowMs: 0,
    incarnation: '00'.repeat(16),
    durability: 'fsync',
  })
  const bytes = new Uint8Array(64)
  const hello = { type: 'hello', versions: [1], brokerKey: keyOf(9), connectionId: bytes, nonce: bytes } as const
  const connect = (n: number) => engine.connected(n, { ...hello, versions: [1], issuedAtMs: 0, authWithinMs: 1 })
  const enter = (n: number, socket = n) => {
    connect(socket)
    engine.received(socket, authOf(n))
    engine.authenticated(socket, { member: memberOf(n), isSignatureGood: true, proof: bytes })
    engine.opened(socket, 2)
  }
  enter(1)
  const send = (...envelopes: Send[]) => engine.received(1, { type: 'send', envelopes })
  const nacks = () => its.sent.flatMap((frame) => (frame.type === 'nack' ? frame.items : []))
  const pushed = () => its.sent.flatMap((frame) => (frame.type === 'push' ? frame.deliveries.map(({ id }) => id) : []))
  /** Replies to a request of peer `n`. */
  const reply = <Type extends RequestType>(n: number, frame: FrameOfRequest<Type>, replied: Replies[Type]) => {
    const { meshId, peer, peerKey, user } = memberOf(n)
    engine.replied({ socket: n, requester: { meshId, peer, peerKey, user }, frame } as Request, replied)
  }
  return { ...its, engine, connect, enter, send, nacks, pushed, reply }
}

const authOf = (n: number): Extract<ClientFrame, { type: 'auth' }> => ({
  type: 'auth',
  version: 1,
  meshId: MESH,
  peerKey: keyOf(n),
  clientNonce: new Uint8Array(64),
  capabilities: [],
  signature: new Uint8Array(64),
  credit: 10,
})
