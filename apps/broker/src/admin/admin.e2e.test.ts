/** Tests the admin API of a running broker: scopes, views of the mail flow, and the audit log. */

import type { MeshPage, Overview, Quota } from '@sealpost/operator'
import { connect } from '@sealpost/sdk'
import { groupsOf } from '@sealpost/sdk/groups'
import { poolsOf } from '@sealpost/sdk/pools'
import type { MeshId } from '@sealpost/std'
import { addAdminToken, listAudit, type NewAdminToken, revokeAdminToken } from '@sealpost/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ask, post } from '../test/http.ts'
import { keyOf } from '../test/member.ts'
import { WireClient } from '../test/wire.ts'
import { type Place, World } from '../test/world.ts'
import { adminApiRoutes, changeRoutes } from './routes.ts'

let world: World
let sender: Place
beforeAll(async () => {
  world = await World.open()
  sender = await world.enrol()
})
afterAll(() => world[Symbol.asyncDispose]())

const terms = { name: 'night shift', scope: 'operate', meshId: null, ttlSeconds: 3600 } as const
const issue = (other: Partial<NewAdminToken> = {}) => addAdminToken(world.db, { ...terms, ...other })
const bearer = (token: string) => ({ Authorization: `Bearer ${token}` })
const at = (path: string) => `${world.broker.adminUrl}/admin/v1${path}`

async function as(other: Partial<NewAdminToken> = {}) {
  const headers = bearer((await issue(other)).token)
  return {
    get: (path: string) => ask(at(path), { headers }),
    post: (path: string, body: object = {}) => post(at(path), body, headers),
  }
}

async function send(to: Place, texts: readonly string[]): Promise<void> {
  await using peer = await connect(sender)
  for (const text of texts) await peer.send(keyOf(to), text)
}

const age = (minutes: number) =>
  world.db.run(
    (sql) => sql`update message_queue set enqueued_at = enqueued_at - make_interval(mins => ${minutes}::int)`,
  )

const emptyQueue = () => world.db.run((sql) => sql`delete from message_queue`)

test('a request without a valid token is refused', async () => {
  const over = await issue({ ttlSeconds: 0 })
  const revoked = await issue()
  await revokeAdminToken(world.db, revoked.id)
  const forged = `spa_${(await issue()).id}_${'A'.repeat(43)}`
  for (const token of ['', 'spa_x', over.token, revoked.token, forged])
    expect(await ask(at('/overview'), { headers: bearer(token) })).toMatchObject({
      status: 401,
      body: { code: 'token_invalid' },
    })
  expect((await ask(at('/openapi.json'))).body.info.title).toBe('Sealpost admin API')
  expect(world.broker.output).not.toContain('spa_')
})

test('a token has the rights of its scope, in its mesh', async () => {
  const reader = await as({ scope: 'read' })
  expect((await reader.get('/meshes')).status).toBe(200)
  expect(await reader.post('/dead-letters/purge', { all: true })).toMatchObject({
    status: 403,
    body: { code: 'scope_missing' },
  })
  const other = await world.mesh()
  const ofOne = await as({ meshId: world.meshId })
  expect((await ofOne.get(`/meshes/${world.meshId}`)).status).toBe(200)
  await world.db.run(
    (
      sql,
    ) => sql`insert into prepared_send (mesh_id, sender, recipient, priority, envelope_id, expires_at, status, code, decided_at)
      select m.mesh_id, '', '', 1, gen_random_uuid(), now(), 'refused', 'expired', now()
      from unnest(${`{${world.meshId},${other}}`}::uuid[]) as m (mesh_id)`,
  )
  const meshesOf = async (of: typeof ofOne) =>
    (await of.get('/prepared-sends')).body.preparedSends.map(({ meshId }: { meshId: string }) => meshId).sort()
  expect(await meshesOf(ofOne)).toEqual([world.meshId])
  expect(await meshesOf(reader)).toEqual([world.meshId, other].sort())
  expect((await ofOne.get('/dead-letters')).status).toBe(200)
  const elsewhere = ['/dead-letters', '/prepared-sends'].map((path) => `${path}?meshId=${other}`)
  for (const path of ['/overview', '/meshes', `/meshes/${other}`, ...elsewhere])
    expect((await ofOne.get(path)).status, path).toBe(403)
})

