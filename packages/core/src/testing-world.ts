/** A world for tests of the engine: no database, no socket, everything it asks for in lists. */
import {
  type Append,
  type ClientFrame,
  type DeliveryRef,
  type Extension,
  type Member,
  OPEN,
  type Reject,
  type Retry,
  type ServerFrame,
  type SessionRef,
  type Settle,
  type Want,
} from '@sealpost/protocol'
import type { EnvelopeId, GroupId, MeshId, PeerKey, PeerNo } from '@sealpost/std'
import type { Effects, SpaceRef } from './effects.ts'
import { Engine } from './engine.ts'
import { defaultLimits, type EngineLimits } from './limits.ts'

export const MESH = 'a0'.repeat(16) as MeshId
export const keyOf = (n: number) => n.toString(16).padStart(64, '0') as PeerKey
export const idOf = (n: number) => n.toString(16).padStart(32, '0') as EnvelopeId
export const memberOf = (n: number): Member => ({
  meshId: MESH,
  peer: n as PeerNo,
  peerKey: keyOf(n),
  person: n as PeerNo,
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
/** What most tests don't look at. */
const SILENT = {
  collect: ignored,
  pause: ignored,
  resume: ignored,
  authenticate: ignored,
  open: ignored,
  fence: ignored,
  retry: ignored,
  findLost: ignored,
  whenSettled: (_: SessionRef, then: () => void) => then(),
  toldLost: ignored,
  lookup: ignored,
  measure: ignored,
  measureMesh: ignored,
  enrol: ignored,
  listMembers: ignored,
  consent: ignored,
  bind: ignored,
  lookupHistory: ignored,
  setGroup: ignored,
  listGroups: ignored,
  enrolDevice: ignored,
  listDevices: ignored,
  removeDevice: ignored,
  succeed: ignored,
  setPool: ignored,
  listPools: ignored,
  findPool: ignored,
  claimPool: ignored,
  giveBack: ignored,
  hint: ignored,
  checkStandings: ignored,
  follow: ignored,
  awaitAnswers: ignored,
  unfollow: ignored,
}

/** An engine with one live peer on socket 1, whose effects are written down. */
export function world(limits: Partial<EngineLimits> = {}) {
  const appends: Append[] = []
  const wants: Want[] = []
  const asked: PeerKey[][] = []
  const settles: Settle[] = []
  const rejects: Reject[] = []
  const strikes: DeliveryRef[] = []
  const retries: Retry[] = []
  const extensions: Extension[] = []
  const told: Settle[] = []
  const sent: ServerFrame[] = []
  const closes: [socket: number, how: string][] = []
  const askers: PeerNo[] = []
  const groupsSought: GroupId[] = []
  const spacesSought: SpaceRef[] = []
  const pings: number[] = []
  const effects: Effects = {
    ...SILENT,
    send: (_, frames) => {
      sent.push(...frames)
      return 'sent'
    },
    append: (append) => void appends.push(append),
    resolve: (_, __, { peers, groups, spaces }) => {
      asked.push([...peers])
      groupsSought.push(...groups)
      spacesSought.push(...spaces)
    },
    close: (socket, code) => void closes.push([socket, code]),
    hangUp: (socket) => void closes.push([socket, 'hung up']),
    ping: (socket) => void pings.push(socket),
    settle: (settle) => void settles.push(settle),
    reject: (all) => void rejects.push(...all),
    retry: (all) => void retries.push(...all),
    strike: (delivery) => void strikes.push(delivery),
    extend: (all) => void extensions.push(...all),
    tellPushed: (all) => void told.push(...all),
    claim: (want) => void wants.push(want),
    revoke: (_, asker) => void askers.push(asker.peer),
  }
  const engine = new Engine(effects, {
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
    engine.received(socket, {
      type: 'auth',
      version: 1,
      meshId: MESH,
      peerKey: keyOf(n),
      clientNonce: bytes,
      capabilities: [],
      signature: bytes,
      credit: 10,
    })
    engine.authenticated(socket, { member: memberOf(n), isSignatureGood: true, proof: bytes })
    engine.opened(socket, 2)
  }
  enter(1)
  const send = (...envelopes: Send[]) => engine.received(1, { type: 'send', envelopes })
  const nacks = () => sent.flatMap((frame) => (frame.type === 'nack' ? frame.items : []))
  const pushed = () => sent.flatMap((frame) => (frame.type === 'push' ? frame.deliveries.map(({ id }) => id) : []))
  const done = { settles, rejects, retries, strikes, extensions, told, groupsSought, spacesSought, pings }
  return { engine, effects, appends, wants, asked, connect, enter, send, nacks, pushed, sent, closes, askers, ...done }
}
