/** Tests messages that their recipient can't open: none is lost, and the sender is informed. */

import { generateBoxKeys } from '@sealpost/identity'
import { connect, type PeerEvent } from '@sealpost/sdk'
import { poolsOf } from '@sealpost/sdk/pools'
import { redriveDeadLetters } from '@sealpost/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { keyOf } from './member.ts'
import { until } from './process.ts'
import { type Place, World } from './world.ts'

let world: World
beforeAll(async () => {
  world = await World.open({ SWEEP_MS: '50', POLL_MS: '100' })
})
afterAll(() => world[Symbol.asyncDispose]())

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => String(from + i))

/** A peer's received messages and events. */
class Heard {
  readonly texts: string[] = []
  readonly events: PeerEvent[] = []

  async enter(place: Place & { formerBoxKeys?: readonly Place['identity']['box'][] }) {
    const peer = await connect({ ...place, onEvent: (event) => this.events.push(event) })
    peer.onMessage((message) => void this.texts.push(message.text()))
    return peer
  }

  all<Type extends PeerEvent['type']>(type: Type) {
    return this.events.filter((event): event is Extract<PeerEvent, { type: Type }> => event.type === type)
  }
}

/** Rotates the key without receiving. Returns the new place. */
async function rotated(place: Place): Promise<Place> {
  const box = generateBoxKeys(place.identity.box.epoch + 1)
  await using peer = await connect({ ...place, credit: 0 })
  await peer.rotateBoxKey(box)
  return { ...place, identity: { ...place.identity, box } }
}

const waiting = async (place: Place) => {
  const rows = await world.db.run(
    (sql) => sql<{ n: number }[]>`
      select count(*)::int as n from message_queue q join member m on m.mesh_id = q.mesh_id and m.peer_no = q.recipient
      where m.peer_key = decode(${keyOf(place)}, 'hex')`,
  )
  return rows[0]!.n
}

const detailsOf = async (place: Place) => {
  const rows = await world.db.run(
    (sql) => sql<{ detail: string }[]>`
      select d.detail from dead_letter d join member m on m.mesh_id = d.mesh_id and m.peer_no = d.recipient
      where m.peer_key = decode(${keyOf(place)}, 'hex')`,
  )
  return rows.map(({ detail }) => detail)
}

const detailsOfPools = async () => {
  const rows = await world.db.run(
    (sql) => sql<{ detail: string }[]>`
      select d.detail from dead_letter d join pool p on p.mesh_id = d.mesh_id and p.peer_no = d.recipient`,
  )
  return rows.map(({ detail }) => detail)
}

test('a recipient started with a key file that predates a rotation stops, and no message sealed to the new key is lost', async () => {
  const [alice, before] = await world.enrolMany(2)
  {
    await using writer = await connect(alice)
    for (const text of numbers(0, 5)) await writer.send(keyOf(before), text)
  }
  const after = await rotated(before)
  {
    await using writer = await connect(alice)
    await Promise.all(numbers(5, 20).map((text) => writer.send(keyOf(before), text)))
  }
  const old = new Heard()
  const peer = await old.enter(before)
  expect(await peer.closed).toMatchObject({ code: 'own_key_missing', isRetryable: false })
  expect(old.texts).toEqual(numbers(0, 5))
  expect(await detailsOf(before)).toEqual([])
  await until('what it settled is committed', async () => (await waiting(before)) === 15)

  const heard = new Heard()
  await using reader = await heard.enter({ ...after, formerBoxKeys: [before.identity.box] })
  await until('the rest is opened', () => heard.texts.length === 15)
  expect([heard.texts, reader.counters.tampered, heard.all('gap')]).toEqual([numbers(5, 20), 0, []])
})

test('a message sealed to a discarded key becomes a dead letter, its sender is notified, and with that key it opens after a redrive', async () => {
  const [alice, before] = await world.enrolMany(2)
  const told = new Heard()
  await using writer = await told.enter(alice)
  const { envelopeId } = await writer.send(keyOf(before), 'to the first key', { receipts: 'end' })
  const after = await rotated(before)
  const heard = new Heard()
  {
    await using reader = await heard.enter(after)
    await until('the sender is told', () => told.all('receipt').length === 1)
    expect(told.all('receipt')[0]).toMatchObject({ envelopeId, event: 'rejected' })
    expect(heard.all('tamper')).toMatchObject([{ sender: writer.key, envelopeId, reason: 'does_not_open' }])
    await writer.send(reader.key, 'to the second')
    await until('it continues with what opens', () => heard.texts.length === 1)
  }
  expect(await detailsOf(before)).toEqual(['does_not_open'])

  await redriveDeadLetters(world.db, { recipient: keyOf(before) }, { ttlSeconds: 600 })
  await using again = await heard.enter({ ...after, formerBoxKeys: [before.identity.box] })
  await until('it is opened', () => heard.texts.length === 2)
  expect(heard.texts).toEqual(['to the second', 'to the first key'])
  expect(again.counters.tampered).toBe(0)
})

test('a pool message that one member cannot open is processed by another', async () => {
  const [alice, first, second] = await world.enrolMany(3)
  await using owner = await connect(alice)
  const pool = await poolsOf(owner).create('opened', [keyOf(first), keyOf(second)])
  await pool.send('a job')
  const [lame, able] = [new Heard(), new Heard()]
  await using without = await lame.enter(await rotated(first)) // sealed to a key that this member discarded
  await (await poolsOf(without).find(pool.id)).join({ credit: 1 })
  await until('it could not open it', () => lame.all('tamper').length === 1)
  await using other = await able.enter(second)
  await (await poolsOf(other).find(pool.id)).join({ credit: 1 })
  await until('the other one does it', () => able.texts.length === 1)
  expect([able.texts, lame.texts]).toEqual([['a job'], []])
  expect(await detailsOfPools()).toEqual([])
})

test('a pool message that a member cannot open becomes a dead letter after five attempts', async () => {
  const [alice, only] = await world.enrolMany(2)
  await using owner = await connect(alice)
  const pool = await poolsOf(owner).create('unopened', [keyOf(only)])
  await pool.send('a job')
  await world.db.run((sql) => sql`update message_queue set attempts = 4 where body_id is not null`)
  const heard = new Heard()
  await using worker = await heard.enter(await rotated(only))
  await (await poolsOf(worker).find(pool.id)).join({ credit: 1 })
  await until('it is given up', async () => (await detailsOfPools()).length === 1)
  expect(await detailsOfPools()).toEqual(['does_not_open'])
  expect(heard.all('tamper')).toHaveLength(1)
})
