/** Persons as the engine has them: whose devices peers are, and mail that goes to every device of one. */
import { BODY_BYTES_MAX, type FrameOf } from '@sealpost/protocol'
import type { GroupId, Millis, PeerKey } from '@sealpost/std'
import { SealpostError } from './errors.ts'
import type { PeerEvent } from './events.ts'
import type { GroupMessage, GroupMessageTerms } from './group-message.ts'
import type { Post } from './lane.ts'
import { type Device, PersonBook } from './person-book.ts'
import type { CryptoPort } from './ports.ts'
import type { Asker, QuestionOf } from './questions.ts'

export interface PersonDeskPorts {
  readonly crypto: Pick<CryptoPort, 'groups' | 'persons'>
  readonly self: PeerKey
  readonly announce: (event: PeerEvent) => void
  readonly ask: (question: QuestionOf<'devices'> & { type: 'devices' }, asker: Asker<'devices'>) => void
  readonly post: (post: Post) => void
}

export interface PersonSend {
  readonly person: PeerKey
  /** To whom it goes: the person's own key, and its devices. */
  readonly to: readonly PeerKey[]
  readonly body: Uint8Array
  readonly terms: GroupMessageTerms
  readonly answersOf: (device: PeerKey) => Pick<Post, 'accepted' | 'refused'>
}

/** The body is shared as that of a group is; but the broker is asked for no roster. */
const NO_GROUP = '0'.repeat(32) as GroupId

export class PersonDesk {
  readonly book: PersonBook
  readonly #ports: PersonDeskPorts

  constructor(ports: PersonDeskPorts) {
    this.#ports = ports
    this.book = new PersonBook({ crypto: ports.crypto.persons, announce: ports.announce })
  }

  /** The devices of a person, as the broker tells them now and the person vouches for them. */
  find(person: PeerKey, nowMs: Millis, asker: { found(devices: Device[]): void; refused(error: SealpostError): void }) {
    const answered = ({ statements }: FrameOf<'deviceList'>) => asker.found(this.#listed(statements, person, nowMs))
    const { refused } = asker
    this.#ports.ask({ type: 'devices', peers: [this.book.current(person)] }, { answered, refused })
  }

  /** Sealed once; an envelope for each device, in the ordinary lane to it. @throws SealpostError `body_too_large` */
  send({ person, to, body, terms, answersOf }: PersonSend): void {
    if (body.length > BODY_BYTES_MAX)
      throw new SealpostError('body_too_large', `A body has at most ${BODY_BYTES_MAX} bytes.`)
    const sealed = this.#ports.crypto.groups.sealBody(body)
    const facts = { groupId: NO_GROUP, epoch: 0, members: to, isSecond: true, owed: new Set<PeerKey>() }
    const message: GroupMessage = { ...sealed, ...facts, terms }
    const note = { ...terms.note, person }
    const shared = { ...terms, note, bodyId: message.bodyId, body: message.ticket, message }
    for (const device of to) this.#ports.post({ ...shared, to: device, ...answersOf(device) })
  }

  /** What the book believes, and the broker tells now: one that it tells no more is gone. */
  #listed(statements: readonly Uint8Array[], person: PeerKey, nowMs: Millis): Device[] {
    const told = new Set(statements.map((bytes) => this.#ports.crypto.persons.readDevice(bytes)?.device))
    return this.book.devicesOf(person, nowMs).filter(({ key }) => told.has(key))
  }
}
