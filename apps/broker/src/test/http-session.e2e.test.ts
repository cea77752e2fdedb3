/** The polling session beside the sockets of its key, and its end. */
import { test as base, expect } from 'vitest'
import { HttpPeer } from './http.ts'
import { until } from './process.ts'
import { envelopeTo, sendFrame, WireClient } from './wire.ts'
import { World } from './world.ts'

const test = base.concurrent

test('a poll is refused while a socket of the key lives, and takes its place when it asks to', async () => {
  await using world = await World.open()
  const [from, to] = [await world.enrol(), await world.enrol()]
  const [sender, socket] = [await WireClient.enter(from), await WireClient.enter(to)]
  const poller = await HttpPeer.enter(to)
  expect(await poller.inbox()).toMatchObject({ status: 409, body: { code: 'session_conflict' } })
  expect(await poller.inbox('takeover=false')).toMatchObject({ status: 409, body: { code: 'session_conflict' } })
  await socket.echo()
  const item = envelopeTo(to)
  sender.send(sendFrame(item))
  const [pushed] = await socket.deliveries(1)
  const taken = await poller.deliveries(1, 'takeover=true&waitSeconds=10')
  expect(await socket.closed).toEqual({ code: 4409, reason: 'superseded' })
  expect(taken).toMatchObject([{ envelopeId: pushed!.envelopeId, attempt: 2 }])
  await poller.settle(...taken)
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  sender.destroy()
})

test('a socket takes the place of a polling session, whose waiting poll and settles are refused', async () => {
  await using world = await World.open()
  const [from, to] = [await world.enrol(), await world.enrol()]
  const [sender, poller] = [await WireClient.enter(from), await HttpPeer.enter(to)]
  const item = envelopeTo(to)
  sender.send(sendFrame(item))
  const held = await poller.deliveries(1)
  const waiting = poller.inbox('waitSeconds=30')
  const socket = await WireClient.enter(to)
  expect(await waiting).toMatchObject({ status: 409, body: { code: 'superseded' } })
  expect(await poller.settle(...held)).toMatchObject({ status: 409, body: { code: 'session_over' } })
  expect(await poller.inbox()).toMatchObject({ status: 409, body: { code: 'session_conflict' } })
  expect(await socket.deliveries(1)).toMatchObject([{ envelopeId: item.envelopeId, attempt: 2 }])
  socket.destroy()
  await until('the socket is gone', async () => (await world.broker.metric('sealpost_sessions')) === 1)
  expect(await poller.inbox('waitSeconds=0')).toMatchObject({ status: 200 })
  sender.destroy()
})

test('the session ends some time after its last request, and with it its leases', async () => {
  await using world = await World.open({ POLLING_IDLE_MS: '700', LEASE_MS: '300000' })
  const [from, to] = [await world.enrol(), await world.enrol()]
  await (await HttpPeer.enter(from)).send(envelopeTo(to))
  const poller = await HttpPeer.enter(to)
  const held = await poller.deliveries(1)
  await until('it is over', async () => (await world.broker.metric('sealpost_sessions')) === 0)
  expect(await poller.settle(...held)).toMatchObject({ status: 409, body: { code: 'session_over' } })
  expect(await poller.deliveries(1)).toMatchObject([{ envelopeId: held[0]!.envelopeId, attempt: 2 }])
})

test('a poll that waits is no silence', async () => {
  await using world = await World.open({ POLLING_IDLE_MS: '500' })
  const [from, to] = [await world.enrol(), await world.enrol()]
  const [sender, poller] = [await HttpPeer.enter(from), await HttpPeer.enter(to)]
  const older = poller.inbox('waitSeconds=30')
  await until('it waits', async () => (await world.broker.metric('sealpost_sessions')) === 1)
  const [before, waiting] = [performance.now(), poller.inbox('waitSeconds=2')]
  expect((await older).body.deliveries).toEqual([])
  expect(await waiting).toMatchObject({ status: 200, body: { deliveries: [] } })
  expect(performance.now() - before).toBeGreaterThan(1900)
  await sender.send(envelopeTo(to))
  expect(await poller.deliveries(1)).toHaveLength(1)
})
