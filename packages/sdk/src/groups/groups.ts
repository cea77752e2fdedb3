/** Groups as an application has them. Membership is what the owner signed; who is told a message is what its sender chose. */
import { GROUP_MEMBERS_MAX, type GroupStatement, isGroupEnded, isMemberListName } from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import { type GroupId, isChosenName, NAME_RULE, type PeerKey, tidyName } from '@sealpost/std'
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

/** What a group and a pool are alike for an application: a named set of peers, which its owner changes by statements. */
interface MemberListView {
  readonly name: string
  readonly epoch: number
  readonly owner: PeerKey
  readonly members: readonly PeerKey[]
}

/** What of it becomes another. */
export type MemberListEdit = (now: MemberListView) => { name?: string; members?: readonly PeerKey[] }

export interface MemberListPorts<Facts extends MemberListView> {
  readonly self: PeerKey
  readonly now: () => Facts
  readonly change: (change: MemberListEdit) => Promise<void>
}

/** What it tells is what is known now. */
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
   * They get what is sent from then on; what was sent before is not sealed for them.
   * @throws SealpostError `not_owner`, `group_malformed` or `pool_malformed`, `unknown_group` when it was deleted
   */
  add(...peers: PeerKey[]): Promise<void> {
    return this.ports.change(({ members }) => ({ members: [...members, ...peers] }))
  }

  /**
   * What is sent from then on they can't open. Of a pool they are given nothing more, and what they hold goes to others.
   * @throws SealpostError as `add` does
   */
  remove(...peers: PeerKey[]): Promise<void> {
    return this.ports.change(({ members }) => ({ members: members.filter((member) => !peers.includes(member)) }))
  }

  /** @throws SealpostError as `add` does */
  rename(name: string): Promise<void> {
    return this.ports.change(() => ({ name }))
  }
}

/** As of a message to one; neither delayed nor for those online only. */
export type GroupSendOptions = Omit<SendOptions, 'notBefore' | 'ifOnline'> & {
  /** The open state of this group: its history records the message, in the commit that stores it for the members. */
  readonly recordIn?: MessageRecorder
}

/** A message on its way to each member. One who does not look at its promises need not fear them. */
export interface PendingGroupSend {
  /** Of the roster by which it was sealed. */
  readonly epoch: number
  /** Resolve when the broker has stored the envelope for this member; they reject as `send` does. */
  readonly members: ReadonlyMap<PeerKey, Promise<Receipt>>
  /**
   * One outcome for each member, once all are known. When the group changed meanwhile, those who came since are among
   * them, and those who left are refused as `stale_roster`.
   */
  readonly stored: Promise<readonly MemberOutcome[]>
}

export interface GroupsPorts {
  readonly self: PeerKey
  /** Tells the engine the time, and gives its groups. */
  readonly tell: <T>(happened: (client: GroupClient) => T) => T
  readonly ask: RequestBroker
}

export class Groups {
  readonly #ports: GroupsPorts

  /** Use `peer.groups`. */
  constructor(ports: GroupsPorts) {
    this.#ports = ports
  }

  /**
   * A new group of one's own, this peer among its members.
   * @throws SealpostError `group_malformed`, `too_many_groups`, `too_many_own_groups`
   */
  async create(name: string, members: readonly PeerKey[]): Promise<Group> {
    const draft = checked({ name: chosenName(name), members: [this.#ports.self, ...members] })
    const group = this.#ports.tell(({ crypto }) => crypto.create(draft))
    await this.#set(group)
    return this.#groupOf(group.groupId)
  }

  /** Those this peer belongs to or owns, as the broker tells them now. */
  async list(): Promise<Group[]> {
    await this.#refresh()
    const { self } = this.#ports
    const all = this.#ports.tell((client) => client.all.filter((group) => !isGroupEnded(group)))
    const own = all.filter((group) => isGroupMember(group, self) || group.owner === self)
    return own.map(({ groupId }) => this.#groupOf(groupId))
  }

  /** @throws SealpostError `unknown_group` */
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

  /** Of a change made elsewhere meanwhile it makes one more, once. */
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

  /** Two ends of a group differ when it was renamed between them: one is enough. */
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

  /** Returns whether it stands; false when it came too late, unless that is to be thrown. */
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

/** Events `group_changed` and `group_deleted` say when it is another than it was. */
export class Group extends MemberList<GroupStatement> {
  protected readonly ports: GroupPorts

  /** @internal */
  constructor(ports: GroupPorts) {
    super()
    this.ports = ports
  }

  get id(): GroupId {
    return this.now.groupId
  }

  /** Its owner ended it: it has no members, and nobody can write to it. */
  get isDeleted(): boolean {
    return isGroupEnded(this.now)
  }
  /**
   * Ends it for good: later sends to it get `unknown_group`. What was sent before still arrives.
   * @throws SealpostError `not_owner`
   */
  delete(): Promise<void> {
    return this.ports.end()
  }

  /**
   * To every member but this peer: sealed once, and in the order of what is sent to each of them otherwise. Resolves when
   * it is on its way.
   * @throws SealpostError `not_in_group`, `body_too_large`, `unknown_group` when it was deleted; with `recordIn`, `key_missing`, and
   *   `value_too_large` for an attachment whose reference is longer than they are.
   *   If the group records no messages, each outcome is `not_kept` and no member receives the message
   */
  send(body: Uint8Array | string, options: GroupSendOptions = {}): Promise<PendingGroupSend> {
    return this.ports.send(body, options)
  }
}

/** Puts the answers of all members together. A promise for each of them is made when someone looks at them. */
class Gathering {
  readonly #resolve: (posted: PendingGroupSend) => void
  readonly #expected = new Set<PeerKey>()
  readonly #outcomes: MemberOutcome[] = []
  #promised: Map<PeerKey, PromiseWithResolvers<Receipt>> | null = null
  readonly #stored = Promise.withResolvers<readonly MemberOutcome[]>()

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
      this.#promised = new Map(members.map((member) => [member, Promise.withResolvers<Receipt>()]))
      for (const { promise } of this.#promised.values()) promise.catch(() => undefined) // told by `stored`, too
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

/** A name that is chosen now; older groups keep theirs. */
function chosenName(text: string): string {
  const name = tidyName(text)
  if (!isChosenName(name)) throw malformed()
  return name
}

const malformed = () =>
  new SealpostError('group_malformed', `A group has 1 to ${GROUP_MEMBERS_MAX} members, and a name: ${NAME_RULE}.`)

function refusedAs(outcome: Exclude<FrameOf<'groupSet'>['outcome'], 'done'>): SealpostError {
  switch (outcome) {
    case 'not_owner':
      return notOwner()
    case 'too_many':
      return new SealpostError('too_many_groups', 'The mesh has as many groups as it may have.')
    case 'too_many_own':
      return new SealpostError('too_many_own_groups', 'You have as many groups as one peer may have: delete one.')
    case 'malformed':
      return new SealpostError('group_malformed', 'The broker does not take this group.')
    case 'stale':
      return new SealpostError('stale_epoch', 'The group was changed elsewhere at the same time.', {
        isRetryable: true,
      })
  }
}

const notOwner = () => new SealpostError('not_owner', 'Only the owner of the group may change it.')
