/**
 * Publishes and claims prekeys in the broker's directory, with which two peers begin a ratchet
 * (docs/adr/0018-ratchets.md). Peers with `forwardSecrecy` do both by themselves.
 */
import {
  type OneTimePrekey,
  type PrekeyStatement,
  type PrekeyVerdict,
  readPrekeyStatement,
} from '@sealpost/identity/ratchet'
import { type MeshId, type Millis, type PeerKey, toBase64url } from '@sealpost/std'
import { answerMalformed, bytesOf, type HttpAccess } from '../http/access.ts'
import { chunksOf } from '../outbox/lane.ts'

export { HttpAccess, type HttpOptions } from '../http/access.ts'

export interface PublishedPrekeys {
  /** The number of one-time prekeys that nobody has claimed. Publish more when it is low. */
  readonly oneTimeLeft: number
  /** The number of claims of this statement that found no one-time prekey. */
  readonly lastResorts: number
}

export interface PrekeyOffer {
  readonly statement: Pick<PrekeyStatement, 'bytes'>
  /** At most 256. Empty: asks how many are left. */
  readonly oneTime: readonly OneTimePrekey[]
  /** Whether the broker deletes the other unclaimed ones, because this store lacks their secrets. */
  readonly replaces?: boolean
}

/**
 * Publishes the signed prekey of this peer, and adds one-time prekeys. Store their secrets first. Idempotent.
 * @throws SealpostError `prekey_rolled_back`, `prekey_expired`, `prekey_forged`, `too_many_prekeys`; `not_found` if the
 * broker is too old; the codes of `HttpAccess.ask`
 * @example
 * const oneTime = prekeys.addOneTime(sodiumRatchetCrypto, 100)
 * const { oneTimeLeft } = await publishPrekeys(access, { statement, oneTime })
 */
export async function publishPrekeys(
  access: Pick<HttpAccess, 'ask'>,
  { statement, oneTime, replaces = false }: PrekeyOffer,
): Promise<PublishedPrekeys> {
  const json = {
    statement: toBase64url(statement.bytes),
    oneTime: oneTime.map(({ id, publicKey }) => ({ id, publicKey: toBase64url(publicKey) })),
    replaces,
  }
  return (await access.ask({ method: 'POST', path: '/v1/prekeys', json })).json<PublishedPrekeys>()
}

/**
 * `claimed_too_many`: this user has claimed too many one-time prekeys in a day. `no_prekeys`: the peer has published
 * none. The codes that begin with `prekey` are those of `readPrekeyStatement`: do not use what the broker has returned.
 */
export type PrekeyResult =
  | {
      readonly ok: true
      readonly peer: PeerKey
      readonly statement: PrekeyStatement
      readonly oneTime: OneTimePrekey | null
      /** Why there is no one-time prekey, so that the agreement is of last resort. */
      readonly lastResort: 'none_left' | 'claimed_too_many' | null
    }
  | {
      readonly ok: false
      readonly peer: PeerKey
      readonly code: 'no_prekeys' | 'recipient_unknown' | 'not_allowed' | Extract<PrekeyVerdict, { ok: false }>['code']
    }

/** What a broker accepts in one request. */
const CLAIMS_MAX = 16

/**
 * Claims a signed prekey and at most one one-time prekey for each item of `peers`, in order. A peer may occur several
 * times. `seenMs` returns the newest `issuedAtMs` of a peer so far. If a reply is lost, its keys are wasted.
 * @throws SealpostError `answer_malformed`; `not_found` if the broker is too old; the codes of `HttpAccess.ask`
 * @example const [bob] = await claimPrekeys(access, [key])
 * if (bob?.ok) ratchet.agree({ own, peer }, bob, Date.now())
 */
export async function claimPrekeys(
  access: Pick<HttpAccess, 'ask' | 'meshId'>,
  peers: readonly PeerKey[],
  seenMs: (peer: PeerKey) => Millis = () => 0,
): Promise<PrekeyResult[]> {
  const results: PrekeyResult[] = []
  for (const some of chunksOf([...peers], CLAIMS_MAX)) {
    const reply = await access.ask({ method: 'POST', path: '/v1/prekeys/claim', json: { peers: some } })
    const { claims } = reply.json<{ claims?: readonly ClaimJson[] }>()
    if (claims?.length !== some.length) throw answerMalformed()
    const { meshId } = access
    results.push(...some.map((peer, i) => resultOf(claims[i]!, { meshId, peer, seenMs: seenMs(peer) })))
  }
  return results
}

const REFUSALS = ['no_prekeys', 'recipient_unknown', 'not_allowed']

interface ClaimJson {
  readonly status: 'claimed' | 'last_resort' | 'no_prekeys' | 'recipient_unknown' | 'not_allowed'
  readonly statement?: string
  readonly oneTime?: { readonly id: number; readonly publicKey: string }
  readonly reason?: 'none_left' | 'claimed_too_many'
}

function resultOf(
  { status, statement, oneTime, reason = 'none_left' }: ClaimJson,
  expected: { meshId: MeshId; peer: PeerKey; seenMs: Millis },
): PrekeyResult {
  const { peer } = expected
  if (status !== 'claimed' && status !== 'last_resort') {
    if (!REFUSALS.includes(status)) throw answerMalformed()
    return { ok: false, peer, code: status }
  }
  const verdict = readPrekeyStatement(bytesOf(statement), { ...expected, peerKey: peer, nowMs: Date.now() })
  if (!verdict.ok) return { ok: false, peer, code: verdict.code }
  const found = { ok: true, peer, statement: verdict.statement } as const
  if (status === 'last_resort') return { ...found, oneTime: null, lastResort: reason }
  return { ...found, oneTime: oneTimeOf(oneTime), lastResort: null }
}

/** @throws SealpostError `answer_malformed` */
function oneTimeOf(json: ClaimJson['oneTime']): OneTimePrekey {
  const publicKey = bytesOf(json?.publicKey)
  if (!json || !Number.isInteger(json.id) || json.id < 1 || json.id >= 2 ** 32 || publicKey.length !== 32)
    throw answerMalformed()
  return { id: json.id, publicKey }
}
