/**
 * Sends requests to the broker and to other peers.
 *
 * The reply to a broker request is one frame. A request stays open until its reply arrives. It is repeated in the next
 * session, and also if there is no reply for a while, for example because the broker's database is unavailable. So
 * every request here is idempotent.
 */
import {
  CONSENT_CHANGES_MAX,
  type ConsentPolicy,
  type FrameOf,
  type MemberRole,
  type ServerFrame,
} from '@sealpost/protocol'
import { type EnvelopeId, type InviteId, type Millis, type PeerKey, unicodeName } from '@sealpost/std'
import { refusedBy, SealpostError } from '../errors.ts'
import type { Message } from '../inbox/message.ts'
import { chunksOf, type OutgoingMessage, type OutgoingTerms } from '../outbox/lane.ts'
import { type EnginePart, NO_FRAMES } from '../ports.ts'

const REPLIES = {
  members: 'roster',
  revoke: 'revoked',
  consent: 'consented',
  bind: 'bound',
  setGroup: 'groupSet',
  groups: 'groupList',
  devices: 'deviceList',
  removeDevice: 'deviceRemoved',
  succeed: 'succeeded',
  setPool: 'groupSet',
  pools: 'groupList',
} as const

export type BrokerRequestType = keyof typeof REPLIES
export type BrokerRequestOf<Type extends BrokerRequestType> = Omit<FrameOf<Type>, 'ref'>
type BrokerReplyTo<Type extends BrokerRequestType> = FrameOf<(typeof REPLIES)[Type]>

export interface ReplyHandler<Type extends BrokerRequestType = BrokerRequestType> {
  replied(answer: BrokerReplyTo<Type>): void
  refused(error: SealpostError): void
}

interface OpenBrokerRequest {
  readonly frame: FrameOf<BrokerRequestType>
  readonly handler: ReplyHandler
  /** When the request was sent in this session; Infinity if it was not. */
  sentAtMs: Millis
}

const RESEND_AFTER_MS = 5_000

export class BrokerRequests implements EnginePart {
  readonly #open = new Map<number, OpenBrokerRequest>()
  #ref = 0

