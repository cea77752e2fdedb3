/** Tests the directory of prekeys: two peers agree through it, and each one-time prekey is handed out once. */
import { Prekeys, Ratchet, type RatchetParties, sodiumRatchetCrypto } from '@sealpost/identity/ratchet'
import { claimPrekeys, HttpAccess, type HttpOptions, type PrekeyResult, publishPrekeys } from '@sealpost/sdk/prekeys'
import { type PeerKey, toBase64url } from '@sealpost/std'
import { ONE_TIME_PREKEYS_MAX } from '@sealpost/store'
import { test as base, expect } from 'vitest'
import { HttpPeer } from './http.ts'
import { codeOf, keyOf, Member } from './member.ts'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'
import { type Place, World } from './world.ts'

const shared = sharedWorlds()
const test = base.concurrent
const YEAR_MS = 365 * 86_400_000

const correspondent = ({ identity: { signing, box } }: Pick<Place, 'identity'>) => ({
  ...{ peerKey: signing.publicKey, boxKey: box.publicKey, boxEpoch: box.epoch },
})

function newStatement(prekeys: Prekeys, { identity, meshId }: Place, { nowMs = Date.now(), validMs = YEAR_MS } = {}) {
  const terms = { identity, meshId, nowMs, notAfterMs: nowMs + validMs, keepFormerMs: YEAR_MS, hasKem: true }
  return prekeys.rotate(sodiumRatchetCrypto, terms)
}

/** Publishes a signed prekey and `count` one-time prekeys of a member. */
async function publishFor(place: Place, count: number) {
  const prekeys = new Prekeys()
  const access = new HttpAccess(place)
  const statement = newStatement(prekeys, place)
  const oneTime = prekeys.addOneTime(sodiumRatchetCrypto, count)
  const published = await publishPrekeys(access, { statement, oneTime })
  return { prekeys, access, statement, oneTime, published }
}

const idsOf = (results: readonly PrekeyResult[]): number[] =>
  results.flatMap((result) => (result.ok && result.oneTime ? [result.oneTime.id] : []))

test('two peers agree with claimed prekeys, and a ratcheted message travels through the broker', async () => {
  await using world = await shared()
  const [alice, bob] = await Member.enterMany(world, 2)
  const { prekeys, access, published, statement } = await publishFor(bob.place, 1)
  expect(published).toEqual({ oneTimeLeft: 1, lastResorts: 0 })
  const [first, second] = await claimPrekeys(new HttpAccess(alice.place), Array(2).fill(bob.peer.key))
  if (!first?.ok || !second?.ok) throw new Error('there are prekeys')
  expect([first.lastResort, second.lastResort, second.oneTime]).toEqual([null, 'none_left', null])
  expect(await publishPrekeys(access, { statement, oneTime: [] })).toEqual({ oneTimeLeft: 0, lastResorts: 1 })

  const scope = { meshId: world.meshId, priority: 1 }
  const [out, back] = [new Ratchet(scope), new Ratchet(scope)]
  const own = alice.place.identity
  expect(out.agree({ own, peer: correspondent(bob.place) }, first, Date.now())).toEqual(['ratchet_agreed'])
  await alice.peer.send(bob.peer.key, out.seal(new TextEncoder().encode('hello'), Date.now()))
  await until('the message arrives', () => bob.received.length === 1)
  const { identity } = bob.place
  const parties: RatchetParties = {
    own: identity,
    ownBoxes: [identity.box],
    peers: [correspondent(alice.place)],
    prekeys,
  }
  const opened = back.open(bob.received[0]!.body, parties, Date.now())
  if (!opened.ok) throw new Error(opened.code)
  expect(new TextDecoder().decode(opened.text)).toBe('hello')
  expect(opened.news).toEqual(['ratchet_agreed'])
  expect(new Ratchet(scope).agree({ own, peer: correspondent(bob.place) }, second, Date.now())).toContain(
    'ratchet_last_resort',
  )
})