test('a page of another origin, an invalid body and an unknown path are refused with their codes', async () => {
  const { token } = await issue()
  const origin = (text: string) => ask(at('/overview'), { headers: { ...bearer(token), Origin: text } })
  expect((await origin('https://evil.example')).body.code).toBe('origin_not_allowed')
  expect((await origin(world.broker.adminUrl)).status).toBe(200)
  const operator = await as()
  expect((await operator.post('/dead-letters/purge', {})).body.code).toBe('body_malformed')
  expect((await operator.get('/meshes/xyz')).body.code).toBe('query_malformed')
  expect((await operator.get(`/meshes/${'0'.repeat(32)}`)).body.code).toBe('not_found')
  expect((await operator.post('/overview')).body.code).toBe('method_not_allowed')
})

test('the overview names the mesh that is behind and the reason; a mesh whose peer is absent counts as waiting', async () => {
  const { get } = await as({ scope: 'read' })
  const bob = await world.enrolAdmin('bob')
  await send(bob, ['one', 'two', 'three'])
  await age(5)
  const seen = async () => {
    const [mesh] = ((await get('/overview')).body as Overview).meshes
    return mesh && `${mesh.flow}: ${mesh.why}`
  }
  await expect.poll(seen).toBe('waiting: bob is offline: 3 messages are waiting, the oldest for 5 min.')
  const socket = await WireClient.enter(bob)
  await expect
    .poll(seen)
    .toBe('behind: bob is connected but does not settle: 3 messages are waiting, the oldest for 5 min.')
  expect((await get('/overview')).body).toMatchObject({ flow: 'behind', causes: [], meshes: [{ sessions: 1 }] })
  expect((await get(`/meshes/${world.meshId}/waiting`)).body.peers).toMatchObject([
    { name: 'bob', depth: 3, unsettled: 3, reason: 'not_settling', status: 'idle', role: 'admin' },
  ])
  expect((await get('/history')).body.samples.length).toBeGreaterThan(0)
  expect((await get('/database')).body.tables.map(({ name }: { name: string }) => name)).toContain('message_queue')
  socket.destroy()
  await emptyQueue()
})

test('a live stream receives the overview repeatedly', async () => {
  const { token } = await issue({ scope: 'read' })
  const gone = new AbortController()
  const answer = await fetch(at('/live'), { headers: bearer(token), signal: gone.signal })
  expect(answer.headers.get('content-type')).toBe('text/event-stream')
  let text = ''
  for await (const chunk of answer.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk
    if (text.split('event: overview\n').length > 2) break
  }
  expect(JSON.parse(/^data: (.*)$/m.exec(text)![1]!)).toMatchObject({ shard: expect.stringMatching(/^[0-9a-f]{32}$/) })
  gone.abort()
})

test('an operator revokes: the session ends, sends are refused, and the audit names the operator', async () => {
  const operator = await as({ name: 'ada of operations' })
  const place = await world.enrol()
  const socket = await WireClient.enter(place)
  const path = `/meshes/${world.meshId}/peers/${keyOf(place)}/revoke`
  expect((await operator.post(path)).body).toEqual({ peers: [keyOf(place)] })
  expect(await socket.closed).toMatchObject({ reason: 'revoked' })
  expect((await operator.post(path)).status).toBe(200) // a second revocation changes nothing
  expect((await operator.post(`/meshes/${world.meshId}/invites/${'ab'.repeat(16)}/revoke`)).status).toBe(204)
  expect((await operator.get(`/meshes/${world.meshId}/invites`)).body.invites).toHaveLength(1)
  const { entries } = (await operator.get(`/audit?meshId=${world.meshId}`)).body
  expect(entries.slice(0, 2)).toMatchObject([
    { actor: 'token:ada of operations', action: 'invite.revoke', subject: 'ab'.repeat(16) },
    { actor: 'token:ada of operations', action: 'peer.revoke', subject: keyOf(place) },
  ])
})

