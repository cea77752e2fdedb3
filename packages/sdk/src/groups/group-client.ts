/** Implements groups in the engine: the trusted statements, incoming group mail, and messages to groups. */
import { type GroupStatement, isGroupEnded, type Note } from '@sealpost/identity'
import { BODY_BYTES_MAX, type FrameOf } from '@sealpost/protocol'
import { type GroupId, type PeerKey, toHex, unicodeName } from '@sealpost/std'
import { refusedBy, SealpostError } from '../errors.ts'
import type { OpenedEnvelope, OpenedMessage, PushedDelivery } from '../inbox/message.ts'
import type { GroupMessage, GroupMessageTerms, OutgoingMessage, Receipt } from '../outbox/lane.ts'
import { keptForLater, type Orphan, type SharedBodyStore } from '../outbox/persistent-outbox.ts'
import type { GroupCrypto, PeerEvent } from '../ports.ts'
import type { BrokerRequestOf } from '../requests/requests.ts'
import type { SentHooks } from '../sent/hooks.ts'
import type { SeenStore } from '../stores/store.ts'
import { StatementCache } from './member-lists.ts'

export interface GroupClientPorts {
  readonly crypto: GroupCrypto
  readonly self: PeerKey
  readonly emit: (event: PeerEvent) => void
  readonly ask: (
    question: BrokerRequestOf<'groups'> & { type: 'groups' },
    handler: { replied(reply: FrameOf<'groupList'>): void; refused(error: SealpostError): void },
  ) => void
  readonly post: (post: OutgoingMessage) => void
  readonly unlock: (sender: PeerKey) => void
  readonly bodies: SharedBodyStore | null
  readonly current: (peer: PeerKey) => PeerKey
  readonly seen: SeenStore
  readonly hooks: Pick<SentHooks, 'guard'>
}

/** Records messages to a group in its history. A group's open `State` implements it. */
export interface MessageRecorder {
  /**
   * Checks whether a message with this note can be recorded. @throws SealpostError `key_missing` while there is no key
   * to seal it under; `value_too_large` if the note does not fit in a record
   */
  checkNote(note: Note | undefined): void
  /** Returns the history record to store with the sealed body; the ticket opens the body. */
  sealRecord(message: { readonly ticket: Uint8Array; readonly note: Note }): Uint8Array
  /** Called once for each member for whom the broker stored the message with its record. */
  recorded(record: Uint8Array): void
}

const newsOf = (group: GroupStatement): PeerEvent =>
  isGroupEnded(group)
    ? { type: 'group_deleted', group: group.groupId, name: unicodeName(group.name) }
    : { type: 'group_changed', group: group.groupId, name: unicodeName(group.name), epoch: group.epoch }

export interface GroupStatementsPorts {
  readonly crypto: Pick<GroupCrypto, 'read'>
  readonly emit: (event: PeerEvent) => void
  /** Requests the statements after this id. Reply: `listed`, or `close`. */
  readonly ask: (after: GroupId) => void
  /** Called when the group is new, has changed, or has ended. */
  readonly changed: (group: GroupStatement) => void
  readonly seen: SeenStore
}

/** The groups of the mesh. They are read on first use, and from then on in every session, also of later processes. */
export class GroupStatements extends StatementCache<GroupId, GroupStatement> {
  #isUsed: boolean

  constructor({ crypto, emit, ask, changed, seen }: GroupStatementsPorts) {
    super({
      of: 'group',
      seen,
      read: (bytes) => crypto.read(bytes),
      idOf: ({ groupId }) => groupId,
      beforeAll: '0'.repeat(32) as GroupId,
      ask,
      tampered: (group, reason) => emit({ type: 'group_tamper', group, reason }),
      changed: (group, isNew) => {
        if (!isNew || !isGroupEnded(group)) changed(group)
      },
    })
    this.#isUsed = this.all.length > 0
  }

  override refresh(done: (error: SealpostError | null) => void): void {
    this.#isUsed = true
    super.refresh(done)
  }

  /** Reads the statements again, because changes between sessions were not pushed. */
  connected(): void {
    if (this.#isUsed && !this.isReading) this.begin()
  }
}

export class GroupClient {
  readonly opening: GroupOpener
  readonly statements: GroupStatements
  readonly #ports: GroupClientPorts
  readonly #sends: GroupSender