test('concurrent claims at two shards, before and after a crash of one, never get the same key', async () => {
  await using world = await World.open()
  const other = await world.secondShard()
  const bob = await world.enrol()
  const claimers = await world.enrolMany(4)
  const { oneTime, access, statement } = await publishFor({ ...bob, url: other.url }, 40)
  const targets = Array<PeerKey>(3).fill(keyOf(bob))
  const claimAt = (url: string, options?: HttpOptions) =>
    Promise.allSettled(claimers.map((place) => claimPrekeys(new HttpAccess({ ...place, url }, options), targets)))
  const [atFirst, atOther] = await Promise.all([claimAt(world.broker.url), claimAt(other.url)])
  const cut = claimAt(world.broker.url, { patienceMs: 1000 }) // the crash may lose some of these claims
  await world.broker.kill()
  const outcomes = [...atFirst, ...atOther, ...(await cut), ...(await claimAt(other.url))]
  const handed = idsOf(outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? outcome.value : [])))
  expect(new Set(handed).size).toBe(handed.length)
  expect(handed.length).toBeGreaterThanOrEqual(24)
  expect(oneTime.map(({ id }) => id)).toEqual(expect.arrayContaining(handed))
  const { oneTimeLeft } = await publishPrekeys(access, { statement, oneTime }) // repeated after the claims
  expect(oneTimeLeft).toBeLessThanOrEqual(40 - handed.length)
})

test('a claim obeys consent, and names a peer without prekeys and a stranger', async () => {
  await using world = await shared()
  const [bob, eve] = await Member.enterMany(world, 2)
  const stranger = keyOf(await world.enrol(await world.mesh()))
  await publishFor(bob.place, 2)
  const claim = async () =>
    (await claimPrekeys(new HttpAccess(eve.place), [bob.peer.key, eve.peer.key, stranger])).map((result) =>
      result.ok ? 'claimed' : result.code,
    )
  expect(await claim()).toEqual(['claimed', 'no_prekeys', 'recipient_unknown'])
  await bob.peer.updateConsent({ block: [eve.peer.key] })
  expect((await claim())[0]).toBe('not_allowed')
  expect(await claimPrekeys(new HttpAccess(bob.place), [bob.peer.key])).toMatchObject([{ lastResort: null }])
})

test('a statement that is forged, expired, older, or of another mesh, and too many keys are refused', async () => {
  await using world = await shared()
  const [bob, eve] = await world.enrolMany(2)
  const { prekeys, access, statement, oneTime } = await publishFor(bob, ONE_TIME_PREKEYS_MAX)
  const offer = (own: Place, change = {}, keys = oneTime.slice(0, 0)) =>
    codeOf(publishPrekeys(access, { statement: newStatement(new Prekeys(), own, change), oneTime: keys }))
  expect(await offer(eve)).toBe('prekey_forged')
  expect(await offer({ ...bob, meshId: await world.mesh() })).toBe('prekey_forged')
  expect(await offer(bob, { validMs: -1000 })).toBe('prekey_expired')
  expect(await offer(bob, { nowMs: statement.issuedAtMs - 1 })).toBe('prekey_rolled_back')
  const more = prekeys.addOneTime(sodiumRatchetCrypto, 1)
  expect(await codeOf(publishPrekeys(access, { statement, oneTime: more }))).toBe('too_many_prekeys')
  expect(await publishPrekeys(access, { statement, oneTime: more, replaces: true })).toMatchObject({ oneTimeLeft: 1 })
  const late = statement.issuedAtMs + 1
  expect((await claimPrekeys(new HttpAccess(eve), [keyOf(bob)], () => late))[0]).toMatchObject({
    code: 'prekey_rolled_back',
  })
})

test('malformed requests are refused', async () => {
  await using world = await shared()
  const place = await world.enrol()
  const peer = await HttpPeer.enter(place)
  const statement = toBase64url(newStatement(new Prekeys(), place).bytes)
  const key = { id: 1, publicKey: toBase64url(new Uint8Array(32)) }
  const bodies = [
    {},
    { statement: '', oneTime: [] },
    { statement: 'A', oneTime: [] },
    { statement: 'x'.repeat(2049), oneTime: [] },
    { statement, oneTime: [{ ...key, id: 0 }] },
    { statement, oneTime: [{ ...key, id: 2 ** 32 }] },
    { statement, oneTime: [key, key] },
    { statement, oneTime: [{ ...key, publicKey: `${'A'.repeat(42)}B` }] },
    { statement, oneTime: [], unknown: true },
  ]
  for (const body of bodies) expect((await peer.post('/v1/prekeys', body)).body).toEqual({ code: 'body_malformed' })
  for (const peers of [[], ['x'], Array(17).fill(keyOf(place))])
    expect((await peer.post('/v1/prekeys/claim', { peers })).body).toEqual({ code: 'body_malformed' })
  expect((await peer.post('/v1/prekeys', { statement, oneTime: [key] })).body).toEqual({
    oneTimeLeft: 1,
    lastResorts: 0,
  })
})