const bury = () =>
  world.db.run(
    (sql) => sql`
      with gone as (delete from message_queue returning *)
      insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, reason, envelope)
      select mesh_id, recipient, id, priority, sender, attempts, 20, envelope_id, enqueued_at, 'strikes', envelope from gone`,
  )

test('dead letters are listed, redriven and purged, with one audit entry per action', async () => {
  const operator = await as({ name: 'undertaker' })
  await emptyQueue()
  const place = await world.enrol()
  await send(place, ['one', 'two'])
  await bury()
  const { deadLetters } = (await operator.get('/dead-letters?reason=strikes')).body
  expect(deadLetters).toMatchObject([{ recipient: keyOf(place), reason: 'strikes', strikes: 20 }, {}])
  const ids = [deadLetters[0].id]
  expect((await operator.post('/dead-letters/redrive', { ids: [...ids, 7] })).body).toEqual({
    ...{ redriven: 1, left: 0 },
    refused: [{ id: 7, reason: 'unknown' }],
  })
  expect((await operator.post('/dead-letters/purge', { all: true, reason: 'strikes' })).body).toEqual({ purged: 1 })
  expect([await world.count('message_queue'), await world.count('dead_letter')]).toEqual([1, 0])
  const entries = await listAudit(world.db, { meshId: world.meshId as MeshId, limit: 2 })
  expect(entries).toMatchObject([
    { actor: 'token:undertaker', action: 'dead_letters.purge', count: 1 },
    { actor: 'token:undertaker', action: 'dead_letters.redrive', count: 1 },
  ])
})

test('no request changes anything without an audit entry', async () => {
  const operator = await as({ name: 'auditor' })
  const place = await world.enrol()
  await send(place, ['one', 'two'])
  await bury()
  const { deadLetters } = (await operator.get('/dead-letters')).body
  const given: Record<string, readonly [path: string, body?: object]> = {
    '/dead-letters/redrive': ['/dead-letters/redrive', { ids: [deadLetters[0].id] }],
    '/dead-letters/purge': ['/dead-letters/purge', { all: true }],
    '/meshes/{meshId}/peers/{peerKey}/revoke': [`/meshes/${world.meshId}/peers/${keyOf(place)}/revoke`],
    '/meshes/{meshId}/invites/{inviteId}/revoke': [`/meshes/${world.meshId}/invites/${'cd'.repeat(16)}/revoke`],
  }
  const linesOf = async () => (await operator.get('/audit?limit=1000')).body.entries as { actor: string }[]
  const changes = adminApiRoutes.filter(({ method }) => (method as string) !== 'get')
  expect(changes).toEqual(changeRoutes)
  expect(changes.map(({ path }) => path.replace('/admin/v1', '')).sort()).toEqual(Object.keys(given).sort())
  for (const [path, [asked, body]] of Object.entries(given)) {
    const before = await linesOf()
    expect((await operator.post(asked, body)).status, path).toBeLessThan(300)
    const lines = await linesOf()
    expect([lines.length - before.length, lines[0]?.actor], path).toEqual([1, 'token:auditor'])
  }
})

test('the mesh list starts with meshes that need attention, and contains every mesh once', async () => {
  const { get } = await as({ scope: 'read' })
  await world.db.run((sql) => sql`delete from dead_letter`)
  await emptyQueue()
  const [quiet, grave] = [await world.mesh(), await world.mesh()]
  await send(await world.enrol(), ['one'])
  const [early, late] = [await world.enrol(grave), await world.enrol(grave)]
  await using peer = await connect(early)
  await peer.send(keyOf(late), 'given up')
  await world.db.run(
    (sql) => sql`
      with gone as (delete from message_queue where mesh_id = ${grave}::uuid returning *)
      insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, reason)
      select mesh_id, recipient, id, priority, sender, 1, 0, envelope_id, enqueued_at, 'expired' from gone`,
  )
  await age(5)
  const page = async (query: string) => (await get(`/meshes?${query}`)).body as MeshPage
  const idsOf = ({ meshes }: MeshPage) => meshes.map(({ meshId }) => meshId)
  // Wait until the census has counted everything, including dead letters.
  await expect
    .poll(async () => (await page('limit=2')).meshes, { timeout: 60_000 })
    .toMatchObject([
      {
        meshId: grave,
        deadLetters: 1,
        why: expect.stringMatching(/^No messages are waiting\. 1 dead letter, \d+ \w+ ago\.$/),
      },
      { meshId: world.meshId, depth: 1, flow: 'waiting' },
    ])
  const walked: string[] = []
  for (let after = ''; ; ) {
    const { meshes, next } = await page(`limit=2${after}`)
    walked.push(...meshes.map(({ meshId }) => meshId))
    if (next === null) break
    after = `&after=${next}`
  }
  const byId = idsOf(await page('limit=200&order=id'))
  expect([...walked].sort()).toEqual(byId)
  expect(byId).toContain(quiet)
  expect((await get(`/meshes/${quiet}/kept`)).body).toEqual({
    spaces: [],
    attachments: { files: 0, bytes: 0, unfinished: 0 },
  })
  await emptyQueue()
})

