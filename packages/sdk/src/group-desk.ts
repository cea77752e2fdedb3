/** Groups as the engine has them: the statements it believes, mail of groups that comes, and mail to groups that goes. */
import { type GroupStatement, isGroupOver } from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import type { GroupId, PeerKey } from '@sealpost/std'
import type { SealpostError } from './errors.ts'
import type { PeerEvent } from './events.ts'
import { GroupBook } from './group-book.ts'
import type { GroupCrypto } from './group-crypto.ts'
import { type GroupMessage, isIn } from './group-message.ts'
import { GroupOpening } from './group-opening.ts'
import { type GroupSend, GroupSends, type SendTeller } from './group-sends.ts'
import type { KeptBodies } from './kept-bodies.ts'
import { keptForLater, type Orphan } from './kept-posts.ts'
import type { Post } from './lane.ts'
import type { QuestionOf } from './questions.ts'

export interface GroupDeskPorts {
  readonly crypto: GroupCrypto
  readonly self: PeerKey
  readonly announce: (event: PeerEvent) => void
  readonly ask: (
    question: QuestionOf<'groups'> & { type: 'groups' },
    asker: { answered(answer: FrameOf<'groupList'>): void; refused(error: SealpostError): void },
  ) => void
  readonly post: (post: Post) => void
  readonly unlock: (sender: PeerKey) => void
  readonly bodies: KeptBodies | null
  readonly current: (peer: PeerKey) => PeerKey
}

const newsOf = (group: GroupStatement): PeerEvent =>
  isGroupOver(group)
    ? { type: 'group_deleted', group: group.groupId, name: group.name }
    : { type: 'group_changed', group: group.groupId, name: group.name, epoch: group.epoch }

export class GroupDesk {
  readonly opening: GroupOpening
  readonly crypto: GroupCrypto
  readonly #ports: GroupDeskPorts
  readonly #book: GroupBook
  readonly #sends: GroupSends

  constructor(ports: GroupDeskPorts) {
    const { crypto, announce, self, post, unlock, bodies } = ports
    this.#ports = ports
    this.crypto = crypto
    this.#book = new GroupBook({
      crypto,
      announce,
      ask: (after) => this.#ask(after),
      changed: (group) => announce(newsOf(group)),
    })
    this.opening = new GroupOpening({ crypto, book: this.#book, unlock, current: ports.current })
    const endOf = (error: SealpostError) => (bodies ? keptForLater(error) : error)
    this.#sends = new GroupSends({
      crypto,
      self,
      book: this.#book,
      post,
      keep: (message) => bodies?.keep(message),
      endOf,
    })
  }

  /** As far as they are known now, ended ones among them; `refresh` asks. */
  get all(): readonly GroupStatement[] {
    return this.#book.all
  }

  find(groupId: GroupId): GroupStatement | undefined {
    return this.#book.find(groupId)
  }

  refresh(done: (error: SealpostError | null) => void): void {
    this.#book.refresh(done)
  }

  send(send: GroupSend): void {
    this.#sends.send(send)
  }

  /** The broker has taken it. */
  keep(group: GroupStatement): void {
    this.#book.keep(group)
  }

  connected(): void {
    this.#book.connected()
  }

  told({ statements }: FrameOf<'groupList'>): void {
    this.#book.told(statements)
  }

  hasLeft({ groupId, epoch }: GroupMessage, peer: PeerKey): boolean {
    const group = this.#book.find(groupId)
    return group !== undefined && group.epoch > epoch && !isIn(group, peer)
  }

  /** Members that a former life still owed a message: it goes on with them. */
  restore(): void {
    for (const message of this.#ports.bodies?.restored.values() ?? []) this.#sends.restore(message, this.#tellerOf(0))
  }

  /** A post of a former life. */
  orphan(message: GroupMessage, to: PeerKey, outboxNo: number): Orphan {
    return this.#sends.orphan(message, to, this.#tellerOf(outboxNo))
  }

  /** Nobody of this life waits for these: they are told as events. */
  #tellerOf(outboxNo: number): SendTeller {
    return {
      expect: () => undefined,
      ended: ({ peer: to, receipt, error }) => {
        if (receipt) this.#ports.announce({ type: 'sent', to, outboxNo, receipt })
        else if (error.code !== 'kept_for_later') this.#ports.announce({ type: 'send_failed', to, outboxNo, error })
      },
    }
  }

  #ask(after: GroupId): void {
    this.#ports.ask(
      { type: 'groups', after },
      {
        answered: ({ statements, isLast }) => this.#book.listed(statements, isLast),
        refused: (error) => this.#book.close(error),
      },
    )
  }
}
