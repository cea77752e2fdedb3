/**
 * Who belongs to a mesh, as far as its own admins decide it: enrolment by an invite, the list of members, revocation.
 * Signatures are checked here, in turn with those of all other newcomers; whether an invite can still be used and who is
 * an admin is decided by one statement (`packages/db/src/membership.ts`).
 */
import type { Enrolment, MemberPage, RevokedMember } from '@sealpost/core'
import { type Database, enrolByInvite, type InviteClaim, listMembers, revokeFor } from '@sealpost/db'
import {
  checkKeyBinding,
  hash256,
  type Invite,
  type KeyBinding,
  parseInvite,
  signAsBroker,
  verifyEnrolment,
} from '@sealpost/identity'
import { type FrameOf, ROSTER_MAX } from '@sealpost/protocol'
import { isChosenName, type MeshId, type PeerNo, tidyName } from '@sealpost/std'
import { type Authenticator, transcriptOf } from './authenticator.ts'
import type { BrokerKeys } from './broker-keys.ts'
import type { Cells } from './cells.ts'

/** An enrolment whose every signature is good. */
interface Checked {
  readonly claim: InviteClaim
  readonly binding: KeyBinding
  readonly proof: Uint8Array
}

interface RegistrarParts {
  readonly authenticator: Authenticator
  readonly keys: BrokerKeys
  readonly cells: Cells
  /** Of one mesh. */
  readonly membersMax: number
}

export class Registrar {
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

  /** `null`: too many wait. @throws OperatingError when the database does not answer */
  async enrol(authority: string, hello: FrameOf<'hello'>, enrol: FrameOf<'enrol'>): Promise<Enrolment | null> {
    const checked = await this.authenticator.inTurn(() => this.check(authority, hello, enrol))
    if (checked === null) return null
    // The same answer as for an invite that the database knows to be over: it must not tell which.
    if (checked === 'invite_refused') return { status: checked }
    const { claim, binding, proof } = checked
    const name = tidyName(enrol.name)
    if (!isChosenName(name)) return { status: 'name_malformed' }
    const outcome = await enrolByInvite(this.db, claim, { ...binding, name }, this.membersMax)
    if (outcome.status === 'invite_refused') return this.cells.sendOn(claim.meshId, proof)
    return outcome.status === 'enrolled' ? { ...outcome, proof } : outcome
  }

  /** @throws OperatingError */
  async list(meshId: MeshId, { after }: FrameOf<'members'>): Promise<MemberPage> {
    const found = await listMembers(this.db, meshId, { after, limit: ROSTER_MAX + 1 })
    const members = found.slice(0, ROSTER_MAX).map(({ peerKey, name, role }) => ({ peer: peerKey, name, role }))
    return { members, isLast: found.length <= ROSTER_MAX }
  }

  /** `null`: the asker may not, being no admin. @throws OperatingError */
  async revoke(
    asker: { meshId: MeshId; peer: PeerNo },
    { members, invites }: FrameOf<'revoke'>,
  ): Promise<RevokedMember[] | null> {
    const ended = await revokeFor(this.db, asker, { members, invites })
    return ended?.map(({ peer, peerKey }) => ({ meshId: asker.meshId, peer, peerKey })) ?? null
  }

  private check(authority: string, hello: FrameOf<'hello'>, enrol: FrameOf<'enrol'>): Checked | 'invite_refused' {
    const invite = parseInvite(enrol.invite)
    // The address in it is the newcomer's: a mesh may have moved since. What was dialled is in the transcript.
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

function claimOf({ meshId, inviteId, bytes, issuer, usesMax, notAfterMs, role }: Invite): InviteClaim {
  return { meshId, inviteId, hash: hash256(bytes), issuer, usesMax, notAfterMs, role }
}

function bindingOf(enrol: FrameOf<'enrol'>, meshId: MeshId): KeyBinding {
  const { peerKey, boxKey, boxEpoch, bindingNotAfterMs, bindingSignature } = enrol
  return { meshId, peerKey, boxKey, boxEpoch, notAfterMs: bindingNotAfterMs, signature: bindingSignature }
}
