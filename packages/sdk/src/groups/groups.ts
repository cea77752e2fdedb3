/**
 * Implements groups for applications. The owner's signature determines the members; the sender chooses the recipients.
 */
import { changeGroup, createGroup, endGroup, GROUP_MEMBERS_MAX, type GroupStatement } from '@sealpost/identity'
import { type GroupId, type Millis, type PeerKey, withResolvers } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import { bytesOf, type Message } from '../inbox/message.ts'
import { checkProven, unprovenAmong, withoutBarred } from '../members/member-guard.ts'
import { type OutgoingMessage, postTermsOf, type Receipt, type SendOptions } from '../outbox/lane.ts'
import { type Peer, type PeerPorts, portsOf, REQUEST_TIMEOUT_MS } from '../peer.ts'
import type { PeerRequest } from '../requests/requests.ts'
import { type ConfirmWish, wishNote } from '../sent/hooks.ts'
import {
  type GroupSend,
  isGroupMember,
  type MemberOutcome,
  type MessageRecorder,
  notInGroup,
  unknownGroup,
} from './group-client.ts'
import { MemberList, MemberLists } from './member-lists.ts'

export type { MemberOutcome } from './group-client.ts'

export type GroupSendOptions = Omit<SendOptions, 'notBefore' | 'ifOnline'> &
  ConfirmWish & {
    /**
     * The open state of this group. Its history records the message in the same commit that stores it for the members.
     */
    readonly recordIn?: MessageRecorder
  }

/** A message on its way to each member. Ignoring its promises never causes an unhandled rejection. */
export interface PendingGroupSend {
  /** The epoch of the statement for whose members the message was sealed. */
  readonly epoch: number
  /** Each promise resolves when the broker has stored the envelope for this member, and rejects like that of `send`. */
  readonly members: ReadonlyMap<PeerKey, Promise<Receipt>>
  /**
   * Resolves with one outcome per member. If the group changed in the meantime, new members are included, and removed
   * members are refused as `stale_roster`.
   */
  readonly stored: Promise<readonly MemberOutcome[]>
}

export type GroupRequestOptions = Omit<SendOptions, 'notBefore' | 'ifOnline'> &
  ConfirmWish & {
    /** The time limit for each reply, from the call. Default: 30 s. */
    readonly timeoutMs?: Millis
  }

/** The reply of a member, or the reason why there is none: `timeout`, or an error of `send`. */
export type MemberReply =
  | { readonly peer: PeerKey; readonly reply: Message; readonly error: null }
  | { readonly peer: PeerKey; readonly reply: null; readonly error: SealpostError }

/** A request on its way to each member. Ignoring its promises never causes an unhandled rejection. */
export interface PendingGroupRequest {
  /** Each promise resolves with the reply of this member. */
  readonly members: ReadonlyMap<PeerKey, Promise<Message>>
  /** Resolves once each member has replied or its time is over. */
  readonly replies: Promise<readonly MemberReply[]>
}

const NO_BODY = new Uint8Array(0)

/**
 * Returns the groups that this peer can use. Members receive group messages without calling it.
 * @example const group = await groupsOf(peer).create('crew', [ben])
 */
export function groupsOf(peer: Peer): Groups {
  return new Groups(portsOf(peer))
}

export class Groups {
  readonly #ports: PeerPorts
  readonly #lists: MemberLists<GroupId, GroupStatement>

  /** Use `groupsOf` instead. @internal */
  constructor(ports: PeerPorts) {
    const { self, signing, meshId } = ports
    this.#ports = ports
    this.#lists = new MemberLists<GroupId, GroupStatement>({
      ...{ noun: 'group', membersMax: GROUP_MEMBERS_MAX, unknown: unknownGroup, self },
      create: (draft) => createGroup(signing, { ...draft, meshId }),
      change: (group, draft) => changeGroup(signing, group, draft),
      end: (group) => endGroup(signing, group),
      set: (statement) => ports.ask({ type: 'setGroup', statement }),
      checkProven: (added) => checkProven(ports, added),
      tell: (happened) => ports.tell(({ groups }) => happened(groups.statements)),
    })
  }

  /**
   * Creates a group. This peer owns it and is a member.
   * @throws SealpostError `group_malformed`, `too_many_groups`, `too_many_own_groups`
   * @example const group = await groupsOf(peer).create('crew', [ben])
   */
  async create(name: string, members: readonly PeerKey[]): Promise<Group> {
    const { groupId } = await this.#lists.create(name, [this.#ports.self, ...members])
    return this.#groupOf(groupId)
  }

  /**
   * Reads from the broker which groups this peer belongs to or owns.
   * @example const groups = await groupsOf(peer).list()
   */
  async list(): Promise<Group[]> {
    const { self } = this.#ports
    const all = await this.#lists.list()
    const own = all.filter((group) => isGroupMember(group, self) || group.owner === self)
    return own.map(({ groupId }) => this.#groupOf(groupId))
  }

  /**
   * Returns a group that this peer belongs to or owns.
   * @throws SealpostError `unknown_group`
   * @example const group = await groupsOf(peer).find(groupId)
   */
  async find(groupId: GroupId): Promise<Group> {
    await this.#lists.find(groupId)
    return this.#groupOf(groupId)
  }

  /**
   * Carries out a member's request to leave a group that this peer owns. Returns whether the message is such a request,
   * which the application then settles and does not show.
   * @throws the errors of `Group.remove`
   * @example if (await groupsOf(peer).takeLeave(message)) message.settle()
   */
  async takeLeave(message: Pick<Message, 'thread' | 'sender' | 'user' | 'group'>): Promise<boolean> {
    const { thread, sender, user } = message
    if (!isLeaveRequest(message)) return false
    const group = (await this.list()).find(({ id, isOwn }) => isOwn && leaveThreadOf(id) === thread)
    if (!group) return false
    const leaving = [user, sender].filter((key) => group.members.includes(key) && key !== group.owner)
    if (leaving.length > 0 && leaving.length < group.members.length) await group.remove(...leaving)
    return true
  }

  #groupOf(groupId: GroupId): Group {
    return new Group(this.#ports, this.#lists, groupId)
  }
}

