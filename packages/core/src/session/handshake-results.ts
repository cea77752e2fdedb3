/** What is found of those who ask to be let in, and of those who are put out. */
import type { Member } from '@sealpost/protocol'
import type { NewDevice } from '../directory/users.ts'
import type { RedirectTarget } from '../shards/homes.ts'

/** What was found of a peer that asks to be let in. */
export interface Authentication {
  readonly member: Member | null
  readonly isSignatureGood: boolean
  /** The broker's own signature over this handshake. */
  readonly proof: Uint8Array
  /** Where its mesh lives, if that is another cell: no member is known here then. */
  readonly cell?: RedirectTarget | null
}

/**
 * What became of one that asked to be let in by an invite; `proof` is the broker's signature over its enrolment. `moved`:
 * the mesh of its invite lives in another cell.
 */
export type Enrolment =
  | { readonly status: 'enrolled'; readonly name: string; readonly proof: Uint8Array; readonly device?: NewDevice }
  | { readonly status: 'moved'; readonly cell: RedirectTarget; readonly proof: Uint8Array }
  | { readonly status: EnrolRefusal }

export type EnrolRefusal =
  | 'invite_refused'
  | 'already_member'
  | 'name_taken'
  | 'name_malformed'
  | 'revoked'
  | 'too_many_devices'
  | 'too_many_members'
