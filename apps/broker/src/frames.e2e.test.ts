/** What a peer that is let in may still say wrong: each gets its code, loses nothing, and troubles nobody else. */
import { type ClientFrame, encode, FRAME_BYTES_MAX, type FrameOf, type NackCode } from '@sealpost/protocol'
import type { DeliveryId, PeerKey } from '@sealpost/std'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { authFrame, envelopeTo, maskedFrame, randomHex, sendFrame, WireClient } from './testing-wire.ts'
import { type Place, World } from './testing-world.ts'

let world: World
let bystander: WireClient
beforeAll(async () => {
  world = await World.open({ LOG_LEVEL: 'debug' })
  bystander = await WireClient.enter(await world.enrol())
})
afterAll(async () => {
  bystander.destroy()
  await world[Symbol.asyncDispose]()
})

/** What every hostile input must leave behind: a live process, others in session, nothing of it in the log. */
async function expectNoHarm(secret?: string): Promise<void> {
  await bystander.echo()
  expect(world.broker.isAlive).toBe(true)
  if (secret) expect(world.broker.output).not.toContain(secret)
  expect(world.broker.log.filter((line) => line.level === 'error')).toEqual([])
}

const MARK = 'canary7f3a'

describe('ends the connection', () => {
  const oneSend = (client: WireClient) => encode(client.form, sendFrame(envelopeTo('ab'.repeat(32) as PeerKey)))
  const binary = (bytes: readonly number[]) => Uint8Array.from(bytes)

  test.each<[string, (client: WireClient) => Uint8Array | string, number, string]>([
    ['an empty message', () => binary([]), 4400, 'frame_malformed'],
    ['random bytes', () => binary([255, 1, 2, 3]), 4400, 'frame_malformed'],
    ['a frame cut short', (client) => (oneSend(client) as Uint8Array).slice(0, 50), 4400, 'frame_malformed'],
    ['bytes behind a frame', (client) => binary([...(oneSend(client) as Uint8Array), 0]), 4400, 'frame_malformed'],
    ['a number of no frame', () => binary([99, 0]), 4400, 'frame_malformed'],
    ['more items than there are', () => binary([18, 0xff, 0xff, 0, 0]), 4400, 'frame_malformed'],
    ['no item at all', () => binary([18, 0, 0]), 4400, 'frame_malformed'],
    ['an id over 2^53', () => binary([18, 0, 1, 255, 255, 255, 255, 255, 255, 255, 255]), 4400, 'frame_malformed'],
    ['a frame of the server', () => encode('binary', { type: 'goaway', retryAfterMs: 1 }), 4400, 'frame_malformed'],
    ['text', () => `{"type":"ping","ref":1,"${MARK}":1}`, 1003, 'wrong_form'],
  ])('in the binary form: %s', async (_, wire, code, reason) => {
    const client = await WireClient.enter(await world.enrol())
    client.sendWire(wire(client))
    expect((await client.next('refused')).code).toBe(reason)
    expect(await client.closed).toEqual({ code, reason })
    await expectNoHarm(MARK)
  })

  test.each<[string, string | Uint8Array, number, string]>([
    ['no JSON', `{"type":"${MARK}"`, 4400, 'frame_malformed'],
    ['a list', '[]', 4400, 'frame_malformed'],
    ['an unknown type', `{"type":"${MARK}"}`, 4400, 'frame_malformed'],
    ['a type of the prototype', '{"type":"__proto__"}', 4400, 'frame_malformed'],
    ['an unknown key', `{"type":"ping","ref":1,"${MARK}":1}`, 4400, 'frame_malformed'],
    ['the key __proto__', '{"type":"ping","ref":1,"__proto__":{"admin":true}}', 4400, 'frame_malformed'],
    ['a missing key', '{"type":"ping"}', 4400, 'frame_malformed'],
    ['a number as text', '{"type":"ping","ref":"5"}', 4400, 'frame_malformed'],
    ['a fraction', '{"type":"ping","ref":5.5}', 4400, 'frame_malformed'],
    ['an infinite number', '{"type":"ping","ref":1e999}', 4400, 'frame_malformed'],
    ['minus zero', '{"type":"ping","ref":-0}', 4400, 'frame_malformed'],
    ['a deep nest', '['.repeat(200_000), 4400, 'frame_malformed'],
    [
      'a lookup of a key in capitals',
      `{"type":"lookup","ref":1,"peers":["${'AB'.repeat(32)}"]}`,
      4400,
      'frame_malformed',
    ],
    ['a lookup of SQL', `{"type":"lookup","ref":1,"peers":["'; drop table member; --"]}`, 4400, 'frame_malformed'],
    ['bytes', encode('binary', { type: 'ping', ref: 1 }) as Uint8Array, 1003, 'wrong_form'],
  ])('in the JSON form: %s', async (_, wire, code, reason) => {
    const client = await WireClient.enter(await world.enrol(), { form: 'json' })
    client.sendWire(wire)
    expect(await client.closed).toEqual({ code, reason })
    await expectNoHarm(MARK)
  })

  test.each<[string, (client: WireClient) => void, number]>([
    ['a message over the limit', (client) => client.sendWire(new Uint8Array(FRAME_BYTES_MAX + 1)), 1009],
    [
      'the promise of 2^40 bytes',
      (client) => client.sendBytes(Buffer.from('82ff000001000000000000000000', 'hex')),
      1009,
    ],
    ['fragments that add up past the limit', (client) => sendFragments(client), 1009],
    ['invalid UTF-8', (client) => client.sendMessage(1, Uint8Array.from([0xed, 0xa0, 0x80])), 1007],
    ['an unmasked frame', (client) => client.sendBytes(Buffer.from([0x81, 0x01, 0x41])), 1002],
    ['a compressed frame', (client) => client.sendBytes(Buffer.from([0xc2, 0x80, 0, 0, 0, 0])), 1002],
  ])('below the frames: %s', async (_, say, code) => {
    const client = await WireClient.enter(await world.enrol())
    say(client)
    expect((await client.closed).code).toBe(code)
    await expectNoHarm()
  })

  function sendFragments(client: WireClient): void {
    const part = new Uint8Array(FRAME_BYTES_MAX / 2)
    const first = maskedFrame(2, part)
    first[0] = 0x02
    client.sendBytes(first)
    for (let i = 0; i < 2; i++) {
      const next = maskedFrame(0, part)
      next[0] = 0x00
      client.sendBytes(next)
    }
  }
})

