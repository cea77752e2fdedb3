/**
 * Verifies who is a member of a mesh with a root, from signed statements in any order (docs/adr/0017). It trusts the root and
 * no source of statements: a missing one can make a member unproven, and none can make a stranger proven. Pure.
 */
import type { InviteId, MeshId, Millis, PeerKey } from '@sealpost/std'
import { type IdentityRotation, readIdentityRotation } from '../keys/key-binding.ts'
import {
  type MemberClaim,
  NO_REVOCATION,
  type Revocation,
  readAdmissionClaim,
  readCertificate,
  readEndorsement,
  readRevocation,
  revocationHash,
} from './certificate.ts'
import { type DeviceStatement, type InviteRole, readDevice, readRemoval } from './enrolment.ts'
import { readRecovery } from './recovery.ts'

export type ProofKind = 'certificate' | 'endorsement' | 'device' | 'removal' | 'succession' | 'recovery' | 'admission'

/**
 * `no_certificate`: no statement names the key. `chain_broken`: the issuer is not a proven admin, the voucher of a device has
 * expired, or the chain is too long. `revoked`: an admin or the user has revoked the key.
 */
export type UnprovenReason = 'no_certificate' | 'chain_broken' | 'revoked'

export interface Proven {
  /** The ASCII forms of the name. A device can have several, because the broker shortens long ones. */
  readonly names: readonly string[]
  readonly role: InviteRole
  /** The key that the certificate names: the member itself, its former key, or the user of a device. */
  readonly user: PeerKey
}

/** `wanted`: the keys without any statement on which the result depends. */
export type Standing =
  | { readonly proven: Proven }
  | { readonly proven: null; readonly reason: UnprovenReason; readonly wanted: readonly PeerKey[] }

/** `known`: seen before. `forked`: differs from one seen before. `gap`: an earlier one is missing. */
export type RevocationOutcome = 'added' | 'known' | 'forged' | 'forked' | 'gap'

const LINKS_MAX = 16
const CLAIMS_MAX = 8
/** The room for a user's name before `/label` in the name of a device. */
const DEVICE_NAME_MAX = 63

export class MembershipProofs {
  readonly #meshId: MeshId
  readonly #root: PeerKey
  /** The claims about each key, the one that counts first. */
  readonly #claims = new Map<PeerKey, readonly MemberClaim[]>()
  /** The only member that each invite has certified. */
  readonly #invited = new Map<InviteId, PeerKey>()
  readonly #devices = new Map<PeerKey, DeviceStatement>()
  /** The former key of a key. */
  readonly #formers = new Map<PeerKey, PeerKey>()
  readonly #successors = new Map<PeerKey, PeerKey>()
  /** Devices that their users have removed, as `user device`. */
  readonly #removed = new Set<string>()
  readonly #revocations: Revocation[] = []
  readonly #hashes: string[] = []
  /** The number of the first effective revocation of each key. */
  readonly #revokedAt = new Map<PeerKey, number>()
  /** How many revocations `#revokedAt` covers. */
  #applied = 0

  constructor({ meshId, root }: { meshId: MeshId; root: PeerKey }) {
    this.#meshId = meshId
    this.#root = root
  }

  get revocationCount(): number {
    return this.#revocations.length
  }
  /** The hash of the newest revocation. */
  get revocationHash(): string {
    return this.#hashes.at(-1) ?? NO_REVOCATION
  }

  /**
   * Adds a statement. Returns the keys that it is about; none if it is invalid or belongs to another mesh. Add a recovery
   * only once this peer follows it.
   */
  add(kind: ProofKind, bytes: Uint8Array): readonly PeerKey[] {
    switch (kind) {
      case 'certificate':
        return this.#addClaim(readCertificate(bytes))
      case 'endorsement':
        return this.#addClaim(readEndorsement(bytes))
      case 'admission':
        return this.#addClaim(readAdmissionClaim(bytes))
      case 'device':
        return this.#addDevice(bytes)
      case 'removal':
        return this.#addRemoval(bytes)
      case 'succession':
        return this.#addSuccession(readIdentityRotation(bytes))
      case 'recovery':
        return this.#addSuccession(readRecovery(bytes))
    }
  }

