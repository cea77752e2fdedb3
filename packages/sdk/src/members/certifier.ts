/** Signs and publishes what an admin certifies: the root of a mesh, endorsements and revocations (docs/adr/0017). */
import { type MembershipProofs, type SigningKeys, signEndorsement, signRevocation } from '@sealpost/identity'
import { asciiName, type MeshId, type PeerKey, toBase64url } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import type { HttpAccess } from '../http/access.ts'
import { chunksOf } from '../outbox/lane.ts'
import type { MemberEntry } from '../requests/requests.ts'
import { memberUnproven } from './member-guard.ts'

interface CertifierPorts {
  readonly access: HttpAccess
  readonly meshId: MeshId
  /** Returns the verified statements. @throws SealpostError `root_missing` */
  readonly proofs: () => MembershipProofs
  /** Reads the newest revocations. */
  readonly refresh: () => Promise<void>
}

const ENDORSEMENTS_AT_ONCE = 64
const TRIES_MAX = 5

export class Certifier {
  readonly #ports: CertifierPorts

  constructor(ports: CertifierPorts) {
    this.#ports = ports
  }

  /** Publishes the root, and endorsements by it. Returns the endorsements. */
  async adopt(root: SigningKeys, listed: readonly MemberEntry[], replaces?: PeerKey): Promise<readonly Uint8Array[]> {
    const endorsements = this.#endorsements(root, listed)
    const pieces = endorsements.length > 0 ? chunksOf(endorsements, ENDORSEMENTS_AT_ONCE) : [[]]
    for (const some of pieces)
      await this.#put({ root: root.publicKey, ...(replaces && { replaces }), endorsements: some.map(toBase64url) })
    return endorsements
  }

  /** Publishes endorsements. Returns them. */
  async endorse(admin: SigningKeys, listed: readonly MemberEntry[]): Promise<readonly Uint8Array[]> {
    const endorsements = this.#endorsements(admin, listed)
    for (const some of chunksOf(endorsements, ENDORSEMENTS_AT_ONCE))
      await this.#put({ endorsements: some.map(toBase64url) })
    return endorsements
  }

  /** Publishes a revocation of the key, unless it is revoked. */
  async revoke(admin: SigningKeys, peerKey: PeerKey): Promise<void> {
    const { meshId, proofs, refresh } = this.#ports
    for (let tries = 1; !proofs().isRevoked(peerKey); tries++) {
      const { revocationCount, revocationHash: previous } = proofs()
      const terms = { meshId, number: revocationCount + 1, previous, peerKey, atMs: Date.now() }
      const revocation = toBase64url(signRevocation(admin, terms))
      const failed = await this.#put({ revocation }).then(
        () => null,
        (error: SealpostError) => error,
      )
      if (failed && (failed.code !== 'stale_epoch' || tries >= TRIES_MAX)) throw failed
      await refresh()
      proofs().standingOf(peerKey, Date.now()) // applies the revocation
      if (!failed && !proofs().isRevoked(peerKey)) throw memberUnproven() // this admin is not proven itself
    }
  }

  #endorsements(issuer: SigningKeys, listed: readonly MemberEntry[]): Uint8Array[] {
    const atMs = Date.now()
    return listed.map(({ peer: peerKey, name, role }) =>
      signEndorsement(issuer, { meshId: this.#ports.meshId, peerKey, name: asciiName(name), role, atMs }),
    )
  }

  async #put(json: object): Promise<void> {
    await this.#ports.access.ask({ method: 'PUT', path: '/v1/proofs', json })
  }
}
