/** Tests spaces over HTTP, with writes by compare-and-set on any shard. */
import {
  createGroup,
  type EntryDraft,
  type EntryKeys,
  NO_ENTRY,
  newSpaceKey,
  type SignedEntry,
  type SpaceFields,
  sealEntry,
  signSpace,
} from '@sealpost/identity'
import { fromBase64url, type GroupId, type MeshId, toBase64url } from '@sealpost/std'
import { test as base, describe, expect } from 'vitest'
import { type Answer, ask, HttpPeer, httpUrl, post } from '../test/http.ts'
import { keyOf } from '../test/member.ts'
import { sharedWorlds } from '../test/shared-worlds.ts'
import { randomHex, WireClient } from '../test/wire.ts'
import { type Place, World } from '../test/world.ts'

const shared = sharedWorlds()

/** Tests have their own brokers and mostly wait, so they run concurrently. */
const test = base.concurrent

const KEYS: EntryKeys = { nameKey: new Uint8Array(32).fill(1), spaceKey: new Uint8Array(32).fill(2) }

function statement(owner: Place, changes: Partial<SpaceFields> = {}) {
  const { bytes } = signSpace(owner.identity.signing, {
    meshId: owner.meshId,
    spaceId: owner.meshId,
    owner: keyOf(owner),
    epoch: 1,
    historyFor: 'all',
    keepSeconds: 86_400,
    keepBytes: 2 ** 30,
    keepsMessages: true,
    ...changes,
  })
  return { statement: toBase64url(bytes) }
}

/** A member and its requests about one space. */
class SpaceMember {
  readonly place: Place
  private readonly peer: HttpPeer
  private readonly base: string

  private constructor(place: Place, peer: HttpPeer, space: MeshId | GroupId) {
    this.place = place
    this.peer = peer
    this.base = `${httpUrl(place)}/v1/meshes/${place.meshId}/spaces/${space}`
  }

  static async enter(place: Place, space: MeshId | GroupId = place.meshId): Promise<SpaceMember> {
    return new SpaceMember(place, await HttpPeer.enter(place), space)
  }

  do(method: string, path = '', body?: unknown): Promise<Answer> {
    const headers = { ...this.peer.headers, ...(body !== undefined && { 'Content-Type': 'application/json' }) }
    return ask(this.base + path, { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) })
  }

  entry(key: string, revision: number, changes: Partial<EntryDraft> = {}): SignedEntry {
    const draft = {
      ...{ meshId: this.place.meshId, spaceId: this.place.meshId, keyEpoch: 1, key, revision, sentAtMs: 5 },
      ...{ value: new TextEncoder().encode(`${key} ${revision}`), prevHash: NO_ENTRY },
    }
    return sealEntry(this.place.identity.signing, { ...draft, ...changes }, KEYS)
  }

  write(...entries: readonly SignedEntry[]): Promise<Answer> {
    return this.do('POST', '/entries', { entries: entries.map(({ bytes }) => toBase64url(bytes)) })
  }

  grant(keyEpoch: number, expects: number, ...places: readonly Place[]): Promise<Answer> {
    const grants = places.map((place) => ({ peer: keyOf(place), box: toBase64url(newSpaceKey()) }))
    return this.do('POST', '/grants', { keyEpoch, expects, grants })
  }
}

const outcomes = ({ body }: Answer) => body.outcomes?.map(({ outcome }: { outcome: string }) => outcome) ?? body

