/**
 * Implements users with several devices for applications. A user is a peer; each of its devices is also a peer, and the
 * user's key vouches for it.
 */
import { type DeviceStatement, isDeviceLabel } from '@sealpost/identity'
import { BODY_BYTES_MAX, type FrameOf } from '@sealpost/protocol'
import {
  type GroupId,
  isChosenName,
  type Millis,
  NAME_RULE,
  type PeerKey,
  tidyName,
  withResolvers,
} from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { MemberOutcome } from '../groups/group-client.ts'
import type { GroupSendOptions } from '../groups/groups.ts'
import { bytesOf, type SenderUser } from '../inbox/message.ts'
import {
  type GroupMessage,
  type GroupMessageTerms,
  type OutgoingMessage,
  postTermsOf,
  type Receipt,
  type SendOptions,
} from '../outbox/lane.ts'
import type { CryptoPort, PeerEvent, UserCrypto, UserKeys, UserTamper } from '../ports.ts'
import type { BrokerRequestOf, ReplyHandler, RequestBroker } from '../requests/requests.ts'

/** The engine's part for users: the users of devices, and mail to every device of a user. */
interface UserClientPorts {
  readonly crypto: Pick<CryptoPort, 'groups' | 'users'>
  readonly self: PeerKey
  readonly emit: (event: PeerEvent) => void
  readonly ask: (question: BrokerRequestOf<'devices'> & { type: 'devices' }, handler: ReplyHandler<'devices'>) => void
  readonly enqueue: (post: OutgoingMessage) => void
}

interface UserSend {
  readonly user: PeerKey
  /** The recipients: the user's own key, and its devices. */
  readonly to: readonly PeerKey[]
  readonly body: Uint8Array
  readonly terms: GroupMessageTerms
  readonly answersOf: (device: PeerKey) => Pick<OutgoingMessage, 'accepted' | 'refused'>
}

/** The body is shared like that of a group message, but the broker checks no group statement. */
const NO_GROUP = '0'.repeat(32) as GroupId

export class UserClient {
  readonly statements: UserStatements
  readonly #ports: UserClientPorts

  constructor(ports: UserClientPorts) {
    this.#ports = ports
    this.statements = new UserStatements({ crypto: ports.crypto.users, emit: ports.emit })
  }

