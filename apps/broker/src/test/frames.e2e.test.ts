/** Tests invalid requests from members: each is refused with its code and affects nothing else. */
import type { ClientFrame, FrameOf, NackCode } from '@sealpost/protocol'
import type { DeliveryId, PeerKey } from '@sealpost/std'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { authFrame, envelopeTo, randomHex, sendFrame, WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

let world: World
let bystander: WireClient
beforeAll(async () => {
  world = await World.open({ LOG_LEVEL: 'debug' })
  bystander = await world.wire()
})
afterAll(async () => {
  bystander.destroy()
  await world[Symbol.asyncDispose]()
})

/** Expects a live process, undisturbed sessions, and no input in the log. */
async function expectNoHarm(secret?: string): Promise<void> {
  await bystander.echo()
  expect(world.broker.isAlive).toBe(true)
  if (secret) expect(world.broker.output).not.toContain(secret)
  expect(world.broker.log.filter((line) => line.level === 'error')).toEqual([])
}

describe('an invalid envelope gets a nack, and the session continues', () => {
  const answersTo = async (client: WireClient, ...items: Parameters<typeof sendFrame>) => {
    client.send(sendFrame(...items))
    const answers = new Map<string, NackCode | 'stored' | 'duplicate'>()
    while (answers.size < new Set(items.map((item) => item.envelopeId)).size) {
      const frame = await client.next('ack', 'nack')
      for (const item of frame.items)
        answers.set(
          item.envelopeId,
          'code' in item ? (item.code as NackCode) : item.isDuplicate ? 'duplicate' : 'stored',
        )
    }
    return items.map((item) => answers.get(item.envelopeId))
  }

  test.each<[NackCode, (to: Place) => Partial<FrameOf<'send'>['envelopes'][number]>]>([
    ['unknown_recipient', () => ({ recipient: randomHex(32) as PeerKey })],
    ['ttl_too_long', () => ({ ttlSeconds: 31 * 86_400 })],
    ['envelope_too_large', () => ({ envelope: new Uint8Array(72 * 1024 + 1) })],
  ])('%s', async (code, changed) => {
    const to = await world.enrol()
    const client = await world.wire()
    expect(await answersTo(client, envelopeTo(to, changed(to)))).toEqual([code])
    expect(await answersTo(client, envelopeTo(to))).toEqual(['stored'])
    client.destroy()
    await expectNoHarm()
  })
})

test('H50, H52, H63: settling, retrying or rejecting a delivery that the session does not hold is ignored and counted, and the delivery stays', async () => {
  const [sender, owner, thief] = await world.enrolMany(3)
  const foreign = await world.enrol(await world.mesh())
  const [from, recipient] = [await world.wire(sender), await world.wire(owner)]
  const thieves = [await world.wire(thief), await world.wire(foreign)]
  const before = await world.count('message_queue')
  from.send(sendFrame(envelopeTo(owner)))
  const [delivery] = await recipient.deliveries(1)
  const ignored = await world.broker.metric('sealpost_settles_ignored_total')
  const id = delivery!.id
  const frames: ClientFrame[] = [
    { type: 'settle', ids: [id, 0 as DeliveryId, (id + 1) as DeliveryId, Number.MAX_SAFE_INTEGER as DeliveryId] },
    { type: 'retry', items: [{ id, afterMs: 0 }] },
    { type: 'reject', items: [{ id, reason: '' }] },
  ]
  for (const client of thieves) {
    for (const frame of frames) client.send(frame)
    await client.echo()
  }
  expect(await world.broker.metric('sealpost_settles_ignored_total')).toBe(ignored + 12)
  expect(await world.count('message_queue')).toBe(before + 1)
  recipient.send({ type: 'settle', ids: [id, id] })
  recipient.send({ type: 'settle', ids: [id] })
  await recipient.echo()
  expect(await world.broker.metric('sealpost_settles_ignored_total')).toBe(ignored + 14)
  await expect.poll(() => world.count('message_queue')).toBe(before)
  await expectNoHarm()
})

test('H62: a key enrolled in two meshes receives, in each mesh, the messages sent in that mesh', async () => {
  const meshId = await world.mesh()
  const here = await world.enrol()
  const there = await world.enrol(meshId, here.identity)
  const [one, two] = [await world.wire(here), await world.wire(there)]
  const [fromHere, fromThere] = [await world.wire(), await world.wire(await world.enrol(meshId))]
  const [first, second] = [envelopeTo(here), envelopeTo(there)]
  fromHere.send(sendFrame(first))
  fromThere.send(sendFrame(second))
  expect((await one.deliveries(1)).map((delivery) => delivery.envelopeId)).toEqual([first.envelopeId])
  expect((await two.deliveries(1)).map((delivery) => delivery.envelopeId)).toEqual([second.envelopeId])
})

test('a lookup returns signed bindings, and lists the peers unknown in this mesh', async () => {
  const [asker, member] = await world.enrolMany(2)
  const stranger = await world.enrol(await world.mesh())
  const client = await world.wire(asker)
  const peers = [member, stranger].map((place) => place.identity.signing.publicKey)
  client.send({ type: 'lookup', ref: 7, peers })
  expect(await client.next('directory')).toMatchObject({ ref: 7, bindings: [{ peer: peers[0] }], unknown: [peers[1]] })
})

test('a thousand half-open connections that vanish leave nothing behind', async () => {
  const before = await world.broker.metric('sealpost_connections')
  for (let round = 0; round < 10; round++) {
    const clients = await Promise.all(Array.from({ length: 100 }, () => WireClient.open(world.broker.url)))
    for (const client of clients) client.destroy()
  }
  await expect.poll(() => world.broker.metric('sealpost_connections')).toBeLessThanOrEqual(before)
  await expectNoHarm()
})

test('a client that disconnects between `auth` and its reply does no harm', async () => {
  for (let i = 0; i < 20; i++) {
    const place = await world.enrol()
    const client = await WireClient.open(place.url)
    client.send(authFrame(place, await client.next('hello')))
    client.destroy()
  }
  await expectNoHarm()
})
