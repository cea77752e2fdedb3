import { generateIdentity, ready } from '@sealpost/identity'
import { Prekeys, sodiumRatchetCrypto } from '@sealpost/identity/ratchet'
import { type MeshId, toBase64url } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import type { HttpAnswer, HttpAsk } from '../http/access.ts'
import { claimPrekeys } from './prekeys.ts'

beforeAll(ready)

const meshId = 'a0'.repeat(16) as MeshId

/** A broker that replies to each request with these claims. */
const brokerOf = (answer: unknown) => ({
  meshId,
  asked: [] as unknown[],
  async ask({ json }: HttpAsk): Promise<HttpAnswer> {
    this.asked.push(json)
    return { bytes: new Uint8Array(), json: <T>() => answer as T }
  },
})

function newPeer(nowMs = Date.now()) {
  const identity = generateIdentity()
  const prekeys = new Prekeys()
  const terms = { identity, meshId, nowMs, notAfterMs: nowMs + 60_000, keepFormerMs: 0, hasKem: false }
  const statement = prekeys.rotate(sodiumRatchetCrypto, terms)
  const [oneTime] = prekeys.addOneTime(sodiumRatchetCrypto, 1)
  const claim = {
    status: 'claimed',
    statement: toBase64url(statement.bytes),
    oneTime: { id: oneTime!.id, publicKey: toBase64url(oneTime!.publicKey) },
  }
  return { key: identity.signing.publicKey, statement, oneTime, claim }
}

test('a claim has the statement that the peer has signed, and the one-time prekey', async () => {
  const { key, statement, oneTime, claim } = newPeer()
  const ok = { ok: true, peer: key, statement, oneTime, lastResort: null }
  expect(await claimPrekeys(brokerOf({ claims: [claim] }), [key])).toEqual([ok])
  const { oneTime: _, ...rest } = claim
  const alone = { ...rest, status: 'last_resort', reason: 'claimed_too_many' }
  expect(await claimPrekeys(brokerOf({ claims: [alone] }), [key])).toEqual([
    { ...ok, oneTime: null, lastResort: 'claimed_too_many' },
  ])
})

test('a broker that returns the prekey of another peer, an old one, or an expired one is refused', async () => {
  const [bob, eve, old] = [newPeer(), newPeer(), newPeer(Date.now() - 120_000)]
  const claimed = async (peer: typeof bob, claim: object, seenMs = 0) =>
    (await claimPrekeys(brokerOf({ claims: [claim] }), [peer.key], () => seenMs))[0]
  expect(await claimed(bob, eve.claim)).toEqual({ ok: false, peer: bob.key, code: 'prekey_forged' })
  expect(await claimed(bob, bob.claim, bob.statement.issuedAtMs + 1)).toMatchObject({ code: 'prekey_rolled_back' })
  expect(await claimed(old, old.claim)).toMatchObject({ code: 'prekey_expired' })
  expect(await claimed(bob, { status: 'not_allowed' })).toEqual({ ok: false, peer: bob.key, code: 'not_allowed' })
})

test('a malformed reply is refused', async () => {
  const { key, claim } = newPeer()
  const malformed = [
    {},
    { claims: [] },
    { claims: [claim, claim] },
    { claims: [{ status: 'maybe' }] },
    { claims: [{ ...claim, statement: undefined }] },
    { claims: [{ ...claim, oneTime: undefined }] },
    { claims: [{ ...claim, oneTime: { id: 0, publicKey: claim.oneTime.publicKey } }] },
    { claims: [{ ...claim, oneTime: { id: 1, publicKey: 'AAAA' } }] },
  ]
  for (const answer of malformed)
    await expect(claimPrekeys(brokerOf(answer), [key])).rejects.toMatchObject({ code: 'answer_malformed' })
})

test('many peers are asked for in several requests', async () => {
  const { key, claim } = newPeer()
  const broker = brokerOf({ claims: Array(16).fill(claim) })
  expect(await claimPrekeys(broker, Array(32).fill(key))).toHaveLength(32)
  expect(broker.asked).toEqual(Array(2).fill({ peers: Array(16).fill(key) }))
})