describe('answers an envelope with a nack, and the session goes on', () => {
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
    const client = await WireClient.enter(await world.enrol())
    expect(await answersTo(client, envelopeTo(to, changed(to)))).toEqual([code])
    expect(await answersTo(client, envelopeTo(to))).toEqual(['stored'])
    client.destroy()
    await expectNoHarm()
  })

  test('a key of another mesh is as unknown as one of none', async () => {
    const client = await WireClient.enter(await world.enrol())
    const elsewhere = await world.enrol(await world.mesh())
    expect(await answersTo(client, envelopeTo(elsewhere), envelopeTo(randomHex(32) as PeerKey))).toEqual([
      'unknown_recipient',
      'unknown_recipient',
    ])
    client.destroy()
  })

  test('the same id with the same bytes is a duplicate, with others it is reused, from another sender it is new', async () => {
    const [to, other] = [await world.enrol(), await world.enrol()]
    const client = await WireClient.enter(await world.enrol())
    const stranger = await WireClient.enter(await world.enrol())
    const item = envelopeTo(to)
    expect(await answersTo(client, item)).toEqual(['stored'])
    expect(await answersTo(client, item)).toEqual(['duplicate'])
    expect(await answersTo(client, { ...item, envelope: new Uint8Array(64) })).toEqual(['id_reused'])
    expect(await answersTo(client, { ...item, recipient: other.identity.signing.publicKey })).toEqual(['id_reused'])
    expect(await answersTo(stranger, item)).toEqual(['stored'])
    client.destroy()
    stranger.destroy()
  })

  test('a resend after its settlement is still a duplicate', async () => {
    const [from, to] = [await WireClient.enter(await world.enrol()), await world.enrol()]
    const recipient = await WireClient.enter(to)
    const item = envelopeTo(to)
    expect(await answersTo(from, item)).toEqual(['stored'])
    const [delivery] = await recipient.deliveries(1)
    recipient.send({ type: 'settle', ids: [delivery!.id] })
    expect(await answersTo(from, item)).toEqual(['duplicate'])
    from.destroy()
    recipient.destroy()
  })
})