  constructor(ports: GroupClientPorts) {
    const { crypto, emit, self, post, unlock, bodies } = ports
    this.#ports = ports
    this.statements = new GroupStatements({
      crypto,
      emit,
      ask: (after) => this.#ask(after),
      changed: (group) => emit(newsOf(group)),
      seen: ports.seen,
    })
    this.opening = new GroupOpener({ crypto, statements: this.statements, unlock, current: ports.current })
    const endOf = (error: SealpostError) => (bodies ? keptForLater(error) : error)
    this.#sends = new GroupSender({
      crypto,
      self,
      statements: this.statements,
      post,
      hooks: ports.hooks,
      saveOwed: (message) => bodies?.keep(message),
      endOf,
    })
  }

  send(send: GroupSend): void {
    this.#sends.send(send)
  }

  connected(): void {
    this.statements.connected()
  }

  told({ statements }: FrameOf<'groupList'>): void {
    this.statements.pushed(statements)
  }

  hasLeft({ groupId, epoch }: GroupMessage, peer: PeerKey): boolean {
    const group = this.statements.find(groupId)
    return group !== undefined && group.epoch > epoch && !isGroupMember(group, peer)
  }

  /** Resumes messages that an earlier process did not send to all members. */
  restore(): void {
    for (const message of this.#ports.bodies?.restored.values() ?? [])
      this.#sends.restore(message, this.#eventObserver(0))
  }

  orphan(message: GroupMessage, to: PeerKey, outboxNo: number): Orphan {
    return this.#sends.orphan(message, to, this.#eventObserver(outboxNo))
  }

  /** Returns an observer that turns outcomes into events, for posts for which no caller in this process waits. */
  #eventObserver(outboxNo: number): SendObserver {
    return {
      expect: () => undefined,
      ended: ({ peer: to, receipt, error }) => {
        if (receipt) this.#ports.emit({ type: 'sent', to, outboxNo, receipt })
        else if (error.code !== 'kept_for_later') this.#ports.emit({ type: 'send_failed', to, outboxNo, error })
      },
    }
  }

  #ask(after: GroupId): void {
    this.#ports.ask(
      { type: 'groups', after },
      {
        replied: ({ statements, isLast }) => this.statements.listed(statements, isLast),
        refused: (error) => this.statements.close(error),
      },
    )
  }
}

/** The outcome of a group message for one member. */
export type MemberOutcome =
  | { readonly peer: PeerKey; readonly receipt: Receipt; readonly error: null }
  | { readonly peer: PeerKey; readonly receipt: null; readonly error: SealpostError }

/** Receives the progress of a group message. */
export interface SendObserver {
  /** Set if the group's history is to record the message. */
  readonly recorder?: MessageRecorder | undefined
  /** Members that receive no key, because no certificate proves them. The observer ends them. */
  readonly barred?: ReadonlySet<PeerKey> | undefined
  /** Called with the members to send to, and again if the group changes. */
  readonly expect: (members: readonly PeerKey[]) => void
  readonly ended: (outcome: MemberOutcome) => void
  /** Returns the handler for the id of a member's envelope. Set for requests. */
  readonly sealed?: (to: PeerKey) => OutgoingMessage['sealed']
}

export interface GroupSend extends SendObserver {
  readonly groupId: GroupId
  readonly body: Uint8Array
  readonly terms: GroupMessageTerms
  /** Called once the message is sealed for the members in this statement and on its way. */
  readonly posted: (group: GroupStatement) => void
  readonly refused: (error: SealpostError) => void
}

export interface GroupSenderPorts {
  readonly crypto: GroupCrypto
  readonly self: PeerKey
  readonly statements: GroupStatements
  readonly post: (post: OutgoingMessage) => void
  readonly hooks: Pick<SentHooks, 'guard'>
  /** Called when the owed members have changed, so that they are stored. */
  readonly saveOwed: (message: GroupMessage) => void
  /** Returns the error of owed messages when the peer ends. */
  readonly endOf: (error: SealpostError) => SealpostError
}

/**
 * Sends messages to groups. Each message is sealed once, with one envelope for each member, in the ordinary lane to
 * that member. If the broker reports that the group has changed, refused envelopes are sealed again for the current
 * members. Pure and synchronous.
 */
export class GroupSender {
  readonly #ports: GroupSenderPorts

  constructor(ports: GroupSenderPorts) {
    this.#ports = ports
  }

  send(send: GroupSend): void {
    const { statements } = this.#ports
    if (send.body.length > BODY_BYTES_MAX)
      return send.refused(new SealpostError('body_too_large', `A body can have at most ${BODY_BYTES_MAX} bytes.`))
    const group = statements.find(send.groupId)
    if (group) return this.#begin(send, group)
    statements.refresh((error) => {
      if (error) return send.refused(error)
      const found = statements.find(send.groupId)
      if (found) this.#begin(send, found)
      else send.refused(unknownGroup())
    })
  }

