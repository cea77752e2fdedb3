/** Reads the statements that a broker returns about members. The caller verifies them. */
import type { ProofKind } from '@sealpost/identity'
import { isHex, type PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { answerMalformed, bytesOf } from '../http/access.ts'
import { isUserStatement } from '../users/recoveries.ts'
import type { StatementRow } from '../users/recovery-book.ts'

export interface ProofRow {
  readonly kind: ProofKind
  readonly bytes: Uint8Array
}

export interface ProofsReply {
  readonly root: PeerKey | null
  readonly proofs: readonly ProofRow[]
  readonly userStatements: readonly StatementRow[]
  readonly revocations: readonly Uint8Array[]
  readonly revocationCount: number
}

const NOTHING: ProofsReply = { root: null, proofs: [], userStatements: [], revocations: [], revocationCount: 0 }
const KINDS: readonly string[] = ['certificate', 'endorsement', 'admission', 'device', 'removal', 'succession'] satisfies ProofKind[] // biome-ignore format: one thing

/** A broker of an earlier version has no proofs. @internal */
export function unlessEarlier(error: unknown): ProofsReply {
  if (error instanceof SealpostError && error.code === 'not_found') return NOTHING
  throw error
}

/** @throws SealpostError `answer_malformed` @internal */
export function readProofs({ root, proofs, revocations, revocationCount }: Record<string, unknown>): ProofsReply {
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
