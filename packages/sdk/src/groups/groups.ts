/** Implements groups for applications. The owner's signature decides membership; the sender chooses recipients. */
import { GROUP_MEMBERS_MAX, type GroupStatement, isGroupEnded, isMemberListName } from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import { type GroupId, isChosenName, NAME_RULE, type PeerKey, tidyName, withResolvers } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { bytesOf } from '../inbox/message.ts'
import { postTermsOf, type Receipt, type SendOptions } from '../outbox/lane.ts'
import type { RequestBroker } from '../requests/requests.ts'
import {
  type GroupClient,
  isGroupMember,
  type MemberOutcome,
  type MessageRecorder,
  unknownGroup,
} from './group-client.ts'

/** The common part of a group and a pool: a named set of peers that its owner changes by statements. */
interface MemberListView {
  readonly name: string
  readonly epoch: number
  readonly owner: PeerKey
  readonly members: readonly PeerKey[]
}

/** Returns the changed fields. */
export type MemberListEdit = (now: MemberListView) => { name?: string; members?: readonly PeerKey[] }

export interface MemberListPorts<Facts extends MemberListView> {
  readonly self: PeerKey
  readonly now: () => Facts
  readonly change: (change: MemberListEdit) => Promise<void>
}

/** Its properties show the newest known statement. */
export abstract class MemberList<Facts extends MemberListView> {
  /** @internal */
  protected abstract readonly ports: MemberListPorts<Facts>

  protected get now(): Facts {
    return this.ports.now()
  }

  get name(): string {
    return this.now.name
  }
  get epoch(): number {
    return this.now.epoch
  }
  get owner(): PeerKey {
    return this.now.owner
  }
  get members(): readonly PeerKey[] {
    return this.now.members
  }
  get isOwn(): boolean {
    return this.owner === this.ports.self
  }

  /**
   * Adds members. They get messages that are sent from then on; earlier ones are not sealed for them.
   * @throws SealpostError `not_owner`, `group_malformed` or `pool_malformed`, `unknown_group` if it was deleted
   * @example await group.add(ben)
   */
  add(...peers: PeerKey[]): Promise<void> {
    return this.ports.change(({ members }) => ({ members: [...members, ...peers] }))
  }

  /**
   * Removes members. They can't open messages sent from then on. A pool gives them no further messages, and messages
   * they hold go to others.
   * @throws whatever `add` throws
   * @example await group.remove(ben)
   */
  remove(...peers: PeerKey[]): Promise<void> {
    return this.ports.change(({ members }) => ({ members: members.filter((member) => !peers.includes(member)) }))
  }

  /**
   * Changes its name.
   * @throws whatever `add` throws
   * @example await group.rename('crew')
   */
  rename(name: string): Promise<void> {
    return this.ports.change(() => ({ name }))
  }
}

/** Like `SendOptions`, without a delay and without `ifOnline`. */
export type GroupSendOptions = Omit<SendOptions, 'notBefore' | 'ifOnline'> & {
  /** The open state of this group, whose history records the message in the commit that stores it for the members. */
  readonly recordIn?: MessageRecorder
}

/** A message on its way to each member. Ignoring its promises never causes an unhandled rejection. */
export interface PendingGroupSend {
  /** The epoch of the statement it was sealed by. */
  readonly epoch: number
  /** Each resolves when the broker has stored the envelope for this member, and rejects as `send` does. */
  readonly members: ReadonlyMap<PeerKey, Promise<Receipt>>
  /**
   * One outcome per member, once all outcomes are known. If the group changed in the meantime, new members are
   * included, and removed ones are refused as `stale_roster`.
   */
  readonly stored: Promise<readonly MemberOutcome[]>
}

export interface GroupsPorts {
  readonly self: PeerKey
  /** Advances the engine's clock and passes its group client. */
  readonly tell: <T>(happened: (client: GroupClient) => T) => T
  readonly ask: RequestBroker
}

export class Groups {
  readonly #ports: GroupsPorts

