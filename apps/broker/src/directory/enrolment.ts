/**
 * The membership of a mesh, as its own admins manage it: enrolment by invite, the list of members, revocation. This
 * class checks signatures, in the same queue as those of other handshakes; one statement checks the invite and the
 * admin (`packages/store/src/members/membership.ts`).
 */
import type { Enrolment, Replies, Requester, RevokeReply } from '@sealpost/core'
import {
  checkKeyBinding,
  hash256,
  type Invite,
  type KeyBinding,
  parseInvite,
  signAsBroker,
  verifyEnrolment,
} from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { type FrameOf, MEMBER_PAGE_MAX } from '@sealpost/protocol'
import { isChosenName, type MeshId, tidyName } from '@sealpost/std'
import { enrolByInvite, listMembers, revokeMembers, type VerifiedInvite } from '@sealpost/store'
import type { Cells } from '../shards/cells.ts'
import { type Authenticator, transcriptOf } from './authenticator.ts'
import type { BrokerKeys } from './broker-keys.ts'

interface Checked {
  readonly claim: VerifiedInvite
  readonly binding: KeyBinding
  readonly proof: Uint8Array
}

interface RegistrarParts {
  readonly authenticator: Authenticator
  readonly keys: BrokerKeys
  readonly cells: Cells
  readonly membersMax: number
}

export class EnrolmentService {
  private readonly db: Database
  private readonly authenticator: Authenticator
  private readonly keys: BrokerKeys
  private readonly cells: Cells
  private readonly membersMax: number

  constructor(db: Database, { authenticator, keys, cells, membersMax }: RegistrarParts) {
    this.db = db
    this.authenticator = authenticator
    this.keys = keys
    this.cells = cells
    this.membersMax = membersMax
  }

  /** `null`: too many wait. @throws OperatingError if the database does not respond */
  async enrol(authority: string, hello: FrameOf<'hello'>, enrol: FrameOf<'enrol'>): Promise<Enrolment | null> {
    const checked = await this.authenticator.inTurn(() => this.check(authority, hello, enrol))
    if (checked === null) return null
    // The same reply as for an invite that the database knows as used up or revoked: it must not reveal which.
    if (checked === 'invite_refused') return { status: checked }
    const { claim, binding, proof } = checked
    const name = tidyName(enrol.name)
    if (!isChosenName(name)) return { status: 'name_malformed' }
    const outcome = await enrolByInvite(this.db, claim, { ...binding, name }, this.membersMax)
    if (outcome.status === 'invite_refused') return this.cells.sendOn(claim.meshId, proof)
    return outcome.status === 'enrolled' ? { ...outcome, proof } : outcome
  }

  async list(meshId: MeshId, { after }: FrameOf<'members'>): Promise<Replies['members']> {
    const found = await listMembers(this.db, meshId, { after, limit: MEMBER_PAGE_MAX + 1 })
    const members = found.slice(0, MEMBER_PAGE_MAX).map(({ peerKey, name, role }) => ({ peer: peerKey, name, role }))
    return { members, isLast: found.length <= MEMBER_PAGE_MAX }
  }

  async revoke(requester: Requester, { members, invites }: FrameOf<'revoke'>): Promise<RevokeReply> {
    const ended = await revokeMembers(this.db, requester, { members, invites })
    if (!ended) return { outcome: 'not_admin' }
    return { outcome: 'done', ended: ended.map((member) => ({ ...member, meshId: requester.meshId })) }
  }

  private check(authority: string, hello: FrameOf<'hello'>, enrol: FrameOf<'enrol'>): Checked | 'invite_refused' {
    const invite = parseInvite(enrol.invite)
    // The address in the invite is for the new member: a mesh may have moved since. The transcript contains the dialled
    // one.
    if (!invite || invite.brokerKey !== this.keys.clusterKey) return 'invite_refused'
    const { meshId } = invite
    const transcript = transcriptOf(authority, hello, { ...enrol, meshId, capabilities: [] })
    if (!verifyEnrolment(transcript, enrol, enrol.signature)) return 'invite_refused'
    const binding = bindingOf(enrol, meshId)
    const expected = { meshId, peerKey: enrol.peerKey, nowMs: Date.now() }
    if (checkKeyBinding(binding, expected) !== 'ok') return 'invite_refused'
    return { claim: claimOf(invite), binding, proof: signAsBroker(this.keys, transcript, enrol.signature) }
  }
}

function claimOf({ meshId, inviteId, bytes, issuer, usesMax, notAfterMs, role }: Invite): VerifiedInvite {
  return { meshId, inviteId, hash: hash256(bytes), issuer, usesMax, notAfterMs, role }
}

function bindingOf(enrol: FrameOf<'enrol'>, meshId: MeshId): KeyBinding {
  const { peerKey, boxKey, boxEpoch, bindingNotAfterMs, bindingSignature } = enrol
  return { meshId, peerKey, boxKey, boxEpoch, notAfterMs: bindingNotAfterMs, signature: bindingSignature }
}