  /** Takes over a post from an earlier process, for which no caller waits. */
  orphan(message: GroupMessage, to: PeerKey, observer: SendObserver): Pick<OutgoingMessage, 'accepted' | 'refused'> {
    return this.#answers(message, to, observer)
  }

  /** Resumes a message that an earlier process did not send to all members. */
  restore(message: GroupMessage, observer: SendObserver): void {
    if (message.owed.size > 0) this.#askAgain(message, observer)
  }

  #begin(send: GroupSend, group: GroupStatement): void {
    const { self } = this.#ports
    if (isGroupEnded(group)) return send.refused(unknownGroup())
    if (!isGroupMember(group, self)) return send.refused(notInGroup())
    const to = group.members.filter((member) => member !== self)
    send.expect(to)
    send.posted(group)
    this.#launch(send.body, { group, to, terms: send.terms, isSecond: false }, send)
  }

  #launch(
    body: Uint8Array,
    audience: { group: GroupStatement; to: PeerKey[] } & Pick<GroupMessage, 'terms' | 'isSecond'>,
    observer: SendObserver,
  ): void {
    const {
      group: { groupId, epoch },
      to,
      ...rest
    } = audience
    const sealed = this.#ports.crypto.sealBody(body, audience, observer.barred)
    const note = { ...rest.terms.note, group: groupId, groupEpoch: epoch }
    const record = observer.recorder?.sealRecord({ ticket: sealed.ticket, note })
    const message = { ...sealed, ...rest, groupId, epoch, record, members: to, owed: new Set<PeerKey>() }
    for (const member of to)
      if (!observer.barred?.has(member)) this.#ports.post(this.#postOf(message, note, member, observer))
  }

  #postOf(message: GroupMessage, note: Note, to: PeerKey, observer: SendObserver): OutgoingMessage {
    const { bodyId, ticket: body } = message
    const { priority, ttlSeconds, terms } = message.terms
    const { accepted, refused } = this.#answers(message, to, observer)
    const sealed = observer.sealed?.(to)
    return { to, priority, ttlSeconds, terms, note, bodyId, body, message, accepted, refused, sealed }
  }

  #answers(
    message: GroupMessage,
    peer: PeerKey,
    observer: SendObserver,
  ): Pick<OutgoingMessage, 'accepted' | 'refused'> {
    return {
      accepted: (receipt) => {
        observer.recorder?.recorded(message.record!)
        observer.ended({ peer, receipt, error: null })
      },
      refused: (error) => {
        if (error.code === 'stale_roster' && !message.isSecond) this.#owe(message, peer, observer)
        else observer.ended({ peer, receipt: null, error })
      },
    }
  }

  /**
   * Records that the message is still owed to this member. Runs synchronously with the refusal, so that after a crash
   * the message is either sent or owed.
   */
  #owe(message: GroupMessage, peer: PeerKey, observer: SendObserver): void {
    const isFirst = message.owed.size === 0
    message.owed.add(peer)
    this.#ports.saveOwed(message)
    if (isFirst) this.#askAgain(message, observer)
  }

  #askAgain(message: GroupMessage, observer: SendObserver): void {
    const { statements, hooks } = this.#ports
    statements.refresh((error) => {
      if (error) return this.#giveUp(message, observer, error)
      const group = statements.find(message.groupId)
      const send = (guarded: SendObserver) => this.#again(message, guarded, group)
      if (group && hooks.guard) hooks.guard(group.members, observer, send)
      else send(observer)
    })
  }

  #again(message: GroupMessage, observer: SendObserver, group: GroupStatement | undefined): void {
    const owed = new Set(message.owed)
    const body = this.#ports.crypto.openBody(message.bytes, message.ticket)
    // A message that an earlier process recorded in the history can only be sealed again with a recorder.
    const isSealable = message.record === undefined || observer.recorder
    const to = group && body && isSealable && group.epoch > message.epoch ? this.#nowOwed(group, message, owed) : []
    observer.expect(to)
    if (group && body && to.length > 0)
      this.#launch(body, { group, to, terms: message.terms, isSecond: true }, observer)
    message.owed.clear()
    this.#ports.saveOwed(message)
    const error = group && isGroupEnded(group) ? unknownGroup() : refusedBy('stale_roster')
    for (const peer of owed) if (!to.includes(peer)) observer.ended({ peer, receipt: null, error })
  }

  /**
   * Gives up the members to whom the message is still owed, because this process ends. With a store, the next process
   * resumes them.
   */
  #giveUp({ owed }: GroupMessage, observer: SendObserver, error: SealpostError): void {
    for (const peer of owed) observer.ended({ peer, receipt: null, error: this.#ports.endOf(error) })
  }

  /** Returns the current members that lack the message, including new ones. */
  #nowOwed(group: GroupStatement, { members }: GroupMessage, owed: ReadonlySet<PeerKey>): PeerKey[] {
    const { self } = this.#ports
    if (!isGroupMember(group, self)) return []
    const before = new Set(members)
    return group.members.filter((peer) => peer !== self && (owed.has(peer) || (before.size > 0 && !before.has(peer))))
  }
}