  /** Use `peer.groups` instead. @internal */
  constructor(ports: GroupsPorts) {
    this.#ports = ports
  }

  /**
   * Creates a group; this peer owns it and is a member.
   * @throws SealpostError `group_malformed`, `too_many_groups`, `too_many_own_groups`
   * @example const group = await peer.groups.create('crew', [ben])
   */
  async create(name: string, members: readonly PeerKey[]): Promise<Group> {
    const draft = checked({ name: chosenName(name), members: [this.#ports.self, ...members] })
    const group = this.#ports.tell(({ crypto }) => crypto.create(draft))
    await this.#set(group)
    return this.#groupOf(group.groupId)
  }

  /**
   * Lists the groups that this peer belongs to or owns, as read from the broker.
   * @example const groups = await peer.groups.list()
   */
  async list(): Promise<Group[]> {
    await this.#refresh()
    const { self } = this.#ports
    const all = this.#ports.tell((client) => client.all.filter((group) => !isGroupEnded(group)))
    const own = all.filter((group) => isGroupMember(group, self) || group.owner === self)
    return own.map(({ groupId }) => this.#groupOf(groupId))
  }

  /**
   * Returns a group that this peer belongs to or owns.
   * @throws SealpostError `unknown_group`
   * @example const group = await peer.groups.find(groupId)
   */
  async find(groupId: GroupId): Promise<Group> {
    if (!this.#known(groupId)) await this.#refresh()
    const group = this.#known(groupId)
    if (!group || isGroupEnded(group)) throw unknownGroup()
    return this.#groupOf(groupId)
  }

  #groupOf(groupId: GroupId): Group {
    return new Group({
      self: this.#ports.self,
      now: () => this.#known(groupId)!,
      change: (change) => this.#change(groupId, change),
      end: () => this.#end(groupId),
      send: (body, options) => this.#send(groupId, body, options),
    })
  }

  /** Retries once if the group was changed by another process in the meantime. */
  async #change(groupId: GroupId, change: MemberListEdit): Promise<void> {
    for (const isLast of [false, true]) {
      const group = this.#own(groupId)
      if (isGroupEnded(group)) throw unknownGroup()
      const { name, members = group.members } = change(group)
      const draft = checked({ name: name === undefined ? group.name : chosenName(name), members })
      const next = this.#ports.tell(({ crypto }) => crypto.change(group, draft))
      if (await this.#set(next, isLast)) return
      await this.#refresh()
    }
  }

  /** Ends the group. After a rename, two end statements differ, but either one suffices. */
  async #end(groupId: GroupId): Promise<void> {
    const group = this.#own(groupId)
    if (isGroupEnded(group)) return
    const end = this.#ports.tell(({ crypto }) => crypto.end(group))
    if (await this.#set(end, false)) return
    await this.#refresh()
    if (!isGroupEnded(this.#own(groupId))) throw refusedAs('stale')
  }

  #own(groupId: GroupId): GroupStatement {
    const group = this.#known(groupId)!
    if (group.owner !== this.#ports.self) throw notOwner()
    return group
  }

  /** Returns whether the broker accepted it; false if it is stale and not the last try. */
  async #set(group: GroupStatement, isLast = true): Promise<boolean> {
    const { outcome } = await this.#ports.ask({ type: 'setGroup', statement: group.bytes })
    if (outcome === 'done') this.#ports.tell((client) => client.add(group))
    else if (isLast || outcome !== 'stale') throw refusedAs(outcome)
    return outcome === 'done'
  }

  #send(groupId: GroupId, body: Uint8Array | string, options: GroupSendOptions): Promise<PendingGroupSend> {
    return new Promise((resolve, refused) => {
      const { to: _, ...terms } = postTermsOf(this.#ports.self, options)
      options.recordIn?.checkNote(terms.note)
      const { answers } = new Gathering(resolve)
      const send = { groupId, body: bytesOf(body), terms, recorder: options.recordIn, refused, ...answers }
      this.#ports.tell((client) => client.send(send))
    })
  }

  #refresh(): Promise<void> {
    return new Promise((done, failed) =>
      this.#ports.tell((client) => client.refresh((error) => (error ? failed(error) : done()))),
    )
  }

  #known(groupId: GroupId): GroupStatement | undefined {
    return this.#ports.tell((client) => client.find(groupId))
  }
}

interface GroupPorts extends MemberListPorts<GroupStatement> {
  readonly end: () => Promise<void>
  readonly send: (body: Uint8Array | string, options: GroupSendOptions) => Promise<PendingGroupSend>
}

/** Events `group_changed` and `group_deleted` report changes. */
export class Group extends MemberList<GroupStatement> {
  /** @internal */
  protected readonly ports: GroupPorts

  /** @internal */
  constructor(ports: GroupPorts) {
    super()
    this.ports = ports
  }

  get id(): GroupId {
    return this.now.groupId
  }

  /** Whether the owner has deleted the group. It then has no members, and nobody can send to it. */
  get isDeleted(): boolean {
    return isGroupEnded(this.now)
  }
  /**
   * Ends the group for good. Later sends to it get `unknown_group`. Messages sent before still arrive.
   * @throws SealpostError `not_owner`
   * @example await group.delete()
   */
  delete(): Promise<void> {
    return this.ports.end()
  }

  /**
   * Sends to every member except this peer. The message is sealed once, and in order with other messages to each
   * member. Resolves when the message is on its way.
   * @throws SealpostError `not_in_group`, `body_too_large`, `unknown_group` if it was deleted; with `recordIn`,
   *   `key_missing`, and `value_too_large` for an attachment whose reference exceeds a record. If the group records no
   *   messages, each outcome is `not_kept` and no member receives the message
   * @example const { stored } = await group.send('to all of you')
   */
  send(body: Uint8Array | string, options: GroupSendOptions = {}): Promise<PendingGroupSend> {
    return this.ports.send(body, options)
  }
}

/** Collects the outcomes of all members. Their promises are created on first access. */
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
      for (const { promise } of this.#promised.values()) promise.catch(() => undefined) // reported by `stored` too
      for (const outcome of this.#outcomes) this.#tell(outcome)
    }
    return new Map([...this.#promised].map(([member, { promise }]) => [member, promise]))
  }

  #tell({ peer, receipt, error }: MemberOutcome): void {
    if (receipt) this.#promised?.get(peer)?.resolve(receipt)
    else this.#promised?.get(peer)?.reject(error)
  }
}

function checked(draft: { name: string; members: readonly PeerKey[] }): { name: string; members: PeerKey[] } {
  const members = [...new Set(draft.members)]
  if (isMemberListName(draft.name) && members.length > 0 && members.length <= GROUP_MEMBERS_MAX)
    return { ...draft, members }
  throw malformed()
}

/** Checks a new name; existing groups keep theirs. */
function chosenName(text: string): string {
  const name = tidyName(text)
  if (!isChosenName(name)) throw malformed()
  return name
}

const malformed = () =>
  new SealpostError('group_malformed', `A group needs 1 to ${GROUP_MEMBERS_MAX} members and a name: ${NAME_RULE}.`)

function refusedAs(outcome: Exclude<FrameOf<'groupSet'>['outcome'], 'done'>): SealpostError {
  switch (outcome) {
    case 'not_owner':
      return notOwner()
    case 'too_many':
      return new SealpostError('too_many_groups', 'The mesh has reached its group limit.')
    case 'too_many_own':
      return new SealpostError('too_many_own_groups', 'You have reached your group limit. Delete a group.')
    case 'malformed':
      return new SealpostError('group_malformed', 'The broker does not accept this group.')
    case 'stale':
      return new SealpostError('stale_epoch', 'The group was changed by another request at the same time.', {
        isRetryable: true,
      })
  }
}

const notOwner = () => new SealpostError('not_owner', 'Only the owner of the group may change it.')
