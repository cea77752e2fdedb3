/** Serves the signed statements that prove who is a member, and stores those of admins (docs/adr/0017). */
import { createRoute, z } from '@hono/zod-openapi'
import {
  CERTIFICATE_BYTES_MAX,
  type MemberClaim,
  NO_REVOCATION,
  type Revocation,
  readAdmissionClaim,
  readEndorsement,
  readRevocation,
  revocationHash,
} from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { LOOKUP_MAX } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import {
  addRevocation,
  adoptRoot,
  findMeshRoot,
  findProofs,
  listRevocations,
  putAdmission,
  putEndorsements,
  type StoredProof,
} from '@sealpost/store'
import type { Authenticator } from '../directory/authenticator.ts'
import { body, hex, json, security } from './json-schema.ts'
import { type HttpApi, refusals } from './route-parts.ts'
import { type HttpCode, refuse, type TokenHolder } from './tokens.ts'

/** The maximum number of endorsements in one request, and of revocations in one response. */
const ENDORSEMENTS_MAX = 64
const REVOCATIONS_MAX = 256

const statement = z
  .string()
  .min(1)
  .max(Math.ceil((CERTIFICATE_BYTES_MAX * 4) / 3))
  .regex(/^[A-Za-z0-9_-]*$/)

export const findProofsRoute = createRoute({
  method: 'post',
  path: '/v1/proofs',
  summary: 'Request the root of the mesh, and the statements that prove who is a member',
  security,
  request: {
    body: body(
      z
        .strictObject({
          peers: z.array(hex(32)).max(LOOKUP_MAX),
          revocationsAfter: z.int().min(0).max(0x7fffffff).default(0),
        })
        .openapi('ProofQuery'),
    ),
  },
  responses: {
    200: json(
      z
        .object({
          root: hex(32).nullable().openapi({ description: 'null if the mesh has no root' }),
          proofs: z.array(
            z.object({
              kind: z.enum([
                'certificate',
                'endorsement',
                'admission',
                'device',
                'removal',
                'succession',
                'heirs',
                'recovery',
                'pending_recovery',
              ]),
              statement,
            }),
          ),
          revocations: z.array(statement).openapi({ description: 'the next revocations, in their order' }),
          revocationCount: z.int(),
        })
        .openapi('Proofs'),
      'The statements about the requested keys. Verify each.',
    ),
    ...refusals('body_malformed', 'token_invalid'),
  },
})

const NewProofsBody = z
  .strictObject({
    root: hex(32).optional(),
    replaces: hex(32).optional(),
    endorsements: z.array(statement).max(ENDORSEMENTS_MAX).default([]),
    revocation: statement.optional(),
    admission: statement.optional(),
  })
  .openapi('NewProofs')

export const putProofsRoute = createRoute({
  method: 'put',
  path: '/v1/proofs',
  summary:
    'Adopt the root of the mesh, endorse members, or publish a revocation, as an admin; or prove your own admission',
  security,
  request: {
    body: body(NewProofsBody),
  },
  responses: {
    204: { description: 'Everything is stored.' },
    ...refusals('body_malformed', 'token_invalid', 'not_admin', 'root_differs', 'stale_epoch'),
  },
})

interface Parts {
  readonly db: Database
  readonly authenticator: Authenticator
}

interface NewProofs {
  readonly root: PeerKey | null
  readonly replaces: PeerKey | null
  readonly endorsements: readonly (MemberClaim & { readonly bytes: Uint8Array })[]
  readonly revocation: (Revocation & { readonly bytes: Uint8Array }) | null
  readonly admission: (MemberClaim & { readonly bytes: Uint8Array }) | null
}

export function addProofs(app: HttpApi, { db, authenticator }: Parts): void {
  app.openapi(findProofsRoute, async (c) => {
    const { meshId } = c.var.holder
    const { peers, revocationsAfter: after } = c.req.valid('json')
    const [facts, proofs, revocations] = await Promise.all([
      findMeshRoot(db, meshId),
      findProofs(db, meshId, [...new Set(peers as PeerKey[])]),
      listRevocations(db, meshId, { after, limit: REVOCATIONS_MAX }),
    ])
    return c.json({ ...facts, proofs: proofs.map(proofJson), revocations: revocations.map(base64url) }, 200)
  })
  app.openapi(putProofsRoute, async (c) => {
    const given = c.req.valid('json')
    const checked = await authenticator.inTurn(() => ({ proofs: readNewProofs(c.var.holder, given) }))
    if (checked === null) return refuse(c, { code: 'try_later', retryAfterMs: 1000 })
    if (checked.proofs === null) return refuse(c, { code: 'body_malformed' })
    const code = await put(db, c.var.holder, checked.proofs)
    return code === null ? c.body(null, 204) : refuse(c, { code })
  })
}

/** Returns null unless each statement is valid, and signed by the requester or the root. */
function readNewProofs(holder: TokenHolder, given: z.output<typeof NewProofsBody>): NewProofs | null {
  const root = (given.root as PeerKey | undefined) ?? null
  const endorsements = given.endorsements.map((text) => ({
    bytes: bytesOf(text),
    claim: readEndorsement(bytesOf(text)),
  }))
  const revocationBytes = given.revocation === undefined ? null : bytesOf(given.revocation)
  const revocation = revocationBytes && readRevocation(revocationBytes)
  if (revocationBytes && (revocation?.meshId !== holder.meshId || revocation.issuer !== holder.peerKey)) return null
  const admissionBytes = given.admission === undefined ? null : bytesOf(given.admission)
  const admission = admissionBytes && readAdmissionClaim(admissionBytes)
  if (admissionBytes && (admission?.meshId !== holder.meshId || admission.peerKey !== holder.peerKey)) return null
  const read = endorsements.flatMap(({ bytes, claim }) =>
    claim?.meshId === holder.meshId ? [{ ...claim, bytes }] : [],
  )
  if (read.length < endorsements.length) return null
  if (!read.every(({ issuer }) => issuer === holder.peerKey || issuer === root)) return null
  return {
    ...{ root, replaces: (given.replaces as PeerKey | undefined) ?? null, endorsements: read },
    revocation: revocation && revocationBytes ? { ...revocation, bytes: revocationBytes } : null,
    admission: admission && admissionBytes ? { ...admission, bytes: admissionBytes } : null,
  }
}

/** Stores the root before the endorsements that it signed, so that an interrupted adoption can be repeated. */
async function put(db: Database, holder: TokenHolder, proofs: NewProofs): Promise<HttpCode | null> {
  const { meshId } = holder
  const { root, replaces, endorsements, revocation, admission } = proofs
  if (root !== null) {
    const stored = await adoptRoot(db, { meshId, root, replaces }, holder)
    if (stored !== root) return stored === null ? 'not_admin' : 'root_differs'
  }
  if (endorsements.length > 0 && !(await putEndorsements(db, meshId, { endorsements, requester: holder })))
    return 'not_admin'
  if (admission) await putAdmission(db, meshId, admission)
  if (!revocation) return null
  const { number, previous } = revocation
  const [before] = await listRevocations(db, meshId, { after: number - 2, limit: 1 })
  const expected = number > 1 && before ? revocationHash(before) : NO_REVOCATION
  if (previous !== expected) return 'stale_epoch'
  const outcome = await addRevocation(db, holder, revocation)
  return outcome === 'done' ? null : outcome === 'stale' ? 'stale_epoch' : outcome
}

const proofJson = ({ kind, statement: bytes }: StoredProof) => ({ kind, statement: base64url(bytes) })
const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url')
const bytesOf = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64url'))