export const unknownGroup = (): SealpostError => refusedBy('unknown_group')

export function notInGroup(): SealpostError {
  return new SealpostError('not_in_group', 'Only members of a group may write to it.')
}

/** A ticket consists of the key of the body and the body's id. */
const BODY_KEY_BYTES = 32

/**
 * The dependencies for opening mail to a group or to every device of a user. The envelope contains the ticket to a body
 * that is sent with it. The group's id is sealed; the owner's statement proves whether the sender belongs to that
 * group.
 */
interface GroupOpenerPorts {
  readonly crypto: Pick<GroupCrypto, 'openBody'>
  readonly statements: GroupStatements
  /** Returns the current identity key for a former one. */
  readonly current: (peer: PeerKey) => PeerKey
  /** Retries the waiting mail of this sender. */
  readonly unlock: (sender: PeerKey) => void
}

export class GroupOpener {
  readonly #ports: GroupOpenerPorts
  /** Deliveries whose group statement has been read again since they arrived. */
  readonly #rechecked = new WeakSet<PushedDelivery>()

  constructor(ports: GroupOpenerPorts) {
    this.#ports = ports
  }

  /**
   * Opens mail. `asked`: the group's statement was requested, and `unlock` follows. `later`: the broker's statement is
   * too old.
   */
  open(delivery: PushedDelivery, opened: OpenedEnvelope): OpenedMessage | { flaw: string } | 'asked' | 'later' {
    const { note, header, headerHash } = opened
    if (note?.pool !== undefined) return this.#openForPool(delivery, opened, note)
    if (!note || (note.group === undefined && note.user === undefined))
      return delivery.body ? { flaw: 'no_group' } : opened
    if (!delivery.body) return { flaw: 'no_body' }
    const body = this.#ports.crypto.openBody(delivery.body, opened.body)
    if (!body) return { flaw: 'body_swapped' }
    if (note.group === undefined) {
      const bodyId = toHex(opened.body.subarray(BODY_KEY_BYTES))
      return { ok: true, header, headerHash, note, body, bodyId }
    }
    const group = this.#ports.statements.find(note.group)
    if (!group || group.epoch < note.groupEpoch!) return this.#ask(delivery)
    // Former members can't be verified, so accept them for older epochs.
    const isMember =
      isGroupMember(group, delivery.sender) || group.members.some((key) => this.#ports.current(key) === delivery.sender)
    if (group.epoch === note.groupEpoch && !isMember) return { flaw: 'not_in_group' }
    const among = { id: note.group, name: unicodeName(group.name), epoch: note.groupEpoch! }
    return { ok: true, header, headerHash, note, body, group: among }
  }

  /** Opens a message to a pool. Any member may send to a pool, so the sender's box is the only proof. */
  #openForPool({ body }: PushedDelivery, opened: OpenedEnvelope, note: Note): OpenedMessage | { flaw: string } {
    if (!body) return { flaw: 'no_body' }
    if (note.group !== undefined || note.user !== undefined) return { flaw: 'two_audiences' }
    const text = this.#ports.crypto.openBody(body, opened.body)
    return text ? { ...opened, body: text, pool: { id: note.pool!, epoch: note.poolEpoch! } } : { flaw: 'body_swapped' }
  }

  #ask(delivery: PushedDelivery): 'asked' | 'later' {
    if (this.#rechecked.has(delivery)) return 'later'
    this.#rechecked.add(delivery)
    this.#ports.statements.refresh((error) => error ?? this.#ports.unlock(delivery.sender))
    return 'asked'
  }
}

export function isGroupMember(group: GroupStatement, peer: PeerKey): boolean {
  const members = memberSets.get(group) ?? new Set(group.members)
  memberSets.set(group, members)
  return members.has(peer)
}

/** Caches the members of each group as a set for received messages. */
const memberSets = new WeakMap<GroupStatement, ReadonlySet<PeerKey>>()
