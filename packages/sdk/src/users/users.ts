/**
 * People with several devices, as an application has them. A user is a peer; each of its devices is a peer, too, for
 * which the user's key vouches.
 */
import { isDeviceLabel } from '@sealpost/identity'
import { BODY_BYTES_MAX, type FrameOf } from '@sealpost/protocol'
import { type GroupId, isChosenName, type Millis, NAME_RULE, type PeerKey, tidyName } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { PeerEvent } from '../events.ts'
import type { GroupMessage, GroupMessageTerms } from '../groups/group-message.ts'
import type { MemberOutcome } from '../groups/group-sender.ts'
import type { GroupSendOptions } from '../groups/groups.ts'
import { bytesOf } from '../inbox/message.ts'
import type { OutgoingMessage, Receipt } from '../outbox/lane.ts'
import { postTermsOf, type SendOptions } from '../outbox/send-frames.ts'
import type { CryptoPort, UserKeys } from '../ports.ts'
import type { BrokerRequestOf, ReplyHandler, RequestBroker } from '../requests/broker-requests.ts'
import { type Device, UserStatements } from './user-statements.ts'

/** Users as the engine has them: whose devices peers are, and mail that goes to every device of one. */
interface UserClientPorts {
  readonly crypto: Pick<CryptoPort, 'groups' | 'users'>
  readonly self: PeerKey
  readonly emit: (event: PeerEvent) => void
  readonly ask: (question: BrokerRequestOf<'devices'> & { type: 'devices' }, handler: ReplyHandler<'devices'>) => void
  readonly enqueue: (post: OutgoingMessage) => void
}

interface UserSend {
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

export interface UsersPorts {
  readonly self: PeerKey
  /** Where others find the mesh. */
  readonly url: () => string
  readonly brokerKey: PeerKey
  readonly keys: UserKeys
  readonly tell: <T>(happened: (client: UserClient, nowMs: Millis) => T) => T
  readonly ask: RequestBroker
  readonly send: (to: PeerKey, body: Uint8Array | string, options: SendOptions) => Promise<Receipt>
}

export interface DeviceInviteOptions {
  /** The line is good until then, ms since 1970. Default: one hour from now. */
  readonly joinByMs?: Millis
  /** The device is vouched for until then. Default: ten years from now. */
  readonly notAfterMs?: Millis
}

/** A message on its way to each device. One who does not look at its promises need not fear them. */
export interface PendingUserSend {
  /** Resolve when the broker has stored the envelope for this device; they reject as `send` does. */
  readonly devices: ReadonlyMap<PeerKey, Promise<Receipt>>
  /** One outcome for each device, once all are known. */
  readonly stored: Promise<readonly MemberOutcome[]>
}

export class Users {
  readonly #ports: UsersPorts

  /** Use `peer.users`. */
  constructor(ports: UsersPorts) {
    this.#ports = ports
  }

  /**
   * One line that lets one device join as a device of this user, by `joinAsDevice`. Nobody is asked for it. Anyone who
   * reads it before it is used can become that device: `devices` shows who did, and `removeDevice` ends it.
   * @throws SealpostError `label_malformed`
   */
  inviteDevice(text: string, options: DeviceInviteOptions = {}): string {
    const label = tidyName(text)
    if (!isChosenName(label) || !isDeviceLabel(label))
      throw new SealpostError('label_malformed', `A label is a name of at most 32 characters: ${NAME_RULE}.`)
    const { url, brokerKey, keys } = this.#ports
    return keys.inviteDevice({ url: url(), brokerKey, label, ...options })
  }

  /** Those this user vouches for, as the broker tells them now: it can hide one, and add none. */
  devices(user: PeerKey = this.#ports.self): Promise<readonly Device[]> {
    return new Promise((found, refused) =>
      this.#ports.tell((client, nowMs) => client.find(user, nowMs, { found, refused })),
    )
  }

  /**
   * Ends a device of this user for good: its session ends at once, its key can't come back, and what waits for it is
   * lost. @throws SealpostError `unknown_device`
   */
  async removeDevice(device: PeerKey): Promise<void> {
    const { outcome } = await this.#ports.ask({ type: 'removeDevice', removal: this.#ports.keys.removeDevice(device) })
    if (outcome !== 'done') throw new SealpostError('unknown_device', 'This is no device of this user.')
  }

  /**
   * To every device of a user, its own key among them, but not to this peer: sealed once. Resolves when it is on its
   * way; who of them settles it, receipts tell.
   * @throws SealpostError `body_too_large`
   */
  async send(user: PeerKey, body: Uint8Array | string, options: GroupSendOptions = {}): Promise<PendingUserSend> {
    const to = await this.#everyDeviceOf(user)
    const { to: _, ...terms } = postTermsOf(user, options)
    const devices = new Map<PeerKey, Promise<Receipt>>()
    const gathered: Promise<MemberOutcome>[] = []
    const answersOf = (device: PeerKey) => {
      const { promise, resolve, reject } = Promise.withResolvers<Receipt>()
      devices.set(device, promise)
      gathered.push(outcomeOf(device, promise))
      return { accepted: resolve, refused: reject }
    }
    this.#ports.tell((client) => client.send({ user, to, body: bytesOf(body), terms, answersOf }))
    return { devices, stored: Promise.all(gathered) }
  }

  /**
   * To one device that is online now, the first of them that the broker finds so; if none is, to the user's own key,
   * where it waits. It is that device's from then on.
   * @throws SealpostError as `send` of a peer; `no_responder` with `ifOnline`
   */
  async sendToAvailable(user: PeerKey, body: Uint8Array | string, options: SendOptions = {}): Promise<PeerKey> {
    for (const device of await this.#everyDeviceOf(user))
      if (await this.#isTakenBy(device, body, options)) return device
    if (options.ifOnline || user === this.#ports.self)
      throw new SealpostError('no_responder', 'No device of this user is online.')
    await this.#ports.send(user, body, options)
    return user
  }

  async #isTakenBy(device: PeerKey, body: Uint8Array | string, options: SendOptions): Promise<boolean> {
    try {
      await this.#ports.send(device, body, { ...options, ifOnline: true })
      return true
    } catch (error) {
      // Also one that was removed a moment ago: the next one is asked.
      if (error instanceof SealpostError && GONE.has(error.code)) return false
      throw error
    }
  }

  async #everyDeviceOf(user: PeerKey): Promise<PeerKey[]> {
    const devices = await this.devices(user)
    return [user, ...devices.map(({ key }) => key)].filter((key) => key !== this.#ports.self)
  }
}

const GONE: ReadonlySet<string> = new Set(['no_responder', 'unknown_recipient'])

function outcomeOf(peer: PeerKey, receipt: Promise<Receipt>): Promise<MemberOutcome> {
  return receipt.then(
    (stored) => ({ peer, receipt: stored, error: null }),
    (error: SealpostError) => ({ peer, receipt: null, error }),
  )
}