test('the broker stamps the sender, and a frame has no place to name another', async () => {
  const [sender, to] = [await world.enrol(), await world.enrol()]
  const [client, recipient] = [await WireClient.enter(sender, { form: 'json' }), await WireClient.enter(to)]
  const item = envelopeTo(to)
  client.send(sendFrame(item))
  expect((await recipient.deliveries(1))[0]).toMatchObject({
    envelopeId: item.envelopeId,
    sender: sender.identity.signing.publicKey,
  })
  const forged = JSON.parse(encode('json', sendFrame(envelopeTo(to))) as string)
  forged.envelopes[0].sender = to.identity.signing.publicKey
  client.sendWire(JSON.stringify(forged))
  expect((await client.closed).code).toBe(4400)
  recipient.destroy()
})

test('a settle, retry or reject of what the session does not hold is ignored and counted: the mail stays', async () => {
  const [sender, owner, thief] = [await world.enrol(), await world.enrol(), await world.enrol()]
  const foreign = await world.enrol(await world.mesh())
  const [from, recipient] = [await WireClient.enter(sender), await WireClient.enter(owner)]
  const thieves = [await WireClient.enter(thief), await WireClient.enter(foreign)]
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
  for (const client of [from, recipient, ...thieves]) client.destroy()
})

test('one key in two meshes gets in each what was sent there', async () => {
  const meshId = await world.mesh()
  const here = await world.enrol()
  const there = await world.enrol(meshId, here.identity)
  const [one, two] = [await WireClient.enter(here), await WireClient.enter(there)]
  const [fromHere, fromThere] = [
    await WireClient.enter(await world.enrol()),
    await WireClient.enter(await world.enrol(meshId)),
  ]
  const [first, second] = [envelopeTo(here), envelopeTo(there)]
  fromHere.send(sendFrame(first))
  fromThere.send(sendFrame(second))
  expect((await one.deliveries(1)).map((delivery) => delivery.envelopeId)).toEqual([first.envelopeId])
  expect((await two.deliveries(1)).map((delivery) => delivery.envelopeId)).toEqual([second.envelopeId])
  for (const client of [one, two, fromHere, fromThere]) client.destroy()
})

test('a lookup answers with signed bindings, and says who is unknown here', async () => {
  const [asker, member] = [await world.enrol(), await world.enrol()]
  const stranger = await world.enrol(await world.mesh())
  const client = await WireClient.enter(asker)
  const peers = [member, stranger].map((place) => place.identity.signing.publicKey)
  client.send({ type: 'lookup', ref: 7, peers })
  expect(await client.next('directory')).toMatchObject({ ref: 7, bindings: [{ peer: peers[0] }], unknown: [peers[1]] })
  client.destroy()
})

test('a thousand half-made connections that vanish leave nothing behind', async () => {
  const before = await world.broker.metric('sealpost_connections')
  for (let round = 0; round < 10; round++) {
    const clients = await Promise.all(Array.from({ length: 100 }, () => WireClient.open(world.broker.url)))
    for (const client of clients) client.destroy()
  }
  await expect.poll(() => world.broker.metric('sealpost_connections')).toBeLessThanOrEqual(before)
  await expectNoHarm()
})

test('a client that is gone between `auth` and its answer does no harm', async () => {
  for (let i = 0; i < 20; i++) {
    const place = await world.enrol()
    const client = await WireClient.open(place.url)
    client.send(authFrame(place, await client.next('hello')))
    client.destroy()
  }
  await expectNoHarm()
})
