/** Requests the statements that prove who is a member, and reads the response. */
import type { ProofKind } from '@sealpost/identity'
import type { LogEntry } from '@sealpost/identity/log'
import { fromHex, isHex, type PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { answerMalformed, bytesOf, type HttpAccess } from '../http/access.ts'
import { entryOf, isUserStatement } from '../users/recoveries.ts'
import type { StatementRow } from '../users/recovery-book.ts'

export interface ProofRow {
  readonly kind: ProofKind
  readonly bytes: Uint8Array
}

export interface ProofsAnswer {
  readonly root: PeerKey | null
  readonly proofs: readonly ProofRow[]
  readonly userStatements: readonly StatementRow[]
  readonly revocations: readonly Uint8Array[]
  readonly revocationCount: number
}

const NOTHING: ProofsAnswer = { root: null, proofs: [], userStatements: [], revocations: [], revocationCount: 0 }
const KINDS: readonly string[] = ['certificate', 'endorsement', 'admission', 'device', 'removal', 'succession'] satisfies ProofKind[] // biome-ignore format: one thing

/** Returns statements about the keys, and the revocations after a number. */
export function requestProofs(
  access: HttpAccess,
  asked: { readonly peers: readonly PeerKey[]; readonly revocationsAfter: number },
): Promise<ProofsAnswer> {
  return access
    .ask({ method: 'POST', path: '/v1/proofs', json: asked })
    .then((response) => readAnswer(response.json()), unlessEarlier)
}

/** Returns the entries of the log, those of `proofs` first, then those of `userStatements`. */
export function entriesOf({ root, proofs, userStatements, revocations }: ProofsAnswer): readonly LogEntry[] {
  return [
    ...proofs.map(({ kind, bytes: statement }) => ({ kind, statement })),
    ...userStatements.map(entryOf),
    ...revocations.map((statement) => ({ kind: 'revocation' as const, statement })),
    ...(root === null ? [] : [{ kind: 'root' as const, statement: fromHex(root) }]),
  ]
}

/** A broker of an earlier version has no proofs. */
function unlessEarlier(error: unknown): ProofsAnswer {
  if (error instanceof SealpostError && error.code === 'not_found') return NOTHING
  throw error
}

function readAnswer({ root, proofs, revocations, revocationCount }: Record<string, unknown>): ProofsAnswer {
  const isRoot = root === null || isHex(root, 32)
  if (!isRoot || !Array.isArray(proofs) || !Array.isArray(revocations) || !Number.isSafeInteger(revocationCount))
    throw answerMalformed()
  const rows = proofs.map(({ kind, statement }) => ({ kind: String(kind), bytes: bytesOf(statement) }))
  return {
    root: root as PeerKey | null,
    proofs: rows.filter((row): row is ProofRow => KINDS.includes(row.kind)),
    userStatements: rows.filter(isUserStatement),
    revocations: revocations.map(bytesOf),
    revocationCount: revocationCount as number,
  }
}
