/**
 * Maps devices to their users, and identity keys to their successors, using only signed statements. A broker can
 * withhold statements, but it can neither forge one nor bring back a removed device, also not in a later process. Pure
 * and synchronous.
 */
import type { DeviceStatement } from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import { type Millis, type PeerKey, unicodeName } from '@sealpost/std'
import type { SenderUser } from '../inbox/message.ts'
import type { PeerEvent, UserCrypto, UserTamper } from '../ports.ts'
import type { SeenStore } from '../stores/store.ts'

export interface Device {
  readonly key: PeerKey
  readonly label: string
  /** When the voucher expires, in ms since 1970. */
  readonly notAfterMs: Millis
}

export interface UserStatementsPorts {
  readonly crypto: UserCrypto
  readonly emit: (event: PeerEvent) => void
  readonly seen: SeenStore
}

/** The maximum number of rotations to follow. */
const CHAIN_MAX = 64
/** The end of the voucher of a device that was removed. */
const REMOVED_MS: Millis = -1

export class UserStatements {
  readonly #ports: UserStatementsPorts
  readonly #devices = new Map<PeerKey, DeviceStatement>()
  /** The only device that each invite has admitted. */
  readonly #invited = new Map<PeerKey, PeerKey>()
  /**
   * The signers of each device's removals. Only the device's own user, or the device that vouched for it, counts,
   * because anybody can sign one.
   */
  readonly #removed = new Map<PeerKey, Set<PeerKey>>()
  readonly #successors = new Map<PeerKey, PeerKey>()

  constructor(ports: UserStatementsPorts) {
    this.#ports = ports
    for (const record of ports.seen.records) {
      if (record.kind === 'removal') this.#remove(record.device, record.by)
      else if (record.kind === 'succession') this.#successors.set(record.former, record.successor)
    }
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

  /** Follows a successor that a device of the user has certified, unless the key has another one. */
  follow(former: PeerKey, successor: PeerKey): void {
    if (!this.#successors.has(former)) this.#successors.set(former, successor)
  }

  senderUser(peer: PeerKey, nowMs: Millis): SenderUser {
    const device = this.#devices.get(peer)
    const user = device && this.#userOf(device, nowMs)
    if (!user) return { user: this.current(peer), deviceLabel: null }
    return { user, deviceLabel: unicodeName(device.label) }
  }

  /** Returns the devices of a user, including those for which another of its devices vouches. */
  devicesOf(user: PeerKey, nowMs: Millis): Device[] {
    const key = this.current(user)
    const own = [...this.#devices.values()].filter((device) => this.#userOf(device, nowMs) === key)
    return own.map(({ device, label, notAfterMs }) => ({ key: device, label: unicodeName(label), notAfterMs }))
  }

  /**
   * Returns the user of a device, for which the user or another device of the user vouches. Null if a voucher has
   * expired or its device was removed.
   */
  #userOf({ user, notAfterMs }: DeviceStatement, nowMs: Millis): PeerKey | null {
    const voucher = this.#devices.get(user)
    if (nowMs > notAfterMs || (voucher && (nowMs > voucher.notAfterMs || this.#devices.has(voucher.user)))) return null
    return this.current(this.#voucherOf(user))
  }

  /** Returns the key that vouches for a device, or the key of a user. */
  #voucherOf(key: PeerKey): PeerKey {
    return this.#devices.get(key)?.user ?? key
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
    const signers = this.#removed.get(key) ?? []
    if ([...signers].some((by) => this.#isBy(by, user))) return this.#tampered(key, 'device_removed')
    const first = this.#invited.get(inviteKey)
    if (first !== undefined && first !== key) return this.#tampered(key, 'invite_used_twice')
    const known = this.#devices.get(key)
    if (known && this.current(known.user) !== this.current(user)) return this.#tampered(key, 'device_of_another')
    this.#invited.set(inviteKey, key)
    this.#devices.set(key, device)
    if (!known) this.#changed(user, device, true)
  }

  /** Accepts a removal. Only one signed with a key of the user counts, or of the device that vouched for this one. */
  #takeRemoval(bytes: Uint8Array): void {
    const removal = this.#ports.crypto.readRemoval(bytes)
    if (!removal) return this.#tampered(null, 'statement_forged')
    const { device: key, user } = removal
    const device = this.#devices.get(key)
    if (device && !this.#isBy(user, device.user)) return
    this.#remove(key, user)
    this.#ports.seen.keep(`removal ${key} ${user}`, { kind: 'removal', device: key, by: user })
    if (!device || device.notAfterMs === REMOVED_MS) return
    this.#devices.set(key, { ...device, notAfterMs: REMOVED_MS })
    this.#changed(user, device, false)
  }

  #remove(device: PeerKey, by: PeerKey): void {
    this.#removed.set(device, (this.#removed.get(device) ?? new Set()).add(by))
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
    this.#ports.seen.keep(`succession ${former}`, { kind: 'succession', former, successor })
    this.#ports.emit({ type: 'identity_changed', former, successor })
  }

  /** Returns whether the voucher of a device has signed this, or the user for whose device the voucher is. */
  #isBy(signer: PeerKey, voucher: PeerKey): boolean {
    return [voucher, this.#voucherOf(voucher)].some((key) => this.current(key) === this.current(signer))
  }

  #changed(user: PeerKey, { device, label }: DeviceStatement, isVouched: boolean): void {
    const owner = this.current(this.#voucherOf(user))
    this.#ports.emit({ type: 'device_changed', user: owner, device, label: unicodeName(label), isVouched })
  }

  #tampered(peer: PeerKey | null, reason: UserTamper): void {
    this.#ports.emit({ type: 'user_tamper', peer, reason })
  }
}
