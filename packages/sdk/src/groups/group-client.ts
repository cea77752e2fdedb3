/** Groups as the engine has them: the statements it believes, mail of groups that comes, and mail to groups that goes. */
import { type GroupStatement, isGroupEnded } from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import type { GroupId, PeerKey } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import type { PeerEvent } from '../events.ts'
import type { OutgoingMessage } from '../outbox/lane.ts'
import { keptForLater, type Orphan, type SharedBodyStore } from '../outbox/persistent-outbox.ts'
import type { GroupCrypto } from '../ports.ts'
import type { BrokerRequestOf } from '../requests/broker-requests.ts'
import { type GroupMessage, isGroupMember } from './group-message.ts'
import { GroupOpener, type GroupSend, GroupSender, type SendObserver } from './group-sender.ts'
import { GroupStatements } from './statement-cache.ts'

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
}

const newsOf = (group: GroupStatement): PeerEvent =>
  isGroupEnded(group)
    ? { type: 'group_deleted', group: group.groupId, name: group.name }
    : { type: 'group_changed', group: group.groupId, name: group.name, epoch: group.epoch }

export class GroupClient {
  readonly opening: GroupOpener
  readonly crypto: GroupCrypto
  readonly #ports: GroupClientPorts
  readonly #statements: GroupStatements
  readonly #sends: GroupSender

  constructor(ports: GroupClientPorts) {
    const { crypto, emit, self, post, unlock, bodies } = ports
    this.#ports = ports
    this.crypto = crypto
    this.#statements = new GroupStatements({
      crypto,
      emit,
      ask: (after) => this.#ask(after),
      changed: (group) => emit(newsOf(group)),
    })
    this.opening = new GroupOpener({ crypto, statements: this.#statements, unlock, current: ports.current })
    const endOf = (error: SealpostError) => (bodies ? keptForLater(error) : error)
    this.#sends = new GroupSender({
      crypto,
      self,
      statements: this.#statements,
      post,
      saveOwed: (message) => bodies?.keep(message),
      endOf,
    })
  }

  /** As far as they are known now, ended ones among them; `refresh` asks. */
  get all(): readonly GroupStatement[] {
    return this.#statements.all
  }

  find(groupId: GroupId): GroupStatement | undefined {
    return this.#statements.find(groupId)
  }

  refresh(done: (error: SealpostError | null) => void): void {
    this.#statements.refresh(done)
  }

  send(send: GroupSend): void {
    this.#sends.send(send)
  }

  /** The broker has taken it. */
  add(group: GroupStatement): void {
    this.#statements.add(group)
  }

  connected(): void {
    this.#statements.connected()
  }

  told({ statements }: FrameOf<'groupList'>): void {
    this.#statements.pushed(statements)
  }

  hasLeft({ groupId, epoch }: GroupMessage, peer: PeerKey): boolean {
    const group = this.#statements.find(groupId)
    return group !== undefined && group.epoch > epoch && !isGroupMember(group, peer)
  }

  /** Members that a former life still owed a message: it continues with them. */
  restore(): void {
    for (const message of this.#ports.bodies?.restored.values() ?? []) this.#sends.restore(message, this.#tellerOf(0))
  }

  /** A post of a former life. */
  orphan(message: GroupMessage, to: PeerKey, outboxNo: number): Orphan {
    return this.#sends.orphan(message, to, this.#tellerOf(outboxNo))
  }

  /** Nobody of this life waits for these: they are told as events. */
  #tellerOf(outboxNo: number): SendObserver {
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
        replied: ({ statements, isLast }) => this.#statements.listed(statements, isLast),
        refused: (error) => this.#statements.close(error),
      },
    )
  }
}
