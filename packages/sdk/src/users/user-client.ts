/** Users as the engine has them: whose devices peers are, and mail that goes to every device of one. */
import { BODY_BYTES_MAX, type FrameOf } from '@sealpost/protocol'
import type { GroupId, Millis, PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { PeerEvent } from '../events.ts'
import type { GroupMessage, GroupMessageTerms } from '../groups/group-message.ts'
import type { OutgoingMessage } from '../outbox/lane.ts'
import type { CryptoPort } from '../ports.ts'
import type { BrokerRequestOf, ReplyHandler } from '../requests/broker-requests.ts'
import { type Device, UserStatements } from './user-statements.ts'

export interface UserClientPorts {
  readonly crypto: Pick<CryptoPort, 'groups' | 'users'>
  readonly self: PeerKey
  readonly emit: (event: PeerEvent) => void
  readonly ask: (question: BrokerRequestOf<'devices'> & { type: 'devices' }, handler: ReplyHandler<'devices'>) => void
  readonly enqueue: (post: OutgoingMessage) => void
}

export interface UserSend {
  readonly user: PeerKey
  /** To whom it goes: the user's own key, and its devices. */
  readonly to: readonly PeerKey[]
  readonly body: Uint8Array
  readonly terms: GroupMessageTerms
  readonly answersOf: (device: PeerKey) => Pick<OutgoingMessage, 'accepted' | 'refused'>
}

/** The body is shared as that of a group is; but the broker is asked for no roster. */
const NO_GROUP = '0'.repeat(32) as GroupId

export class UserClient {
  readonly statements: UserStatements
  readonly #ports: UserClientPorts

  constructor(ports: UserClientPorts) {
    this.#ports = ports
    this.statements = new UserStatements({ crypto: ports.crypto.users, emit: ports.emit })
  }

  /** The devices of a user, as the broker tells them now and the user vouches for them. */
  find(user: PeerKey, nowMs: Millis, handler: { found(devices: Device[]): void; refused(error: SealpostError): void }) {
    const answered = ({ statements }: FrameOf<'deviceList'>) => handler.found(this.#listed(statements, user, nowMs))
    const { refused } = handler
    this.#ports.ask({ type: 'devices', peers: [this.statements.current(user)] }, { replied: answered, refused })
  }

  /** Sealed once; an envelope for each device, in the ordinary lane to it. @throws SealpostError `body_too_large` */
  send({ user, to, body, terms, answersOf }: UserSend): void {
    if (body.length > BODY_BYTES_MAX)
      throw new SealpostError('body_too_large', `A body has at most ${BODY_BYTES_MAX} bytes.`)
    const sealed = this.#ports.crypto.groups.sealBody(body)
    const facts = { groupId: NO_GROUP, epoch: 0, members: to, isSecond: true, owed: new Set<PeerKey>() }
    const message: GroupMessage = { ...sealed, ...facts, terms }
    const note = { ...terms.note, user }
    const shared = { ...terms, note, bodyId: message.bodyId, body: message.ticket, message }
    for (const device of to) this.#ports.enqueue({ ...shared, to: device, ...answersOf(device) })
  }

  /** What the statements believes, and the broker tells now: one that it tells no more is gone. */
  #listed(statements: readonly Uint8Array[], user: PeerKey, nowMs: Millis): Device[] {
    const told = new Set(statements.map((bytes) => this.#ports.crypto.users.readDevice(bytes)?.device))
    return this.statements.devicesOf(user, nowMs).filter(({ key }) => told.has(key))
  }
}