  /** Finds the devices of a user, as the broker lists them now and the user vouches for them. */
  find(user: PeerKey, nowMs: Millis, handler: { found(devices: Device[]): void; refused(error: SealpostError): void }) {
    const answered = ({ statements }: FrameOf<'deviceList'>) => handler.found(this.#listed(statements, user, nowMs))
    const { refused } = handler
    this.#ports.ask({ type: 'devices', peers: [this.statements.current(user)] }, { replied: answered, refused })
  }

  /**
   * Seals once and posts an envelope for each device, in the ordinary lane to it. @throws SealpostError
   * `body_too_large`
   */
  send({ user, to, body, terms, answersOf }: UserSend): void {
    if (body.length > BODY_BYTES_MAX)
      throw new SealpostError('body_too_large', `A body can have at most ${BODY_BYTES_MAX} bytes.`)
    const sealed = this.#ports.crypto.groups.sealBody(body)
    const facts = { groupId: NO_GROUP, epoch: 0, members: to, isSecond: true, owed: new Set<PeerKey>() }
    const message: GroupMessage = { ...sealed, ...facts, terms }
    const note = { ...terms.note, user }
    const shared = { ...terms, note, bodyId: message.bodyId, body: message.ticket, message }
    for (const device of to) this.#ports.enqueue({ ...shared, to: device, ...answersOf(device) })
  }

  /** Returns the listed devices that the statements confirm: a device that the broker no longer lists is gone. */
  #listed(statements: readonly Uint8Array[], user: PeerKey, nowMs: Millis): Device[] {
    const listed = new Set(statements.map((bytes) => this.#ports.crypto.users.readDevice(bytes)?.device))
    return this.statements.devicesOf(user, nowMs).filter(({ key }) => listed.has(key))
  }
}

export interface UsersPorts {
  readonly self: PeerKey
  /** The address to put into invites. */
  readonly url: () => string
  readonly brokerKey: PeerKey
  readonly keys: UserKeys
  readonly tell: <T>(happened: (client: UserClient, nowMs: Millis) => T) => T
  readonly ask: RequestBroker
  readonly send: (to: PeerKey, body: Uint8Array | string, options: SendOptions) => Promise<Receipt>
}

export interface DeviceInviteOptions {
  /** The time until which the invite is valid, ms since 1970. Default: one hour from now. */
  readonly joinByMs?: Millis
  /** The time until which the voucher is valid. Default: ten years from now. */
  readonly notAfterMs?: Millis
}

/** A message on its way to each device. Ignoring its promises never causes an unhandled rejection. */
export interface PendingUserSend {
  /** Each resolves when the broker has stored the envelope for this device, and rejects as `send` does. */
  readonly devices: ReadonlyMap<PeerKey, Promise<Receipt>>
  /** One outcome per device, once all outcomes are known. */
  readonly stored: Promise<readonly MemberOutcome[]>
}

export class Users {
  readonly #ports: UsersPorts

  /** Use `peer.users` instead. @internal */
  constructor(ports: UsersPorts) {
    this.#ports = ports
  }

  /**
   * Returns one line that lets one device join as a device of this user, by `joinAsDevice`. Sends no request. Anyone
   * who reads it before it is used can become that device: `devices` lists who did, and `removeDevice` ends it.
   * @throws SealpostError `label_malformed`
   * @example const invite = peer.users.inviteDevice('laptop')
   */
  inviteDevice(text: string, options: DeviceInviteOptions = {}): string {
    const label = tidyName(text)
    if (!isChosenName(label) || !isDeviceLabel(label))
      throw new SealpostError(
        'label_malformed',
        `A label can have at most 32 characters and must follow the rule for names: ${NAME_RULE}.`,
      )
    const { url, brokerKey, keys } = this.#ports
    return keys.inviteDevice({ url: url(), brokerKey, label, ...options })
  }

  /**
   * Lists the devices that the user vouches for, as read from the broker, which can hide a device but not add one.
   * @example const devices = await peer.users.devices(ben)
   */
  devices(user: PeerKey = this.#ports.self): Promise<readonly Device[]> {
    return new Promise((found, refused) =>
      this.#ports.tell((client, nowMs) => client.find(user, nowMs, { found, refused })),
    )
  }

  /**
   * Ends a device of this user for good. Its session ends at once, its key can't come back, and its waiting mail is
   * lost.
   * @throws SealpostError `unknown_device`
   * @example await peer.users.removeDevice(device)
   */
  async removeDevice(device: PeerKey): Promise<void> {
    const { outcome } = await this.#ports.ask({ type: 'removeDevice', removal: this.#ports.keys.removeDevice(device) })
    if (outcome !== 'done') throw new SealpostError('unknown_device', 'This user has no such device.')
  }

  /**
   * Sends to every device of a user, including its own key, but not to this peer: sealed once. Resolves when the
   * message is on its way; receipts report which devices settle it.
   * @throws SealpostError `body_too_large`
   * @example const { stored } = await peer.users.send(ben, 'to every device')
   */
  async send(user: PeerKey, body: Uint8Array | string, options: GroupSendOptions = {}): Promise<PendingUserSend> {
    const to = await this.#everyDeviceOf(user)
    const { to: _, ...terms } = postTermsOf(user, options)
    const devices = new Map<PeerKey, Promise<Receipt>>()
    const gathered: Promise<MemberOutcome>[] = []
    const answersOf = (device: PeerKey) => {
      const { promise, resolve, reject } = withResolvers<Receipt>()
      devices.set(device, promise)
      gathered.push(outcomeOf(device, promise))
      return { accepted: resolve, refused: reject }
    }
    this.#ports.tell((client) => client.send({ user, to, body: bytesOf(body), terms, answersOf }))
    return { devices, stored: Promise.all(gathered) }
  }

  /**
   * Sends to the first device that is online; if none is, to the user's own key, where it waits. Only that device gets
   * it.
   * @throws SealpostError `no_responder` with `ifOnline`, and whatever `peer.send` throws
   * @example const device = await peer.users.sendToAvailable(ben, 'to one device')
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
      // The device may have been removed a moment ago, so the next one is tried.
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

/** A device as its user vouches for it. */
export interface Device {
  readonly key: PeerKey
  readonly label: string
  /** The time until which the voucher is valid, ms since 1970. */
  readonly notAfterMs: Millis
}

export interface UserStatementsPorts {
  readonly crypto: UserCrypto
  readonly emit: (event: PeerEvent) => void
}

/** Far more rotations than any user makes. */
const CHAIN_MAX = 64

/**
 * Maps devices to their users and identity keys to their successors, by signed statements only. A broker can withhold
 * statements, but it can neither forge one nor bring a removed device back. Pure and synchronous.
 */
export class UserStatements {
  readonly #ports: UserStatementsPorts
  readonly #devices = new Map<PeerKey, DeviceStatement>()
  /** The one device that each invite admitted. */
  readonly #invited = new Map<PeerKey, PeerKey>()
  /** The users that removed each device. Anybody can sign that a stranger is not their device. */
  readonly #removed = new Map<PeerKey, Set<PeerKey>>()
  readonly #successors = new Map<PeerKey, PeerKey>()

  constructor(ports: UserStatementsPorts) {
    this.#ports = ports
  }

  /** Returns the current identity key for a former one. */
  current(key: PeerKey): PeerKey {
    let now = key
    for (let step = 0; step < CHAIN_MAX; step++) {
      const next = this.#successors.get(now)
      if (!next) return now
      now = next
    }
    return now
  }

  /** Returns the user behind a sender. */
  senderUser(peer: PeerKey, nowMs: Millis): SenderUser {
    const device = this.#devices.get(peer)
    if (!device || nowMs > device.notAfterMs) return { user: this.current(peer), deviceLabel: null }
    return { user: this.current(device.user), deviceLabel: device.label }
  }

  /** Returns the devices that are known now. */
  devicesOf(user: PeerKey, nowMs: Millis): Device[] {
    const key = this.current(user)
    const own = [...this.#devices.values()].filter(
      (device) => this.current(device.user) === key && nowMs <= device.notAfterMs,
    )
    return own.map(({ device, label, notAfterMs }) => ({ key: device, label, notAfterMs }))
  }

  devicesPushed({ statements, removals }: FrameOf<'deviceList'>): void {
    for (const bytes of removals) this.#takeRemoval(bytes)
    for (const bytes of statements) this.#takeStatement(bytes)
  }

  rotationsPushed({ statements }: FrameOf<'successions'>): void {
    for (const bytes of statements) this.#takeSuccession(bytes)
  }

  #takeStatement(bytes: Uint8Array): void {
    const device = this.#ports.crypto.readDevice(bytes)
    if (!device) return this.#tampered(null, 'statement_forged')
    const { device: key, inviteKey, user } = device
    if (this.#isRemoved(key, user)) return this.#tampered(key, 'device_removed')
    const first = this.#invited.get(inviteKey)
    if (first !== undefined && first !== key) return this.#tampered(key, 'invite_used_twice')
    const known = this.#devices.get(key)
    if (known && known.user !== user) return this.#tampered(key, 'device_of_another')
    this.#invited.set(inviteKey, key)
    this.#devices.set(key, device)
    if (!known) this.#changed(user, device, true)
  }

  /** Takes a removal, only from the user that vouched for the device, under any of the user's keys. */
  #takeRemoval(bytes: Uint8Array): void {
    const removal = this.#ports.crypto.readRemoval(bytes)
    if (!removal) return this.#tampered(null, 'statement_forged')
    const device = this.#devices.get(removal.device)
    if (device && this.current(device.user) !== this.current(removal.user)) return
    this.#removed.set(removal.device, (this.#removed.get(removal.device) ?? new Set()).add(removal.user))
    if (!device) return
    this.#devices.delete(removal.device)
    this.#changed(removal.user, device, false)
  }

  /** Takes a succession. The first signed successor counts, because a key can have only one. */
  #takeSuccession(bytes: Uint8Array): void {
    const succession = this.#ports.crypto.readIdentityRotation(bytes)
    if (!succession) return this.#tampered(null, 'statement_forged')
    const { former, successor } = succession
    const known = this.#successors.get(former)
    if (known === successor) return
    if (known || this.current(successor) === former) return this.#tampered(former, 'succession_forked')
    this.#successors.set(former, successor)
    this.#ports.emit({ type: 'identity_changed', former, successor })
  }

  #isRemoved(device: PeerKey, user: PeerKey): boolean {
    return [...(this.#removed.get(device) ?? [])].some((by) => this.current(by) === this.current(user))
  }

  #changed(user: PeerKey, { device, label }: DeviceStatement, isVouched: boolean): void {
    this.#ports.emit({ type: 'device_changed', user: this.current(user), device, label, isVouched })
  }

  #tampered(peer: PeerKey | null, reason: UserTamper): void {
    this.#ports.emit({ type: 'user_tamper', peer, reason })
  }
}
