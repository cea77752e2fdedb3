/**
 * Whose device a peer is, and which key followed which, as the signatures prove it. A broker hands the statements out and
 * can withhold some; it can make none up, nor bring a removed device back. Pure and synchronous.
 */
import type { DeviceStatement } from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import type { Millis, PeerKey } from '@sealpost/std'
import type { PeerEvent } from './events.ts'
import type { PersonCrypto } from './person-crypto.ts'

/** A device as its person vouches for it. */
export interface Device {
  readonly key: PeerKey
  readonly label: string
  /** Until when it is vouched for, ms since 1970. */
  readonly notAfterMs: Millis
}

/** Whose a message is. */
export interface Whose {
  readonly person: PeerKey
  /** Null: the person's own key. */
  readonly label: string | null
}

export interface PersonBookPorts {
  readonly crypto: PersonCrypto
  readonly announce: (event: PeerEvent) => void
}

/** Far more than anybody turns its key. */
const CHAIN_MAX = 64

export class PersonBook {
  readonly #ports: PersonBookPorts
  readonly #devices = new Map<PeerKey, DeviceStatement>()
  /** The one device that each invite let in. */
  readonly #invited = new Map<PeerKey, PeerKey>()
  /** By which persons: anybody can sign that a stranger is no device of its own. */
  readonly #removed = new Map<PeerKey, Set<PeerKey>>()
  readonly #successors = new Map<PeerKey, PeerKey>()

  constructor(ports: PersonBookPorts) {
    this.#ports = ports
  }

  /** The key of now, of one that others may have followed. */
  current(key: PeerKey): PeerKey {
    let now = key
    for (let step = 0; step < CHAIN_MAX; step++) {
      const next = this.#successors.get(now)
      if (!next) return now
      now = next
    }
    return now
  }

  /** Whose words this peer's are. */
  whose(peer: PeerKey, nowMs: Millis): Whose {
    const device = this.#devices.get(peer)
    if (!device || nowMs > device.notAfterMs) return { person: this.current(peer), label: null }
    return { person: this.current(device.person), label: device.label }
  }

  /** As far as they are known now. */
  devicesOf(person: PeerKey, nowMs: Millis): Device[] {
    const key = this.current(person)
    const own = [...this.#devices.values()].filter(
      (device) => this.current(device.person) === key && nowMs <= device.notAfterMs,
    )
    return own.map(({ device, label, notAfterMs }) => ({ key: device, label, notAfterMs }))
  }

  told({ statements, removals }: FrameOf<'deviceList'>): void {
    for (const bytes of removals) this.#takeRemoval(bytes)
    for (const bytes of statements) this.#takeStatement(bytes)
  }

  succeeded({ statements }: FrameOf<'successions'>): void {
    for (const bytes of statements) this.#takeSuccession(bytes)
  }

  #takeStatement(bytes: Uint8Array): void {
    const device = this.#ports.crypto.readDevice(bytes)
    if (!device) return this.#tampered(null, 'statement_forged')
    const { device: key, inviteKey, person } = device
    if (this.#isRemoved(key, person)) return this.#tampered(key, 'device_removed')
    const first = this.#invited.get(inviteKey)
    if (first !== undefined && first !== key) return this.#tampered(key, 'invite_used_twice')
    const known = this.#devices.get(key)
    if (known && known.person !== person) return this.#tampered(key, 'device_of_another')
    this.#invited.set(inviteKey, key)
    this.#devices.set(key, device)
    if (!known) this.#changed(person, device, true)
  }

  /** Only by the person that vouched for it, under whichever of its keys. */
  #takeRemoval(bytes: Uint8Array): void {
    const removal = this.#ports.crypto.readRemoval(bytes)
    if (!removal) return this.#tampered(null, 'statement_forged')
    const device = this.#devices.get(removal.device)
    if (device && this.current(device.person) !== this.current(removal.person)) return
    this.#removed.set(removal.device, (this.#removed.get(removal.device) ?? new Set()).add(removal.person))
    if (!device) return
    this.#devices.delete(removal.device)
    this.#changed(removal.person, device, false)
  }

  /** What was signed first stands: a key can have one successor only. */
  #takeSuccession(bytes: Uint8Array): void {
    const succession = this.#ports.crypto.readSuccession(bytes)
    if (!succession) return this.#tampered(null, 'statement_forged')
    const { former, successor } = succession
    const known = this.#successors.get(former)
    if (known === successor) return
    if (known || this.current(successor) === former) return this.#tampered(former, 'succession_forked')
    this.#successors.set(former, successor)
    this.#ports.announce({ type: 'identity_changed', former, successor })
  }

  #isRemoved(device: PeerKey, person: PeerKey): boolean {
    return [...(this.#removed.get(device) ?? [])].some((by) => this.current(by) === this.current(person))
  }

  #changed(person: PeerKey, { device, label }: DeviceStatement, isVouched: boolean): void {
    this.#ports.announce({ type: 'device_changed', person: this.current(person), device, label, isVouched })
  }

  #tampered(peer: PeerKey | null, reason: PersonTamper): void {
    this.#ports.announce({ type: 'person_tamper', peer, reason })
  }
}

export type PersonTamper =
  | 'statement_forged'
  | 'device_removed'
  | 'invite_used_twice'
  | 'device_of_another'
  | 'succession_forked'
