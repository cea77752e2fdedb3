/**
 * People with several devices, as an application has them. A person is a peer; each of its devices is a peer, too, for
 * which the person's key vouches.
 */
import { isDeviceLabel } from '@sealpost/identity'
import { isChosenName, type Millis, NAME_RULE, type PeerKey, tidyName } from '@sealpost/std'
import { SealpostError } from './errors.ts'
import type { MemberOutcome } from './group-sends.ts'
import type { GroupSendOptions } from './groups.ts'
import type { Receipt } from './lane.ts'
import type { Ask } from './members.ts'
import { bytesOf } from './message.ts'
import type { Device } from './person-book.ts'
import type { PersonKeys } from './person-crypto.ts'
import type { PersonDesk } from './person-desk.ts'
import { postTermsOf, type SendOptions } from './send-options.ts'

export interface PersonsPorts {
  readonly self: PeerKey
  /** Where others find the mesh. */
  readonly url: () => string
  readonly brokerKey: PeerKey
  readonly keys: PersonKeys
  readonly tell: <T>(happened: (desk: PersonDesk, nowMs: Millis) => T) => T
  readonly ask: Ask
  readonly send: (to: PeerKey, body: Uint8Array | string, options: SendOptions) => Promise<Receipt>
}

export interface DeviceInviteOptions {
  /** The line is good until then, ms since 1970. Default: one hour from now. */
  readonly joinByMs?: Millis
  /** The device is vouched for until then. Default: ten years from now. */
  readonly notAfterMs?: Millis
}

/** A message on its way to each device. One who does not look at its promises need not fear them. */
export interface PersonPosted {
  /** Resolve when the broker has stored the envelope for this device; they reject as `send` does. */
  readonly devices: ReadonlyMap<PeerKey, Promise<Receipt>>
  /** One outcome for each device, once all are known. */
  readonly stored: Promise<readonly MemberOutcome[]>
}

export class Persons {
  readonly #ports: PersonsPorts

  /** Use `peer.persons`. */
  constructor(ports: PersonsPorts) {
    this.#ports = ports
  }

  /**
   * One line that lets one device join as a device of this person, by `joinAsDevice`. Nobody is asked for it. Whoever
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

  /** Those this person vouches for, as the broker tells them now: it can hide one, and add none. */
  devices(person: PeerKey = this.#ports.self): Promise<readonly Device[]> {
    return new Promise((found, refused) =>
      this.#ports.tell((desk, nowMs) => desk.find(person, nowMs, { found, refused })),
    )
  }

  /**
   * Ends a device of this person for good: its session ends at once, its key can't come back, and what waits for it is
   * lost. @throws SealpostError `unknown_device`
   */
  async removeDevice(device: PeerKey): Promise<void> {
    const { outcome } = await this.#ports.ask({ type: 'removeDevice', removal: this.#ports.keys.removeDevice(device) })
    if (outcome !== 'done') throw new SealpostError('unknown_device', 'This is no device of this person.')
  }

  /**
   * To every device of a person, its own key among them, but not to this peer: sealed once. Resolves when it is on its
   * way; who of them settles it, receipts tell.
   * @throws SealpostError `body_too_large`
   */
  async send(person: PeerKey, body: Uint8Array | string, options: GroupSendOptions = {}): Promise<PersonPosted> {
    const to = await this.#everyDeviceOf(person)
    const { to: _, ...terms } = postTermsOf(person, options)
    const devices = new Map<PeerKey, Promise<Receipt>>()
    const gathered: Promise<MemberOutcome>[] = []
    const answersOf = (device: PeerKey) => {
      const { promise, resolve, reject } = Promise.withResolvers<Receipt>()
      devices.set(device, promise)
      gathered.push(outcomeOf(device, promise))
      return { accepted: resolve, refused: reject }
    }
    this.#ports.tell((desk) => desk.send({ person, to, body: bytesOf(body), terms, answersOf }))
    return { devices, stored: Promise.all(gathered) }
  }

  /**
   * To one device that is online now, the first of them that the broker finds so; if none is, to the person's own key,
   * where it waits. It is that device's from then on.
   * @throws SealpostError as `send` of a peer; `no_responder` with `ifOnline`
   */
  async sendToFree(person: PeerKey, body: Uint8Array | string, options: SendOptions = {}): Promise<PeerKey> {
    for (const device of await this.#everyDeviceOf(person))
      if (await this.#isTakenBy(device, body, options)) return device
    if (options.ifOnline || person === this.#ports.self)
      throw new SealpostError('no_responder', 'No device of this person is online.')
    await this.#ports.send(person, body, options)
    return person
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

  async #everyDeviceOf(person: PeerKey): Promise<PeerKey[]> {
    const devices = await this.devices(person)
    return [person, ...devices.map(({ key }) => key)].filter((key) => key !== this.#ports.self)
  }
}

const GONE: ReadonlySet<string> = new Set(['no_responder', 'unknown_recipient'])

function outcomeOf(peer: PeerKey, receipt: Promise<Receipt>): Promise<MemberOutcome> {
  return receipt.then(
    (stored) => ({ peer, receipt: stored, error: null }),
    (error: SealpostError) => ({ peer, receipt: null, error }),
  )
}
