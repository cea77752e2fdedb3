/** The mesh as its broker tells it, and what an admin does to it. Names and roles are the broker's word: nobody signed them. */
import type { FrameOf, MemberRole } from '@sealpost/protocol'
import type { InviteId, PeerKey } from '@sealpost/std'
import { refusedBy, SealpostError } from './errors.ts'
import type { AnswerTo, QuestionOf, QuestionType } from './questions.ts'

export interface MemberEntry {
  readonly peer: PeerKey
  /** What people call it; empty for none. It is no identity: compare fingerprints. */
  readonly name: string
  readonly role: MemberRole
}

export type Ask = <Type extends QuestionType>(question: QuestionOf<Type> & { type: Type }) => Promise<AnswerTo<Type>>

const BEFORE_ALL = '0'.repeat(64) as PeerKey

/** Page by page. A broker that goes round in a circle is not followed. */
export async function listMembers(ask: Ask): Promise<MemberEntry[]> {
  const all: MemberEntry[] = []
  let after = BEFORE_ALL
  for (;;) {
    const { members, isLast } = await ask({ type: 'members', after })
    all.push(...members)
    const last = members.at(-1)?.peer
    if (isLast || last === undefined || last <= after) return all
    after = last
  }
}

/** @throws SealpostError `not_admin`, `unknown_recipient` */
export async function revoke(ask: Ask, named: { members?: PeerKey[]; invites?: InviteId[] }): Promise<void> {
  const answer: FrameOf<'revoked'> = await ask({ type: 'revoke', members: [], invites: [], ...named })
  if (answer.outcome === 'not_admin')
    throw new SealpostError('not_admin', 'Only an admin of the mesh may revoke others.')
  if (answer.unknown.length > 0) throw refusedBy('unknown_recipient')
}
