/** Tests groups over HTTP, with the same limits and codes as on a socket. */
import {
  createGroup,
  endGroup,
  type GroupStatement,
  readGroup,
  type SealedBody,
  Sealer,
  sealBody,
  sealEnvelope,
} from '@sealpost/identity'
import { connect } from '@sealpost/sdk'
import type { EnvelopeId, GroupId, PeerKey } from '@sealpost/std'
import { test as base, describe, expect } from 'vitest'
import { ask, envelopeJson, HttpPeer, httpUrl } from './http.ts'
import { keyOf } from './member.ts'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'
import { envelopeTo, randomHex, WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

const shared = sharedWorlds()

/** Tests mostly wait, so they run concurrently. */
const test = base.concurrent

const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url')

/** Sends statements over a peer's socket and closes it. */
async function say(place: Place, ...statements: readonly GroupStatement[]): Promise<void> {
  const client = await WireClient.enter(place)
  for (const { bytes: statement } of statements) {
    client.send({ type: 'setGroup', ref: 1, statement })
    expect(await client.next('groupSet')).toMatchObject({ outcome: 'done' })
  }
  client.destroy()
}

function crewOf(owner: Place, members: readonly Place[], name = 'crew'): GroupStatement {
  return createGroup(owner.identity.signing, { meshId: owner.meshId, name, members: [owner, ...members].map(keyOf) })
}

const groups = (peer: HttpPeer, place: Place, query = '') =>
  ask(`${httpUrl(place)}/v1/groups${query}`, { headers: peer.headers })

const jsonOf = ({ groupId, epoch, owner, name, members, bytes }: GroupStatement) => ({
  ...{ group: groupId, epoch, owner, name, members },
  statement: base64url(bytes),
})

/** Returns a broadcast of random bytes. */
function broadcastTo(to: readonly Place[], changed: Record<string, unknown> = {}) {
  const envelopes = to.map((place) => envelopeJson(envelopeTo(place)))
  return { bodyId: randomHex(32), body: base64url(crypto.getRandomValues(new Uint8Array(60))), envelopes, ...changed }
}

describe('a broadcast by HTTP', () => {
  test('is stored once, opens for the members, and is recognized as a duplicate when resent', async () => {
    await using world = await shared()
    const [ann, bob, cat] = await world.enrolMany(3)
    await say(ann, crewOf(ann, [bob, cat]))
    const sender = await HttpPeer.enter(ann)
    const [group] = (await groups(sender, ann)).body.groups
    const others = group.members.filter((member: PeerKey) => member !== keyOf(ann))
    const { body: directory } = await sender.post('/v1/lookup', { peers: others })
    const body = sealBody(new TextEncoder().encode('from cron'))
    const envelopes = directory.bindings.map((binding: Binding) => sealedTicket(ann, binding, { group, body }))
    const broadcast = {
      ...{ group: group.group, rosterEpoch: group.epoch, bodyId: body.bodyId, body: base64url(body.bytes), envelopes },
      terms: { receipts: 'end' },
    }
    const { status, body: sent } = await sender.post('/v1/broadcast', broadcast)
    const results = (status: string) => envelopes.map(({ envelopeId }: Named) => ({ envelopeId, status }))
    expect([status, sent.results]).toEqual([200, results('stored')])
    expect([await world.count('shared_body'), await world.count('message_queue')]).toEqual([1, 2])
    expect((await sender.post('/v1/broadcast', broadcast)).body.results).toEqual(results('duplicate'))
    for (const place of [bob, cat]) {
      const texts: [string, string | undefined][] = []
      const member = await connect(place)
      member.onMessage((message) => void texts.push([message.text(), message.group?.name]))
      await until('it came', () => texts.length > 0)
      expect(texts).toEqual([['from cron', 'crew']])
      await member.close()
    }
    const receipts: unknown[] = []
    while (receipts.length < 2) receipts.push(...(await sender.inbox('waitSeconds=20')).body.receipts)
    expect(receipts).toMatchObject([{ event: 'settled' }, { event: 'settled' }])
  })

  test('gets one result per envelope, with the codes of a nack', async () => {
    await using world = await World.open({ ENVELOPE_BYTES_MAX: '1000' })
    const [ann, bob, stranger] = [await world.enrol(), await world.enrol(), await world.enrol(await world.mesh())]
    const first = crewOf(ann, [bob])
    await say(ann, first)
    const sender = await HttpPeer.enter(ann)
    const codes = async (fields: Record<string, unknown>) =>
      (await sender.post('/v1/broadcast', fields)).body.results.map(({ code = '' }) => code)
    const roster = (group: GroupStatement, rosterEpoch = 1) => ({ group: group.groupId, rosterEpoch })
    expect(await codes(broadcastTo([bob, stranger], roster(first)))).toEqual(['', 'unknown_recipient'])
    expect(await codes(broadcastTo([bob], roster(first, 0)))).toEqual(['stale_roster'])
    expect(await codes(broadcastTo([bob], roster(crewOf(ann, [bob]))))).toEqual(['unknown_group'])
    expect(await codes(broadcastTo([bob], { body: base64url(new Uint8Array(1001)) }))).toEqual(['envelope_too_large'])
    await say(ann, endGroup(ann.identity.signing, first))
    expect(await codes(broadcastTo([bob], roster(first)))).toEqual(['unknown_group'])
  })

  test('is rate-limited per peer, and each envelope counts', async () => {
    await using world = await World.open({ LIMITS: 'on', RATE_PER_SECOND: '1', RATE_BURST: '8' })
    const [ann, bob] = await world.enrolMany(2)
    const sender = await HttpPeer.enter(ann)
    const { results } = (await sender.post('/v1/broadcast', broadcastTo(Array.from({ length: 200 }, () => bob)))).body
    const refused = results.filter(({ status }: { status: string }) => status === 'refused')
    expect(refused.length).toBeGreaterThan(100)
    expect(refused[0]).toMatchObject({ code: 'rate_limited', retryAfterMs: expect.any(Number) })
  })

  test('that is malformed is refused as a whole', async () => {
    await using world = await shared()
    const [ann, bob] = await world.enrolMany(2)
    const sender = await HttpPeer.enter(ann)
    const good = broadcastTo([bob])
    const [envelope] = good.envelopes
    const flaws: Record<string, unknown>[] = [
      { envelopes: [] },
      { envelopes: [envelope, envelope] },
      { envelopes: [{ ...envelope, isHead: true }] },
      { envelopes: [{ ...envelope, terms: {} }] },
      { envelopes: Array.from({ length: 257 }, () => envelopeJson(envelopeTo(bob))) },
      { body: 'AAAA' },
      { bodyId: undefined },
      { group: 'all' },
      { terms: { notBeforeMs: 1 } },
      { terms: [] },
      { canary7f3a: 1 },
    ]
    for (const flaw of flaws)
      expect(await sender.post('/v1/broadcast', { ...good, ...flaw }), JSON.stringify(flaw).slice(0, 99)).toMatchObject(
        { status: 400, body: { code: 'body_malformed' } },
      )
    expect(await ask(`${httpUrl(ann)}/v1/broadcast`, { method: 'POST' })).toMatchObject({
      status: 401,
      body: { code: 'token_invalid' },
    })
    expect(await world.count('message_queue')).toBe(0)
    expect((await sender.post('/v1/broadcast', good)).body.results).toMatchObject([{ status: 'stored' }])
  })
})

describe("the list of a peer's groups", () => {
  test('contains its own groups and those it belongs to in pages, and no deleted groups', async () => {
    await using world = await shared()
    const [ann, bob, cat] = await world.enrolMany(3)
    const ownOnly = createGroup(ann.identity.signing, { meshId: world.meshId, name: 'others', members: [keyOf(cat)] })
    const named = Array.from({ length: 18 }, (_, n) => crewOf(ann, [bob], `crew ${n}`))
    await say(ann, ownOnly, ...named, endGroup(ann.identity.signing, named[0]!))
    const going = named.slice(1).sort((a, b) => (a.groupId < b.groupId ? -1 : 1))
    const reader = await HttpPeer.enter(bob)
    const first = await groups(reader, bob)
    expect(first).toMatchObject({ status: 200, body: { isLast: false } })
    const second = await groups(reader, bob, `?after=${first.body.groups.at(-1).group}`)
    expect(second.body.isLast).toBe(true)
    expect([...first.body.groups, ...second.body.groups]).toEqual(going.map(jsonOf))
    expect(readGroup(new Uint8Array(Buffer.from(first.body.groups[0].statement, 'base64url')))).toEqual(going[0])
    expect((await groups(await HttpPeer.enter(cat), cat)).body).toEqual({ groups: [jsonOf(ownOnly)], isLast: true })
    expect((await groups(await HttpPeer.enter(ann), ann, `?after=${'f'.repeat(32)}`)).body.groups).toEqual([])
    expect(await groups(reader, bob, '?after=first')).toMatchObject({ status: 400, body: { code: 'query_malformed' } })
  })

  test('can be queried by id for any other group of the mesh', async () => {
    await using world = await shared()
    const [ann, bob] = await world.enrolMany(2)
    const [crew, over, elsewhere] = [crewOf(ann, [bob]), crewOf(ann, [bob]), randomHex(16) as GroupId]
    await say(ann, crew, over, endGroup(ann.identity.signing, over))
    const reader = await HttpPeer.enter(await world.enrol())
    const lookup = (...ids: string[]) => reader.post('/v1/rosters', { groups: ids })
    const { body } = await lookup(elsewhere, crew.groupId, over.groupId)
    expect(body).toEqual({ groups: [jsonOf(crew)], unknown: [elsewhere, over.groupId] })
    const malformed = { status: 400, body: { code: 'body_malformed' } }
    expect(await lookup()).toMatchObject(malformed)
    expect(await lookup(...Array.from({ length: 17 }, () => randomHex(16)))).toMatchObject(malformed)
    const stranger = await HttpPeer.enter(await world.enrol(await world.mesh()))
    expect((await stranger.post('/v1/rosters', { groups: [crew.groupId] })).body).toMatchObject({ groups: [] })
  })
})

interface Named {
  readonly envelopeId: string
}
interface Binding {
  readonly peer: PeerKey
  readonly boxKey: string
  readonly boxEpoch: number
}

/** Returns a member's envelope in JSON. */
function sealedTicket(
  { identity, meshId }: Place,
  { peer, boxKey, boxEpoch }: Binding,
  { group, body }: { group: { group: GroupId; epoch: number }; body: SealedBody },
) {
  const envelopeId = randomHex(16) as EnvelopeId
  const envelope = sealEnvelope(new Sealer({ identity, meshId }), {
    to: { peerKey: peer, boxKey: new Uint8Array(Buffer.from(boxKey, 'base64url')), boxEpoch },
    envelopeId,
    stream: null,
    sentAtMs: Date.now(),
    note: { group: group.group, groupEpoch: group.epoch },
    body: body.ticket,
  })
  return { envelopeId, recipient: peer, envelope: base64url(envelope) }
}
