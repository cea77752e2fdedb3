/**
 * Implements the application's API for users with several devices. User and devices are peers; the user's key vouches
 * for its devices, and a device may vouch for others of the same user.
 */
import { createDeviceInvite, isDeviceLabel, signRemoval } from '@sealpost/identity'
import { BODY_BYTES_MAX, USERS_MAX } from '@sealpost/protocol'
import {
  asciiName,
  type GroupId,
  isChosenName,
  type Millis,
  NAME_RULE,
  type PeerKey,
  tidyName,
  withResolvers,
} from '@sealpost/std'
import { clockMs } from '../driver.ts'
import { SealpostError } from '../errors.ts'
import type { MemberOutcome } from '../groups/group-client.ts'
import type { GroupSendOptions } from '../groups/groups.ts'
import { bytesOf, type SenderUser } from '../inbox/message.ts'
import {
  chunksOf,
  type GroupMessage,
  type GroupMessageTerms,
  postTermsOf,
  type Receipt,
  type SendOptions,
} from '../outbox/lane.ts'
import { type Peer, type PeerPorts, portsOf } from '../peer.ts'
import { type ConfirmWish, wishNote } from '../sent/hooks.ts'
import type { Device } from './user-statements.ts'

export type { SenderUser } from '../inbox/message.ts'
export type { Device } from './user-statements.ts'

/** The group id of messages to a user. The broker checks no group statement for it. */
const NO_GROUP = '0'.repeat(32) as GroupId

export interface DeviceInviteOptions {
  /** When the invite expires, in ms since 1970. Default: one hour from now. */
  readonly joinByMs?: Millis
  /** When the voucher expires. Default: ten years from now. */
  readonly notAfterMs?: Millis
  /** The root of the mesh, which the device then pins (`MemberProofs.root`). SDKs before 0.2 can't read such a line. */
  readonly root?: PeerKey
  /** How many revocations exist (`MemberProofs.revocationCount`). */
  readonly revocations?: number
}

/** A message on its way to each device. Ignoring its promises never causes an unhandled rejection. */
export interface PendingUserSend {
  /** Each promise resolves when the broker has stored the envelope for this device, and rejects like that of `send`. */
  readonly devices: ReadonlyMap<PeerKey, Promise<Receipt>>
  /** Resolves with one outcome per device. */
  readonly stored: Promise<readonly MemberOutcome[]>
}

/**
 * Returns the users of the mesh and their devices.
 * @example const devices = await usersOf(peer).devices(ben)
 */
export function usersOf(peer: Peer): Users {
  return new Users(peer)
}

export class Users {
  readonly #peer: Peer
  readonly #ports: PeerPorts

  /** Use `usersOf` instead. @internal */
  constructor(peer: Peer) {
    this.#peer = peer
    this.#ports = portsOf(peer)
  }

  /**
   * Returns one line that lets one device join as a device of this user, by `joinAsDevice`. Sends no request. Anyone
   * who reads it before it is used can become that device: `devices` lists who did, and `removeDevice` ends it.
   * @throws SealpostError `label_malformed`
   * @example const invite = usersOf(peer).inviteDevice('laptop')
   */
  inviteDevice(text: string, options: DeviceInviteOptions = {}): string {
    const label = tidyName(text)
    const form = asciiName(label)
    if (!isChosenName(label) || !isDeviceLabel(form))
      throw new SealpostError(
        'label_malformed',
        `A label can have at most 32 characters (fewer outside ASCII) and must follow the rule for names: ${NAME_RULE}.`,
      )
    const { signing, meshId, brokerKey, tell } = this.#ports
    const url = tell(({ connection }) => connection.publicUrl)
    return createDeviceInvite(signing, { meshId, url, brokerKey, label: form, ...options })
  }

  /**
   * Reads from the broker which devices the user vouches for, itself or through another device. The broker can hide a
   * device but not add one. A device stands for its user.
   * @example const devices = await usersOf(peer).devices(ben)
   */
  async devices(user: PeerKey = this.#peer.key): Promise<readonly Device[]> {
    const { ask, tell, crypto } = this.#ports
    const peers = [tell(({ users }) => users.current(user))]
    const { statements } = await ask({ type: 'devices', peers })
    // Return only devices that are both listed by the broker, so not removed, and confirmed by a statement.
    const listed = new Set(statements.map((bytes) => crypto.users.readDevice(bytes)?.device))
    return tell(({ users }) => users.devicesOf(users.senderUser(user, clockMs()).user, clockMs())).filter(({ key }) =>
      listed.has(key),
    )
  }

  /**
   * Returns the given peers without the devices of users, for a message that each user receives once.
   * @example const users = await usersOf(peer).omitDevices((await peer.members()).map((member) => member.peer))
   */
  async omitDevices(peers: readonly PeerKey[]): Promise<readonly PeerKey[]> {
    const owners = await this.owners(peers)
    return peers.filter((_, i) => owners[i]!.deviceLabel === null)
  }

  /**
   * Returns the user of each peer, in the same order, and the label of a device. A user is its own user.
   * @example const [owner] = await usersOf(peer).owners([message.sender])
   */
  async owners(peers: readonly PeerKey[]): Promise<readonly SenderUser[]> {
    const { ask, tell } = this.#ports
    for (const some of chunksOf([...peers], USERS_MAX)) await ask({ type: 'devices', peers: some })
    return peers.map((key) => tell(({ users }) => users.senderUser(key, clockMs())))
  }

