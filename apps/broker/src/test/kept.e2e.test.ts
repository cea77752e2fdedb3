/** Tests recorded messages, which are stored together with their deliveries or refused. */
import { sealBody, sealRecord, signSpace } from '@sealpost/identity'
import { encode } from '@sealpost/protocol'
import type { GroupId } from '@sealpost/std'
import { test as base, expect } from 'vitest'
import { ask, HttpPeer, httpUrl } from './http.ts'
import { keyOf } from './member.ts'
import { sharedWorlds } from './shared-worlds.ts'
import { envelopeTo, type WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

const shared = sharedWorlds()

/** Tests mostly wait, so they run concurrently. */
const test = base.concurrent

/** Returns a message recorded in the mesh's space. */
function message(from: Place, to: Place, author: Place = from) {
  const { bodyId, bytes, ticket } = sealBody(new TextEncoder().encode('to be kept'))
  const place = { streamId: '00'.repeat(16), seq: 1, prevHash: new Uint8Array(32) }
  const draft = { ...place, meshId: from.meshId, spaceId: from.meshId, keyEpoch: 1, ticket, sentAtMs: 5, note: null }
  const record = sealRecord(author.identity.signing, draft, new Uint8Array(32)).bytes
  const terms = { receipts: 'none', thread: '0'.repeat(32), hops: 0, noAutoReply: false } as const
  const frame = {
    type: 'broadcastKept',
    group: '0'.repeat(32) as GroupId,
    rosterEpoch: 0,
    bodyId,
    body: bytes,
    terms,
    record,
  } as const
  return { ...frame, envelopes: [envelopeTo(to)] }
}

type Message = ReturnType<typeof message>

async function setSpace(owner: Place, epoch: number, keepsMessages: boolean): Promise<void> {
  const keeps = { historyFor: 'all', keepSeconds: 60, keepBytes: 1000, keepsMessages } as const
  const { bytes } = signSpace(owner.identity.signing, {
    meshId: owner.meshId,
    spaceId: owner.meshId,
    owner: keyOf(owner),
    epoch,
    ...keeps,
  })
  const { headers } = await HttpPeer.enter(owner)
  const body = JSON.stringify({ statement: Buffer.from(bytes).toString('base64url') })
  const url = `${httpUrl(owner)}/v1/meshes/${owner.meshId}/spaces/${owner.meshId}`
  const { status } = await ask(url, {
    method: 'PUT',
    headers: { ...headers, 'Content-Type': 'application/json' },
    body,
  })
  expect(status).toBe(200)
}

async function keptBodies(world: World): Promise<number> {
  const [row] = await world.db.run(
    (sql) =>
      sql<
        { n: number }[]
      >`select count(*)::int as n from history_event where kind = 3 and mesh_id = ${world.meshId}::uuid`,
  )
  return row!.n
}

async function refusalOf(client: WireClient, said: Message): Promise<string | undefined> {
  client.send(said)
  return (await client.next('nack')).items[0]?.code
}

test('a message is recorded once in a space whose owner enabled that, and refused in any other', async () => {
  await using world = await shared()
  const [ann, bob] = [await world.enrolAdmin('ann'), await world.enrol()]
  const client = await world.wire(ann)
  expect(await refusalOf(client, message(ann, bob))).toBe('not_kept')
  await setSpace(ann, 1, true)
  const said = message(ann, bob)
  client.send(said)
  expect(await client.next('ack')).toMatchObject({ items: [{ isDuplicate: false }] })
  client.send({ ...said, envelopes: [envelopeTo(ann)] })
  expect(await client.next('ack')).toMatchObject({ items: [{ isDuplicate: false }] })
  expect([await keptBodies(world), await world.count('message_queue')]).toEqual([1, 2])
  await setSpace(ann, 2, false)
  expect(await refusalOf(client, message(ann, bob))).toBe('not_kept')
})

test("no message is recorded above the mesh's limit or with a duplicate recipient", async () => {
  await using world = await World.open({ HISTORY_BYTES_MAX: '1' })
  const [ann, bob] = [await world.enrolAdmin('ann'), await world.enrol()]
  await setSpace(ann, 1, true)
  const first = await world.wire(ann)
  first.send(message(ann, bob))
  await first.next('ack')
  first.destroy()
  const client = await world.wire(ann)
  expect(await refusalOf(client, message(ann, bob))).toBe('history_full')
  client.send(message(ann, bob, bob))
  expect(await client.next('refused')).toMatchObject({ code: 'frame_malformed' })
  expect(await keptBodies(world)).toBe(1)
})

/** Replaces the record in an encoded frame, because `encode` refuses invalid ones. */
function inBinary(said: Message, record: Uint8Array): Uint8Array {
  const front = (encode('binary', said) as Uint8Array).slice(0, -said.record.length)
  new DataView(front.buffer).setUint32(front.length - 4, record.length)
  return Buffer.concat([front, record])
}

function inJson(said: Message, record: Uint8Array): string {
  const text = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64url')
  return (encode('json', said) as string).replace(text(said.record), text(record))
}

test('a record with an invalid length or invalid bytes ends its connection and affects nothing else', async () => {
  await using world = await shared()
  const [ann, bob] = [await world.enrolAdmin('ann'), await world.enrol()]
  await setSpace(ann, 1, true)
  const said = message(ann, bob)
  const padded = (bytes: number) => Buffer.concat([said.record, new Uint8Array(bytes)]).subarray(0, bytes)
  const records = [padded(112), padded(2049), padded(100_000), new Uint8Array(2048).fill(7)]
  for (const form of ['binary', 'json'] as const)
    for (const record of records) {
      const client = await world.wire(ann, { form })
      client.sendWire(form === 'binary' ? inBinary(said, record) : inJson(said, record))
      expect(await client.closed).toEqual({ code: 4400, reason: 'frame_malformed' })
    }
  const client = await world.wire(ann)
  client.send({ ...said, record: padded(2048) }) // only readers can check the record
  await client.next('ack')
  client.destroy()
  expect(await keptBodies(world)).toBe(1)
})