test('each quota of a mesh is shown with its limit, its use, and its largest user', async () => {
  const operator = await as()
  const recipient = await world.enrol()
  await emptyQueue()
  await send(recipient, ['1', '2', '3'])
  const other = await world.enrol()
  await using owner = await connect(other)
  await poolsOf(owner).create('work', [keyOf(recipient)])
  await groupsOf(owner).create('crew', [keyOf(recipient)])
  await owner.send(keyOf(recipient), 'x'.repeat(20_000))
  await world.db.run(
    (sql) => sql`
      insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, reason, envelope)
      select mesh_id, recipient, -id, priority, sender, 1, 0, envelope_id, enqueued_at, 'expired', envelope
      from message_queue where mesh_id = ${world.meshId}::uuid order by octet_length(envelope) desc limit 1`,
  )
  const quotas = async () => (await operator.get(`/meshes/${world.meshId}/quotas`)).body.quotas as Quota[]
  const find = async (name: string) => (await quotas()).find((quota) => quota.name === name)!
  // Wait until the census has counted the mesh.
  await expect.poll(async () => (await find('mailbox_deliveries')).used, { timeout: 60_000 }).toBe(4)
  const shown = Object.fromEntries((await quotas()).map(({ name, ...quota }) => [name, quota]))
  const [many, large] = [keyOf(sender), keyOf(other)]
  expect(shown).toMatchObject({
    mailbox_deliveries: { peerKey: keyOf(recipient), max: null, setting: 'MAILBOX_MAX' }, // the test broker runs with LIMITS=off
    mailbox_sender_deliveries: { used: 3, peerKey: many },
    mailbox_sender_bytes: { used: expect.any(Number), peerKey: large },
    mesh_deliveries: { used: 5, peerKey: null, setting: 'MESH_MAX' },
    mesh_bytes: { setting: 'MESH_BYTES_MAX' },
    mesh_sender_deliveries: { used: 3, peerKey: many },
    mesh_sender_bytes: { peerKey: large },
    mailbox_bytes: { peerKey: keyOf(recipient) },
    dead_letter_bytes: { max: 8 * 1024 * 1024, peerKey: large },
    dead_letters: { used: 1, max: 1000, peerKey: large },
    groups: { used: 1, max: 100, peerKey: large },
    pools: { used: 1, max: 100, peerKey: large },
    members: { used: expect.any(Number), setting: 'MEMBERS_MAX' },
  })
  expect(shown.mesh_sender_bytes!.used).toBeGreaterThan(40_000) // the count includes the dead letter
  const limited = await world.secondShard({ LIMITS: 'on', MAILBOX_MAX: '7' })
  const { token } = await issue()
  const there = await ask(`${limited.adminUrl}/admin/v1/meshes/${world.meshId}/quotas`, { headers: bearer(token) })
  expect(there.body.quotas).toContainEqual(expect.objectContaining({ name: 'mailbox_deliveries', max: 7 }))
  await limited.kill()
  expect((await operator.get(`/meshes/${'0'.repeat(32)}/quotas`)).status).toBe(404)
  await emptyQueue()
})