  /**
   * Ends a device of this user for good, and the devices that it has vouched for. Their connections end immediately,
   * their keys can't come back, and their waiting mail is lost. A device can end only those that it has vouched for.
   * @throws SealpostError `unknown_device`
   * @example await usersOf(peer).removeDevice(device)
   */
  async removeDevice(device: PeerKey): Promise<void> {
    const { ask, signing, meshId, self: user } = this.#ports
    const { outcome } = await ask({ type: 'removeDevice', removal: signRemoval(signing, { meshId, user, device }) })
    if (outcome !== 'done') throw new SealpostError('unknown_device', 'This user has no such device.')
  }

  /**
   * Sends to every device of a user, including its own key, but not to this peer: sealed once. Resolves when the
   * message is on its way; receipts report which devices settle it.
   * @throws SealpostError `body_too_large`
   * @example const { stored } = await usersOf(peer).send(ben, 'to every device')
   */
  async send(user: PeerKey, body: Uint8Array | string, options: GroupSendOptions = {}): Promise<PendingUserSend> {
    const to = await this.#everyDeviceOf(user)
    const { to: _, ...terms } = postTermsOf(user, options, wishNote(options))
    const message = this.#sealed(bytesOf(body), to, terms)
    const note = { ...terms.note, user }
    const shared = { ...terms, note, bodyId: message.bodyId, body: message.ticket, message }
    const devices = new Map<PeerKey, Promise<Receipt>>()
    const gathered: Promise<MemberOutcome>[] = []
    for (const device of to) {
      const { promise, resolve: accepted, reject: refused } = withResolvers<Receipt>()
      devices.set(device, promise)
      gathered.push(outcomeOf(device, promise))
      this.#ports.tell((engine) => engine.enqueue({ ...shared, to: device, accepted, refused }))
    }
    return { devices, stored: Promise.all(gathered) }
  }

  /**
   * Sends to the first device that is online; if none is, to the user's own key, where it waits. Only that device gets
   * it.
   * @throws SealpostError `no_responder` with `ifOnline`, and the errors of `peer.send`
   * @example const device = await usersOf(peer).sendToAvailable(ben, 'to one device')
   */
  async sendToAvailable(user: PeerKey, body: Uint8Array | string, options: SendOptions = {}): Promise<PeerKey> {
    return (await this.sendToFree(user, body, options)).device
  }

  /**
   * Like `sendToAvailable`, but also returns the receipt.
   * @throws the errors of `sendToAvailable`
   * @example const { device, receipt } = await usersOf(peer).sendToFree(ben, 'to one device')
   */
  async sendToFree(
    user: PeerKey,
    body: Uint8Array | string,
    options: SendOptions & ConfirmWish = {},
  ): Promise<{ readonly device: PeerKey; readonly receipt: Receipt }> {
    const bytes = bytesOf(body)
    for (const device of await this.#everyDeviceOf(user)) {
      const receipt = await this.#sendIfOnline(device, bytes, options)
      if (receipt) return { device, receipt }
    }
    if (options.ifOnline || user === this.#peer.key)
      throw new SealpostError('no_responder', 'No device of this user is online.')
    return { device: user, receipt: await this.#sendTo(user, bytes, options) }
  }

  #sealed(body: Uint8Array, members: readonly PeerKey[], terms: GroupMessageTerms): GroupMessage {
    if (body.length > BODY_BYTES_MAX)
      throw new SealpostError('body_too_large', `A body can have at most ${BODY_BYTES_MAX} bytes.`)
    const facts = { groupId: NO_GROUP, epoch: 0, members, isSecond: true, owed: new Set<PeerKey>() }
    return { ...this.#ports.crypto.groups.sealBody(body), ...facts, terms }
  }

  async #sendIfOnline(device: PeerKey, body: Uint8Array, options: SendOptions & ConfirmWish): Promise<Receipt | null> {
    try {
      return await this.#sendTo(device, body, { ...options, ifOnline: true })
    } catch (error) {
      // The device was removed in the meantime, so try the next one.
      if (error instanceof SealpostError && GONE.has(error.code)) return null
      throw error
    }
  }

  #sendTo(to: PeerKey, body: Uint8Array, options: SendOptions & ConfirmWish): Promise<Receipt> {
    return new Promise((accepted, refused) => {
      const post = { ...postTermsOf(to, options, wishNote(options)), body, accepted, refused }
      this.#ports.tell((engine) => engine.enqueue(post))
    })
  }

  async #everyDeviceOf(user: PeerKey): Promise<PeerKey[]> {
    const devices = await this.devices(user)
    const owner = this.#ports.tell(({ users }) => users.senderUser(user, clockMs()).user)
    return [owner, ...devices.map(({ key }) => key)].filter((key) => key !== this.#peer.key)
  }
}

const GONE: ReadonlySet<string> = new Set(['no_responder', 'unknown_recipient'])

function outcomeOf(peer: PeerKey, receipt: Promise<Receipt>): Promise<MemberOutcome> {
  return receipt.then(
    (stored) => ({ peer, receipt: stored, error: null }),
    (error: SealpostError) => ({ peer, receipt: null, error }),
  )
}
