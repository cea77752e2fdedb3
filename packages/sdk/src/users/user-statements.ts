/**
 * Maps devices to their users, and identity keys to their successors, using only signed statements. A broker can
 * withhold statements, but it can neither forge one nor bring back a removed device. Pure and synchronous.
 */
import type { DeviceStatement } from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import { type Millis, type PeerKey, unicodeName } from '@sealpost/std'
import type { SenderUser } from '../inbox/message.ts'
import type { PeerEvent, UserCrypto, UserTamper } from '../ports.ts'

export interface Device {
  readonly key: PeerKey
  readonly label: string
  /** When the voucher expires, in ms since 1970. */
  readonly notAfterMs: Millis
}

export interface UserStatementsPorts {
  readonly crypto: UserCrypto
  readonly emit: (event: PeerEvent) => void
}

/** The maximum number of rotations to follow. */
const CHAIN_MAX = 64

export class UserStatements {
  readonly #ports: UserStatementsPorts
  readonly #devices = new Map<PeerKey, DeviceStatement>()
  /** The only device that each invite has admitted. */
  readonly #invited = new Map<PeerKey, PeerKey>()
  /**
   * The users that have removed each device. Only a removal by the device's own user counts, because anybody can sign
   * one.
   */
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

  senderUser(peer: PeerKey, nowMs: Millis): SenderUser {
    const device = this.#devices.get(peer)
    if (!device || nowMs > device.notAfterMs) return { user: this.current(peer), deviceLabel: null }
    return { user: this.current(device.user), deviceLabel: unicodeName(device.label) }
  }

  devicesOf(user: PeerKey, nowMs: Millis): Device[] {
    const key = this.current(user)
    const own = [...this.#devices.values()].filter(
      (device) => this.current(device.user) === key && nowMs <= device.notAfterMs,
    )
    return own.map(({ device, label, notAfterMs }) => ({ key: device, label: unicodeName(label), notAfterMs }))
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

  /** Accepts a removal. Only one signed with a key of the user that vouched for the device counts. */
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

  /** Accepts a succession. Only the first one of a key counts. */
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
    this.#ports.emit({ type: 'device_changed', user: this.current(user), device, label: unicodeName(label), isVouched })
  }

  #tampered(peer: PeerKey | null, reason: UserTamper): void {
    this.#ports.emit({ type: 'user_tamper', peer, reason })
  }
}