  /** Adds the next revocation. One that was seen before has no effect. */
  addRevocation(bytes: Uint8Array): RevocationOutcome {
    const revocation = readRevocation(bytes)
    if (revocation?.meshId !== this.#meshId) return 'forged'
    const { number, previous } = revocation
    const hash = revocationHash(bytes)
    const known = this.#hashes[number - 1]
    if (known !== undefined) return known === hash ? 'known' : 'forked'
    if (number !== this.#hashes.length + 1) return 'gap'
    if (previous !== this.revocationHash) return 'forked'
    this.#revocations.push(revocation)
    this.#hashes.push(hash)
    return 'added'
  }

  standingOf(peerKey: PeerKey, nowMs: Millis): Standing {
    const wanted = this.#applyRevocations(nowMs)
    if (wanted.length > 0) return unproven('chain_broken', wanted)
    return this.#resolve(peerKey, { nowMs, before: Infinity, links: 0 })
  }

  /** Returns the identity keys of the same member, oldest first. A revocation names all of them. */
  keysOf(peerKey: PeerKey): PeerKey[] {
    const keys = [peerKey]
    for (let at = this.#formers.get(peerKey); at && !keys.includes(at); at = this.#formers.get(at)) keys.unshift(at)
    for (let at = this.#successors.get(peerKey); at && !keys.includes(at); at = this.#successors.get(at)) keys.push(at)
    return keys
  }

  /** Returns the keys that a key's own certificate or endorsement names as certified by `issuer`. */
  certifiedBy(issuer: PeerKey): PeerKey[] {
    return [...this.#claims].flatMap(([key, claims]) => (claims.some((claim) => claim.issuer === issuer) ? [key] : []))
  }

  isRevoked(peerKey: PeerKey): boolean {
    return this.#isRevoked(peerKey, Infinity)
  }

  /**
   * The newest valid endorsement of a key counts; a certificate or an admission counts only without one. An invite certifies
   * the first key that it was seen with, because the broker has seen the invite, too.
   */
  #addClaim(claim: MemberClaim | null): readonly PeerKey[] {
    if (claim?.meshId !== this.#meshId) return []
    const { peerKey, issuer, kind, inviteId } = claim
    if (inviteId && (this.#invited.get(inviteId) ?? peerKey) !== peerKey) return []
    if (inviteId) this.#invited.set(inviteId, peerKey)
    const others = (this.#claims.get(peerKey) ?? []).filter((known) => known.issuer !== issuer || known.kind !== kind)
    const same = (this.#claims.get(peerKey) ?? []).find((known) => known.issuer === issuer && known.kind === kind)
    const all = [...others, same && same.atMs > claim.atMs ? same : claim].sort(newestFirst)
    this.#claims.set(peerKey, all.slice(0, CLAIMS_MAX))
    return [peerKey]
  }

  #addDevice(bytes: Uint8Array): readonly PeerKey[] {
    const statement = readDevice(bytes)
    if (statement?.meshId !== this.#meshId) return []
    // A device belongs to the first user that it was seen with, as in `UserStatements`.
    if (!this.#devices.has(statement.device)) this.#devices.set(statement.device, statement)
    return [statement.device]
  }

  #addRemoval(bytes: Uint8Array): readonly PeerKey[] {
    const removal = readRemoval(bytes)
    if (removal?.meshId !== this.#meshId) return []
    this.#removed.add(`${removal.user} ${removal.device}`)
    return [removal.device]
  }

  /** The first successor of a key counts. */
  #addSuccession(succession: Pick<IdentityRotation, 'meshId' | 'former' | 'successor'> | null): readonly PeerKey[] {
    if (succession?.meshId !== this.#meshId) return []
    const { former, successor } = succession
    const isFirst = !this.#successors.has(former) && !this.#formers.has(successor)
    if (isFirst && !this.keysOf(former).includes(successor)) {
      this.#successors.set(former, successor)
      this.#formers.set(successor, former)
    }
    return [former, successor]
  }

  /**
   * Applies the revocations that were added, each with the right that its issuer had before it. Returns the keys whose
   * statements are missing for that.
   */
  #applyRevocations(nowMs: Millis): readonly PeerKey[] {
    for (; this.#applied < this.#revocations.length; this.#applied++) {
      const { issuer, peerKey, number } = this.#revocations[this.#applied]!
      const standing = this.#admin(issuer, { nowMs, before: number, links: 0 })
      if (standing && standing.wanted.length > 0) return standing.wanted
      if (!standing && !this.#revokedAt.has(peerKey)) this.#revokedAt.set(peerKey, number)
    }
    return []
  }

  #resolve(peerKey: PeerKey, at: Place): Standing {
    if (at.links > LINKS_MAX) return unproven('chain_broken')
    if (this.#isRevoked(peerKey, at.before)) return unproven('revoked')
    const next = { ...at, links: at.links + 1 }
    const claims = this.#claims.get(peerKey)
    if (claims) return this.#firstValid(claims, next)
    const former = this.#formers.get(peerKey)
    if (former) return this.#resolve(former, next)
    const device = this.#devices.get(peerKey)
    return device ? this.#resolveDevice(device, next) : unproven('no_certificate', [peerKey])
  }

  #firstValid(claims: readonly MemberClaim[], at: Place): Standing {
    const wanted: PeerKey[] = []
    for (const { issuer, name, role, peerKey } of claims) {
      const flaw = this.#admin(issuer, at)
      if (!flaw) return { proven: { names: [name], role, user: peerKey } }
      wanted.push(...flaw.wanted)
    }
    return unproven('chain_broken', wanted)
  }

  #resolveDevice({ user, device, label, notAfterMs }: DeviceStatement, at: Place): Standing {
    if (this.#removed.has(`${user} ${device}`)) return unproven('revoked')
    if (at.nowMs > notAfterMs) return unproven('chain_broken')
    const voucher = this.#resolve(user, at)
    if (!voucher.proven) return voucher.reason === 'no_certificate' ? { ...voucher, reason: 'chain_broken' } : voucher
    const { user: owner, names } = voucher.proven
    const roots = [...names.map((name) => name.split('/')[0]!), ...this.keysOf(owner).map((key) => key.slice(0, 8))]
    const all = roots.map((name) => `${name.slice(0, DEVICE_NAME_MAX - label.length)}/${label}`)
    return { proven: { names: [...new Set(all)], role: 'member', user: owner } }
  }

  /** Returns null if the key may certify and revoke members. */
  #admin(issuer: PeerKey, at: Place): Extract<Standing, { proven: null }> | null {
    if (issuer === this.#root) return null
    const standing = this.#resolve(issuer, at)
    if (!standing.proven) return unproven('chain_broken', standing.wanted)
    return standing.proven.role === 'admin' ? null : unproven('chain_broken')
  }

  /** Returns whether the key, or a key that followed it, was revoked before this number. */
  #isRevoked(peerKey: PeerKey, before: number): boolean {
    const seen = new Set<PeerKey>()
    for (let at: PeerKey | undefined = peerKey; at && !seen.has(at); at = this.#successors.get(at)) {
      seen.add(at)
      if ((this.#revokedAt.get(at) ?? Infinity) < before) return true
    }
    return false
  }
}

interface Place {
  readonly nowMs: Millis
  /** Revocations from this number on don't count. */
  readonly before: number
  readonly links: number
}

function unproven(reason: UnprovenReason, wanted: readonly PeerKey[] = []) {
  return { proven: null, reason, wanted } as const
}

function newestFirst(a: MemberClaim, b: MemberClaim): number {
  if (a.kind !== b.kind && (a.kind === 'endorsement' || b.kind === 'endorsement'))
    return a.kind === 'endorsement' ? -1 : 1
  return b.atMs - a.atMs
}