/**
 * Returns whether the message is a request to leave a group, for `takeLeave`.
 * @example if (isLeaveRequest(message)) await groupsOf(peer).takeLeave(message)
 */
export const isLeaveRequest = ({ thread, group }: Pick<Message, 'thread' | 'group'>): boolean =>
  group === null && thread?.startsWith(LEAVE_THREAD) === true

/** The beginning of the thread of a request to leave a group. The beginning of the group's id follows it. */
const LEAVE_THREAD = '6c656176'
const leaveThreadOf = (id: GroupId): string => `${LEAVE_THREAD}${id.slice(0, 24)}`

/** A group. The events `group_changed` and `group_deleted` report changes. */
export class Group extends MemberList<GroupId> {
  readonly #ports: PeerPorts

  /** @internal */
  constructor(ports: PeerPorts, lists: MemberLists<GroupId, GroupStatement>, groupId: GroupId) {
    super(lists, groupId)
    this.#ports = ports
  }

  /**
   * Sends to every other member. The message is sealed once, and keeps its order relative to other messages to each
   * member. Resolves when the message is on its way.
   * @throws SealpostError `not_in_group`, `body_too_large`, `unknown_group` if it was deleted; with `confirm`,
   * `too_many_confirmations`; with `recordIn`,
   * `key_missing`, and `value_too_large` for an attachment whose reference exceeds a record. If the group records no
   * messages, each outcome is `not_kept` and no member receives the message
   * @example const { stored } = await group.send('to all of you')
   */
  async send(body: Uint8Array | string, options: GroupSendOptions = {}): Promise<PendingGroupSend> {
    const { to: _, ...terms } = postTermsOf(this.#ports.self, options, wishNote(options, this.#otherCount))
    options.recordIn?.checkNote(terms.note)
    const bytes = bytesOf(body)
    const known = this.#barred()
    const barred = known instanceof Promise ? await known : known
    return new Promise((resolve, refused) => {
      const answers = withoutBarred(new Gathering(resolve).answers, barred)
      const recorder = options.recordIn
      const send = { groupId: this.id, body: bytes, terms, recorder, refused, barred, ...answers }
      this.#ports.tell(({ groups }) => groups.send(send))
    })
  }

  /**
   * The newest statement of the group that this peer has verified, for the option `statement` of `openState`.
   * @example const state = await openState({ ...place, group: group.id, statement: () => group.statement })
   */
  get statement(): Uint8Array {
    return this.#ports.tell(({ groups }) => groups.statements.find(this.id))!.bytes
  }

  get #otherCount(): number {
    return this.members.filter((member) => member !== this.#ports.self).length
  }

  /** Returns the members that no certificate proves. They receive no key. */
  #barred(): ReadonlySet<PeerKey> | Promise<ReadonlySet<PeerKey>> {
    return unprovenAmong(this.#ports, this.members)
  }

  /**
   * Leaves the group. Only the owner's signature can remove a member, so this sends the owner a request, which the
   * owner's application carries out with `Groups.takeLeave`. Resolves when the broker has stored the request. The owner
   * itself is removed at once, and remains the owner.
   * @throws SealpostError `not_in_group`, and the errors of `peer.send` and `remove`
   * @example await group.leave()
   */
  async leave(): Promise<void> {
    const { self, tell } = this.#ports
    if (!this.members.includes(self)) throw notInGroup()
    if (this.isOwn) return this.remove(self)
    await new Promise<Receipt>((accepted, refused) => {
      const terms = postTermsOf(this.owner, { thread: leaveThreadOf(this.id) })
      const body = bytesOf(`I leave the group ${this.name} (${this.id}). Please remove me from it.`)
      tell((engine) => engine.enqueue({ ...terms, body, accepted, refused }))
    })
  }

  /**
   * Sends a request to every other member. Resolves when the request is on its way. Replies are settled like those to
   * `peer.request`: a reply with an `attachment` stays open. A reply after the timeout arrives as an ordinary message.
   * @throws the errors of `send`
   * @example const { replies } = await group.request('ready?', { timeoutMs: 60_000 })
   */
  async request(body: Uint8Array | string, options: GroupRequestOptions = {}): Promise<PendingGroupRequest> {
    const { timeoutMs = REQUEST_TIMEOUT_MS, ...asked } = options
    if (!(timeoutMs > 0)) throw new RangeError('timeoutMs must be greater than 0')
    const note = { isRequest: true, ...wishNote(options, this.#otherCount) }
    const { to: _, ...terms } = postTermsOf(this.#ports.self, asked, note)
    const bytes = bytesOf(body)
    const known = this.#barred()
    const barred = known instanceof Promise ? await known : known
    return new Promise((resolve, refused) => {
      this.#ports.tell((engine) => {
        const replies = new Replies((to, handlers) =>
          engine.beginRequest({ to, ...terms, body: NO_BODY, timeoutMs, ...handlers }),
        )
        const observer = withoutBarred(replies.observer, barred)
        const posted = () => resolve(replies.pending)
        engine.groups.send({ groupId: this.id, body: bytes, terms, posted, refused, barred, ...observer })
      })
    })
  }
}

type BeginRequest = (to: PeerKey, handlers: Pick<PeerRequest, 'replied' | 'refused'>) => OutgoingMessage

/** Collects the members' replies to a request. */
class Replies {
  readonly #begin: BeginRequest
  readonly #asked = new Map<PeerKey, { readonly reply: Promise<Message>; readonly post: OutgoingMessage }>()

  constructor(begin: BeginRequest) {
    this.#begin = begin
  }

  readonly observer: Pick<GroupSend, 'expect' | 'ended' | 'sealed'> = {
    expect: (members) => {
      for (const to of members) if (!this.#asked.has(to)) this.#ask(to)
    },
    sealed: (to) => this.#asked.get(to)!.post.sealed,
    ended: ({ peer, error }) => {
      if (error) this.#asked.get(peer)!.post.refused(error)
    },
  }

  get pending(): PendingGroupRequest {
    return { members: new Map([...this.#asked].map(([to, { reply }]) => [to, reply])), replies: this.#all() }
  }

  #ask(to: PeerKey): void {
    const { promise: reply, resolve: replied, reject: refused } = withResolvers<Message>()
    reply.catch(() => undefined) // prevents an unhandled rejection: `replies` reports the errors too
    this.#asked.set(to, { reply, post: this.#begin(to, { replied, refused }) })
  }

  /** A change to the group adds members while others reply. */
  async #all(): Promise<readonly MemberReply[]> {
    for (let count = 0; count < this.#asked.size; ) {
      count = this.#asked.size
      await Promise.allSettled([...this.#asked.values()].map(({ reply }) => reply))
    }
    return Promise.all([...this.#asked].map(([peer, { reply }]) => replyOf(peer, reply)))
  }
}

function replyOf(peer: PeerKey, reply: Promise<Message>): Promise<MemberReply> {
  return reply.then(
    (message): MemberReply => ({ peer, reply: message, error: null }),
    (error: SealpostError) => ({ peer, reply: null, error }),
  )
}

/** Collects the members' outcomes. Creates a promise only when it is accessed. */
class Gathering {
  readonly #resolve: (posted: PendingGroupSend) => void
  readonly #expected = new Set<PeerKey>()
  readonly #outcomes: MemberOutcome[] = []
  #promised: Map<PeerKey, PromiseWithResolvers<Receipt>> | null = null
  readonly #stored = withResolvers<readonly MemberOutcome[]>()

  constructor(resolve: (posted: PendingGroupSend) => void) {
    this.#resolve = resolve
  }

  readonly answers = {
    expect: (members: readonly PeerKey[]) => this.#expect(members),
    posted: ({ epoch }: GroupStatement) => this.#posted(epoch),
    ended: (outcome: MemberOutcome) => this.#ended(outcome),
  }

  #posted(epoch: number): void {
    const members = [...this.#expected]
    if (members.length === 0) this.#stored.resolve([])
    const promises = () => this.#promises(members)
    this.#resolve({
      epoch,
      stored: this.#stored.promise,
      get members() {
        return promises()
      },
    })
  }

  #expect(members: readonly PeerKey[]): void {
    for (const member of members) this.#expected.add(member)
  }

  #ended(outcome: MemberOutcome): void {
    this.#outcomes.push(outcome)
    this.#tell(outcome)
    if (this.#outcomes.length === this.#expected.size) this.#stored.resolve(this.#outcomes)
  }

  #promises(members: readonly PeerKey[]): Map<PeerKey, Promise<Receipt>> {
    if (!this.#promised) {
      this.#promised = new Map(members.map((member) => [member, withResolvers<Receipt>()]))
      for (const { promise } of this.#promised.values()) promise.catch(() => undefined) // prevents an unhandled rejection: `stored` reports the errors too
      for (const outcome of this.#outcomes) this.#tell(outcome)
    }
    return new Map([...this.#promised].map(([member, { promise }]) => [member, promise]))
  }

  #tell({ peer, receipt, error }: MemberOutcome): void {
    if (receipt) this.#promised?.get(peer)?.resolve(receipt)
    else this.#promised?.get(peer)?.reject(error)
  }
}