  send<Type extends BrokerRequestType>(question: BrokerRequestOf<Type>, handler: ReplyHandler<Type>): void {
    this.#ref = (this.#ref + 1) >>> 0
    const frame = { ...question, ref: this.#ref } as unknown as FrameOf<BrokerRequestType>
    this.#open.set(this.#ref, { frame, handler: handler as unknown as ReplyHandler, sentAtMs: Infinity })
  }

  get isOpen(): boolean {
    return this.#open.size > 0
  }

  takeFrames(nowMs: Millis): readonly FrameOf<BrokerRequestType>[] {
    if (this.#open.size === 0) return NO_FRAMES
    const due = [...this.#open.values()].filter(
      ({ sentAtMs: askedAtMs }) => askedAtMs === Infinity || nowMs - askedAtMs >= RESEND_AFTER_MS,
    )
    for (const open of due) open.sentAtMs = nowMs
    return due.map(({ frame }) => frame)
  }

  get wakeAtMs(): Millis {
    let atMs = Infinity
    for (const { sentAtMs: askedAtMs } of this.#open.values()) atMs = Math.min(atMs, askedAtMs + RESEND_AFTER_MS)
    return atMs
  }

  /** Handles a reply. Ignores one that no open request expects. */
  replied(answer: Extract<ServerFrame, BrokerReplyTo<BrokerRequestType>>): void {
    const open = this.#open.get(answer.ref)
    if (!open || REPLIES[open.frame.type] !== answer.type) return
    this.#open.delete(answer.ref)
    open.handler.replied(answer)
  }

  disconnected(): void {
    for (const open of this.#open.values()) open.sentAtMs = Infinity
  }

  close(error: SealpostError): void {
    for (const { handler } of this.#open.values()) handler.refused(error)
    this.#open.clear()
  }
}

/** A member of the mesh, as the broker reports it without a proof. */
export interface MemberEntry {
  readonly peer: PeerKey
  /** The display name; empty if there is none. It does not prove an identity: compare fingerprints. */
  readonly name: string
  readonly role: MemberRole
}

export type RequestBroker = <Type extends BrokerRequestType>(
  question: BrokerRequestOf<Type> & { type: Type },
) => Promise<BrokerReplyTo<Type>>

const BEFORE_ALL = '0'.repeat(64) as PeerKey

/** Lists members page by page. Stops if the broker repeats a page. */
export async function listMembers(ask: RequestBroker): Promise<MemberEntry[]> {
  const all: MemberEntry[] = []
  let after = BEFORE_ALL
  for (;;) {
    const { members, isLast } = await ask({ type: 'members', after })
    for (const member of members) all.push({ ...member, name: unicodeName(member.name) })
    const last = members.at(-1)?.peer
    if (isLast || last === undefined || last <= after) return all
    after = last
  }
}

/** Revokes members and invites. @throws SealpostError `not_admin`, `unknown_recipient` */
export async function revoke(ask: RequestBroker, named: { members?: PeerKey[]; invites?: InviteId[] }): Promise<void> {
  const answer: FrameOf<'revoked'> = await ask({ type: 'revoke', members: [], invites: [], ...named })
  if (answer.outcome === 'not_admin') throw new SealpostError('not_admin', 'Only an admin may revoke other members.')
  if (answer.unknown.length > 0) throw refusedBy('unknown_recipient')
}

export interface ConsentState {
  /** `open`: accepts mail from everybody except blocked peers. `contacts`: only from allowed peers. */
  readonly policy: ConsentPolicy
  readonly allowed: readonly PeerKey[]
  readonly blocked: readonly PeerKey[]
}

export interface ConsentUpdate {
  readonly policy?: ConsentPolicy
  /** If a key is in several of these lists, the last list that contains it applies. */
  readonly allow?: readonly PeerKey[]
  readonly block?: readonly PeerKey[]
  readonly forget?: readonly PeerKey[]
}

type Change = FrameOf<'consent'>['changes'][number]

/**
 * Changes the consent. Returns the resulting state; an empty update only reads it. More than 256 changes are sent in
 * several parts.
 * @throws SealpostError `unknown_recipient`, `too_many_named`
 */
export async function updateConsent(ask: RequestBroker, update: ConsentUpdate): Promise<ConsentState> {
  const { policy = 'keep' } = update
  const [changes = [], ...more] = chunksOf(changesOf(update), CONSENT_CHANGES_MAX)
  let answer = await ask({ type: 'consent', policy, changes })
  const unknown = [...answer.unknown]
  for (const piece of more) {
    check(answer)
    answer = await ask({ type: 'consent', policy: 'keep', changes: piece })
    unknown.push(...answer.unknown)
  }
  check(answer)
  if (unknown.length > 0) throw refusedBy('unknown_recipient')
  return stateOf(answer)
}

function changesOf({ allow = [], block = [], forget = [] }: ConsentUpdate): Change[] {
  const changes = (peers: readonly PeerKey[], verdict: Change['verdict']) => peers.map((peer) => ({ peer, verdict }))
  return [...changes(allow, 'allowed'), ...changes(block, 'blocked'), ...changes(forget, 'forgotten')]
}

function check({ outcome }: FrameOf<'consented'>): void {
  if (outcome === 'too_many')
    throw new SealpostError('too_many_named', 'Too many peers are allowed or blocked. Forget some first.')
}

function stateOf({ policy, peers }: FrameOf<'consented'>): ConsentState {
  const named = (wanted: string) => peers.filter(({ verdict }) => verdict === wanted).map(({ peer }) => peer)
  return { policy, allowed: named('allowed'), blocked: named('blocked') }
}

/** A request to another peer; either `replied` or `refused` is called. */
export interface PeerRequest extends OutgoingTerms {
  readonly body: Uint8Array
  /** Returns whether a peer may reply. Default: only the recipient. */
  readonly isFrom?: (sender: PeerKey) => boolean
  readonly timeoutMs: Millis
  readonly replied: (answer: Message) => void
  readonly refused: (error: SealpostError) => void
}

interface OpenPeerRequest extends Required<Pick<PeerRequest, 'isFrom' | 'replied' | 'refused'>> {
  readonly deadlineMs: Millis
  /** Null until the request is sealed. */
  envelopeId: EnvelopeId | null
}

/**
 * Tracks requests to other peers that wait for a reply. A reply contains the id of the request's envelope inside its
 * box, so only the peer that received the request can have written it. A device may reply for its user. Pure and
 * synchronous.
 */
export class PeerRequests {
  readonly #open = new Set<OpenPeerRequest>()
  readonly #sealed = new Map<EnvelopeId, OpenPeerRequest>()
  /** A lower bound for the next deadline. Cached, because it is read with every frame. */
  wakeAtMs: Millis = Infinity

  readonly #current: (peer: PeerKey) => PeerKey

  /** `current` returns the current identity key for a former one. */
  constructor(current: (peer: PeerKey) => PeerKey = (peer) => peer) {
    this.#current = current
  }

  /** Begins a request. Returns the message to post. */
  begin(request: PeerRequest, nowMs: Millis): OutgoingMessage {
    const { timeoutMs, replied, isFrom = (peer) => this.#current(post.to) === peer, ...post } = request
    const { refused } = post
    const open: OpenPeerRequest = { isFrom, replied, refused, deadlineMs: nowMs + timeoutMs, envelopeId: null }
    this.#open.add(open)
    this.wakeAtMs = Math.min(this.wakeAtMs, open.deadlineMs)
    return {
      ...post,
      sealed: (envelopeId) => {
        if (!this.#open.has(open)) return
        open.envelopeId = envelopeId
        this.#sealed.set(envelopeId, open)
      },
      accepted: () => undefined,
      refused: (error) => {
        // After `maybe_sent`, the request may have arrived, so keep waiting for a reply.
        if (error.code !== 'maybe_sent' && this.#end(open)) refused(error)
      },
    }
  }

  /** Passes the message to the requester if it replies to an open request. Returns whether it does. */
  take(message: Message): boolean {
    const { inReplyTo, sender } = message
    const open = inReplyTo && this.#sealed.get(inReplyTo)
    if (!open || ![sender, message.user].some(open.isFrom)) return false
    this.#end(open)
    open.replied(message)
    return true
  }

  expire(nowMs: Millis): void {
    if (nowMs < this.wakeAtMs) return
    for (const open of [...this.#open]) if (nowMs >= open.deadlineMs && this.#end(open)) open.refused(timedOut())
    this.wakeAtMs = Infinity
    for (const { deadlineMs } of this.#open) this.wakeAtMs = Math.min(this.wakeAtMs, deadlineMs)
  }

  close(error: SealpostError): void {
    for (const open of [...this.#open]) if (this.#end(open)) open.refused(error)
    this.wakeAtMs = Infinity
  }

  #end(open: OpenPeerRequest): boolean {
    if (open.envelopeId) this.#sealed.delete(open.envelopeId)
    return this.#open.delete(open)
  }
}

function timedOut(): SealpostError {
  return new SealpostError('timeout', 'No reply arrived in time. A later reply is a message.', {
    isRetryable: true,
  })
}
