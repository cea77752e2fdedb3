/**
 * Tests P10 and the logs. Plants secrets in every input of a broker, then searches its output and database, and for
 * secrets that it must never hold, its memory.
 */

import { randomUUID } from 'node:crypto'
import { createInvite, generateBoxKeys, generateIdentity, readInvite } from '@sealpost/identity'
import { clientForms } from '@sealpost/protocol'
import { connect, type Peer } from '@sealpost/sdk'
import { groupsOf } from '@sealpost/sdk/groups'
import { join } from '@sealpost/sdk/join'
import { fromHex } from '@sealpost/std'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  bytesCanary,
  CAN_READ_MEMORY,
  type Canary,
  databaseText,
  foundIn,
  foundInMemory,
  roleWithPassword,
  textCanary,
} from './canary.ts'
import { HttpPeer, httpUrl, tokenInMesh } from './http.ts'
import { until } from './process.ts'
import { SpanReceiver } from './receiver.ts'
import { envelopeTo, WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

const mark = (name: string) => `${name}-${randomUUID()}`
const secrets = {
  body: mark('body'),
  groupBody: mark('group-body'),
  ephemeral: mark('ephemeral'),
  password: mark('password').replaceAll('-', ''),
  garbage: mark('garbage'),
}
/** Strings that the broker stores unencrypted, which show that the searches work. */
const open = { summary: mark('summary'), group: mark('group') }

let world: World
let receiver: SpanReceiver
let places: Place[]
/** Secrets that the broker must never hold: sealed contents and sealing keys. */
const sealed: Canary[] = []
/** Secrets that the broker must hold for a while, but never log or store. */
const passing: Canary[] = []
let answers = ''

beforeAll(async () => {
  receiver = await SpanReceiver.open()
  const env = { LOG_LEVEL: 'debug', OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url }
  world = await World.open(env, await roleWithPassword(secrets.password))
  places = [await world.enrolAdmin('admin'), await world.enrol(), await world.enrol()]
  const [alicePlace, bobPlace, absent] = places as [Place, Place, Place]
  const [alice, bob] = [await connect(alicePlace), await connect({ ...bobPlace, form: clientForms.json })]
  await talk(alice, bob)
  await alice.send(absent.identity.signing.publicKey, secrets.body)
  const next = generateBoxKeys(2)
  await alice.rotateBoxKey(next)
  const [entered, polled] = [await enter(alicePlace), await poll(bobPlace, alicePlace)]
  await provoke(alicePlace, polled)
  sealed.push(
    textCanary('body', secrets.body),
    textCanary('body of a group', secrets.groupBody),
    textCanary('ephemeral', secrets.ephemeral),
    bytesCanary('rotated box key', next.secretKey),
    ...places.flatMap(({ identity }, i) => [
      bytesCanary(`signing key ${i}`, identity.signing.secretKey.subarray(0, 32)),
      bytesCanary(`box key ${i}`, identity.box.secretKey),
    ]),
  )
  passing.push(
    textCanary('password of the database', secrets.password),
    textCanary('garbage', secrets.garbage),
    textCanary('token', polled.token),
    bytesCanary('invite', entered.signature),
  )
  await Promise.all([alice.close(), bob.close()])
})
afterAll(async () => {
  await world[Symbol.asyncDispose]()
  await receiver[Symbol.asyncDispose]()
})

/** Sends a sealed value of each kind. One recipient throws an error that quotes it. */
async function talk(alice: Peer, bob: Peer): Promise<void> {
  const heard: string[] = []
  bob.onEphemeral(({ body }) => void heard.push(Buffer.from(body).toString()))
  bob.onMessage(async (message) => {
    if (message.stream) sealed.push(bytesCanary(`stream ${heard.length}`, fromHex(message.stream.streamId)))
    heard.push(message.text())
    if (message.attempt === 1 && message.priority === 'low') throw new Error(`quoted: ${message.text()}`)
    if (message.isRequest) await message.reply(secrets.body)
  })
  bob.setStatus({ availability: 'idle', summary: open.summary, declinesReceipts: false })
  await alice.request(bob.key, secrets.body)
  await alice.send(bob.key, secrets.body, { priority: 'low', receipts: 'all', thread: 'ab'.repeat(16) })
  await alice.send(bob.key, secrets.body, { notBefore: Date.now() + 1 })
  const group = await groupsOf(alice).create(open.group, [bob.key])
  await (await group.send(secrets.groupBody)).stored
  alice.sendEphemeral(bob.key, secrets.ephemeral)
  await until('bob heard all of it', () => heard.length === 6)
}

async function enter(admin: Place) {
  const { url, brokerKey, meshId, identity } = admin
  const invite = createInvite(identity.signing, { url, brokerKey, meshId, usesMax: 2 })
  const place = { ...(await join({ invite, identity: generateIdentity() })) }
  expect(place.meshId).toBe(meshId)
  return readInvite(invite)
}

async function poll(from: Place, to: Place): Promise<HttpPeer> {
  const peer = await HttpPeer.enter(from)
  const sent = await peer.send(envelopeTo(to))
  answers += JSON.stringify([sent.body, (await peer.inbox('waitSeconds=0')).body])
  return peer
}

/** Sends every value that an error might quote. */
async function provoke(place: Place, { token }: HttpPeer): Promise<void> {
  const url = httpUrl(place)
  const Authorization = `Bearer ${token}`
  const asked: [string, RequestInit][] = [
    [`/v1/inbox?token=${secrets.garbage}`, { headers: { Cookie: `t=${secrets.garbage}` } }],
    ['/v1/inbox', { headers: { Authorization: `Bearer ${tokenInMesh(token, 'ab'.repeat(16) as Place['meshId'])}` } }],
    ['/v1/inbox', { headers: { Authorization: `Bearer ${secrets.garbage}` } }],
    ['/v1/send', { method: 'POST', headers: { Authorization }, body: `{"${secrets.garbage}` }],
    [
      '/v1/send',
      { method: 'POST', headers: { Authorization }, body: JSON.stringify({ envelopes: [secrets.garbage] }) },
    ],
    [`/${secrets.garbage}`, {}],
    ['/v1/token', { method: 'POST', body: JSON.stringify({ peerKey: secrets.garbage }) }],
  ]
  for (const [path, init] of asked) answers += await (await fetch(url + path, init)).text()
  for (const wire of [`{"type":"${secrets.garbage}"}`, new TextEncoder().encode(secrets.garbage)]) {
    const client = await WireClient.open(world.broker.url)
    client.sendWire(wire)
    answers += JSON.stringify(await client.closed)
  }
  await endConnections()
}

/** Terminates the connections, because a driver's error quotes statement, parameters and address. */
async function endConnections(): Promise<void> {
  await world.db.run(
    (sql) => sql`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name like 'sealpost %'`,
  )
  await until('it came back', async () => (await fetch(`${world.broker.httpUrl}/readyz`)).ok)
}

test('the most verbose log contains no secret', () => {
  const { output, log } = world.broker
  expect(foundIn(output, [...sealed, ...passing])).toEqual([])
  expect(log.map(({ event }) => event)).toContain('session.closed')
})

test('HTTP responses, close reasons and metrics contain no secret', async () => {
  const metrics = await (await fetch(`${world.broker.adminUrl}/metrics`)).text()
  expect(foundIn(answers + metrics, [...sealed, ...passing])).toEqual([])
  expect(metrics).toContain('sealpost_')
  expect(answers).toContain('code')
})

test('spans contain no secret', async () => {
  const told = () => new Set(receiver.spans.map(({ name }) => name))
  const wanted = ['commit', 'settle', 'claim', 'handshake', 'POST /v1/send', 'GET /v1/inbox', 'GET other']
  await until('there is one of each', () => wanted.every((name) => told().has(name)))
  const ids = [world.meshId, ...places.map(({ identity }) => identity.signing.publicKey)]
  expect(foundIn(receiver.text, [...sealed, ...passing, ...ids.map((id) => textCanary(id, id))])).toEqual([])
})

test('no row of the database contains a secret', async () => {
  const { text, tables } = await databaseText(world.db)
  expect(foundIn(text, [...sealed, ...passing])).toEqual([])
  const key = fromHex(places[2]!.identity.signing.publicKey)
  expect(foundIn(text, [textCanary('name', open.group), bytesCanary('key', key)])).toEqual(['name', 'key'])
  expect(await world.count('message_queue')).toBeGreaterThan(0)
  expect(tables.length).toBeGreaterThan(10)
})

test.skipIf(!CAN_READ_MEMORY)('the process memory contains no sealed contents and no sealing keys', async () => {
  const control = [textCanary('password of the database', secrets.password), textCanary('own key', world.broker.key)]
  const { found, bytes } = await foundInMemory(world.broker.pid, [...sealed, ...control])
  expect(new Set(found)).toEqual(new Set(control.map(({ name }) => name)))
  expect(sealed.filter(({ name }) => name.startsWith('stream')).length).toBeGreaterThan(1)
  expect(bytes).toBeGreaterThan(16 * 1024 * 1024)
})

test('the search finds a secret in each of its forms', () => {
  const key = crypto.getRandomValues(new Uint8Array(32))
  const canaries = [bytesCanary('key', key), textCanary('text', secrets.body)]
  const texts = [
    Buffer.from(key).toString('hex'),
    Buffer.from(key).toString('base64url'),
    Buffer.from(key).toString('base64'),
  ]
  for (const text of texts) expect(foundIn(`before ${text} after`, canaries)).toEqual(['key'])
  expect(foundIn(Buffer.from(`x${secrets.body}`, 'utf16le'), canaries)).toEqual(['text'])
})