describe('a space over HTTP', () => {
  test('is created by an admin, written by members on two shards, and read back', async () => {
    await using world = await World.open()
    const [owner, bob] = [await world.enrolAdmin('ann'), await world.enrol()]
    const [ann, member] = [await SpaceMember.enter(owner), await SpaceMember.enter(bob)]
    expect(await member.do('GET')).toMatchObject({ status: 404, body: { code: 'space_unknown' } })
    expect(await member.do('PUT', '', statement(bob))).toMatchObject({ status: 403, body: { code: 'not_owner' } })
    expect(await ann.do('PUT', '', statement(owner))).toMatchObject({ status: 200, body: { epoch: 1 } })
    expect(await ann.do('PUT', '', statement(owner, { keepSeconds: 9 }))).toMatchObject({
      status: 409,
      body: { code: 'stale_epoch' },
    })
    expect(await ann.grant(1, 0, owner, bob)).toMatchObject({ status: 200, body: { keyEpoch: 1 } })
    expect(await member.grant(1, 0, bob)).toMatchObject({ status: 409, body: { code: 'stale_epoch', keyEpoch: 1 } })
    const first = ann.entry('a', 1)
    const { body } = await ann.write(first)
    expect(body.outcomes).toEqual([{ outcome: 'done', seq: 1, at: expect.stringMatching(/^20\d\d-.*T.*\.\d{6}Z$/) }])
    const there = await SpaceMember.enter({ ...bob, url: (await world.secondShard()).url })
    expect(outcomes(await there.write(there.entry('a', 2, { prevHash: first.hash }), there.entry('b', 1)))).toEqual([
      'done',
      'done',
    ])
    const conflict = await ann.write(ann.entry('b', 1), ann.entry('c', 1, { keyEpoch: 2 }))
    expect(outcomes(conflict)).toEqual(['conflict', 'stale_key_epoch'])
    expect(fromBase64url(conflict.body.outcomes[0].entry).length).toBeGreaterThan(200)
    const { body: space } = await member.do('GET')
    expect(space).toMatchObject({
      ...statement(owner),
      keyEpoch: 1,
      lastSeq: 3,
      entries: 2,
      memberCount: 2,
      departed: 0,
      lacking: [],
    })
    expect(space.grants).toEqual([{ keyEpoch: 1, granter: keyOf(owner), box: expect.any(String) }])
    expect(await member.do('DELETE', '/grants/1')).toMatchObject({ status: 204 })
    expect((await member.do('GET')).body.grants).toEqual([])
    expect((await member.do('GET', '/members')).body).toMatchObject({
      members: [{ keyEpoch: 1 }, { keyEpoch: 1 }],
      isLast: true,
    })
  })

  test('of a group is hidden from peers outside the group, as if it did not exist', async () => {
    await using world = await shared()
    const [ann, bob, cat] = await world.enrolMany(3)
    const stranger = await world.enrol(await world.mesh())
    const group = createGroup(ann.identity.signing, {
      meshId: ann.meshId,
      name: 'crew',
      members: [keyOf(ann), keyOf(bob)],
    })
    const client = await WireClient.enter(ann)
    client.send({ type: 'setGroup', ref: 1, statement: group.bytes })
    expect(await client.next('groupSet')).toMatchObject({ outcome: 'done' })
    client.destroy()
    const { groupId } = group
    const owner = await SpaceMember.enter(ann, groupId)
    expect((await owner.do('PUT', '', statement(ann, { spaceId: groupId }))).status).toBe(200)
    await owner.grant(1, 0, ann, bob)
    expect((await (await SpaceMember.enter(bob, groupId)).do('GET')).body).toMatchObject({
      keyEpoch: 1,
      memberCount: 2,
    })
    const outsider = await SpaceMember.enter(cat, groupId)
    const foreign = await SpaceMember.enter({ ...stranger, meshId: ann.meshId }, groupId).catch(() => null)
    expect(foreign).toBeNull()
    const answers = [
      await outsider.do('GET'),
      await outsider.do('GET', '/members'),
      await outsider.do('DELETE', '/grants/1'),
      await outsider.grant(2, 1, cat),
      await outsider.write(outsider.entry('a', 1, { spaceId: groupId })),
      await (await SpaceMember.enter(cat, randomHex(16) as GroupId)).do('GET'),
    ]
    for (const answer of answers) expect(answer).toMatchObject({ status: 404, body: { code: 'space_unknown' } })
    expect(await outsider.do('PUT', '', statement(cat, { spaceId: groupId }))).toMatchObject({ status: 403 })
  })

  test('has limits for writes, each with its own response', async () => {
    const limits = {
      STATE_ENTRIES_MAX: '2',
      STATE_ENTRY_BYTES_MAX: '1000',
      STATE_WRITES_PER_SECOND: '1',
      STATE_WRITES_BURST: '8',
    }
    await using world = await World.open({ LIMITS: 'on', ...limits })
    const [owner, bob] = [await world.enrolAdmin('ann'), await world.enrol()]
    const [ann, member] = [await SpaceMember.enter(owner), await SpaceMember.enter(bob)]
    await ann.do('PUT', '', statement(owner))
    await ann.grant(1, 0, owner)
    const entries = [
      ann.entry('a', 1),
      ann.entry('b', 1),
      ann.entry('c', 1),
      ann.entry('large', 1, { value: new Uint8Array(1000) }),
      member.entry('of another author', 1),
      ann.entry('of another space', 1, { spaceId: randomHex(16) as GroupId }),
      ann.entry('of another mesh', 1, { meshId: randomHex(16) as MeshId }),
      { ...ann.entry('changed', 1), bytes: ann.entry('changed', 1).bytes.with(-1, 0).with(-2, 0) },
    ]
    const malformed = Array(4).fill('malformed')
    expect(outcomes(await ann.write(...entries))).toEqual(['done', 'done', 'quota', 'too_large', ...malformed])
    expect(await ann.write(...entries)).toMatchObject({ status: 429, body: { code: 'rate_limited' } })
    expect((await ann.do('GET')).body).toMatchObject({ lastSeq: 2, entries: 2 })
  })

  test('refuses malformed requests as a whole', async () => {
    await using world = await shared()
    const owner = await world.enrolAdmin('ann')
    const ann = await SpaceMember.enter(owner)
    await ann.do('PUT', '', statement(owner))
    const grants = [{ peer: keyOf(owner), box: 'AAAA' }]
    const flaws: [method: string, path: string, body: unknown][] = [
      ['PUT', '', {}],
      ['PUT', '', { statement: 'AAA' }],
      ['PUT', '', { statement: 'canary7f3a!' }],
      ['PUT', '', { ...statement(owner), more: 1 }],
      ['PUT', '', statement(owner, { spaceId: randomHex(16) as GroupId })],
      ['PUT', '', statement(owner, { meshId: randomHex(16) as MeshId })],
      ['POST', '/entries', { entries: [] }],
      ['POST', '/entries', { entries: Array(257).fill('AAAA') }],
      ['POST', '/entries', { entries: ['A'] }],
      ['POST', '/entries', { entries: [1] }],
      ['POST', '/grants', { keyEpoch: 2, expects: 0, grants }],
      ['POST', '/grants', { keyEpoch: 0, expects: 0, grants }],
      ['POST', '/grants', { keyEpoch: 2 ** 31, expects: 2 ** 31, grants }],
      ['POST', '/grants', { keyEpoch: 1, expects: 0, grants: [{ peer: 'ann', box: 'AAAA' }] }],
      ['POST', '/grants', { keyEpoch: 1, expects: 0, grants: [{ ...grants[0], box: '=' }] }],
    ]
    for (const [method, path, body] of flaws)
      expect(await ann.do(method, path, body), `${method} ${path} ${JSON.stringify(body).slice(0, 99)}`).toMatchObject({
        status: 400,
        body: { code: 'body_malformed' },
      })
    expect(await ann.do('GET', '/members?after=first')).toMatchObject({
      status: 400,
      body: { code: 'query_malformed' },
    })
    expect(await ann.do('DELETE', '/grants/1?replace=yes')).toMatchObject({ status: 400 })
    for (const path of ['/grants/0', '/grants/1.5', '/grants/4294967296', '/nothing'])
      expect(await ann.do('DELETE', path), path).toMatchObject({ status: 404, body: { code: 'not_found' } })
    expect(await ann.do('POST')).toMatchObject({ status: 405, body: { code: 'method_not_allowed' } })
    expect((await ann.do('PATCH')).headers.get('allow')).toBe('PUT, GET')
    const url = `${httpUrl(owner)}/v1/meshes/${owner.meshId}/spaces/${owner.meshId}`
    expect(await post(`${url}/entries`, { entries: ['AAAA'] })).toMatchObject({
      status: 401,
      body: { code: 'token_invalid' },
    })
    expect((await ann.do('GET')).body).toMatchObject({ lastSeq: 0, keyEpoch: 0 })
  })
})
