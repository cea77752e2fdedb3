/** Tests the terms of deliveries from SDK to SDK. */
import type { Message, Peer } from '@sealpost/sdk'
import { test as base, describe, expect } from 'vitest'
import { keyOf, Member } from './member.ts'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'

const shared = sharedWorlds()

/** Tests mostly wait, so they run concurrently. */
const test = base.concurrent

const THREAD = 'c0'.repeat(16)
const BRISK = { SWEEP_MS: '50', POLL_MS: '100' }
/** Longer than a loaded machine takes to extend the lease. */
const LEASE_MS = '8000'

/** Returns the next message and settles it. */
function next(peer: Peer): Promise<Message> {
  return new Promise((resolve) => {
    const off = peer.onMessage((message) => {
      off()
      resolve(message)
    })
  })
}

const receiptsOf = (member: Member) => member.all('receipt').map(({ envelopeId, event }) => `${envelopeId} ${event}`)

test('a rejected message becomes a dead letter with the reason, and its sender is notified', async () => {
  await using world = await shared(BRISK)
  const [alice, bob] = [await Member.open(world), await Member.open(world)]
  bob.peer.onMessage((message) => message.reject('not for me'))
  const { envelopeId } = await alice.peer.send(bob.peer.key, 'x', { receipts: 'end' })
  await until('the sender is told', () => alice.all('receipt').length === 1)
  expect(alice.all('receipt')[0]).toMatchObject({ envelopeId, recipient: bob.peer.key, event: 'rejected' })
  const [row] = await world.db.run(
    (sql) => sql<Record<string, unknown>[]>`select * from dead_letter where mesh_id = ${world.meshId}::uuid`,
  )
  expect(row).toMatchObject({ reason: 'rejected' })
  expect(JSON.stringify(row)).toContain('not for me')
  await until('nothing is left', async () => (await world.count('message_queue')) === 0)
})

test('the lease of a message is extended while its handler runs', async () => {
  await using world = await shared({ ...BRISK, LEASE_MS })
  const sender = await Member.open(world)
  const busy = await Member.open(world)
  const idle = await Member.open(world, undefined, { autoExtend: false })
  const finish = Promise.withResolvers<void>()
  for (const { peer } of [busy, idle]) peer.onMessage(() => finish.promise)
  await sender.peer.send(busy.peer.key, 'x')
  await sender.peer.send(idle.peer.key, 'x')
  // The message without extensions shows when a lease has expired.
  await until('a lease passed', () => idle.peer.counters.duplicates >= 1)
  expect(busy.peer.counters).toMatchObject({ received: 1, duplicates: 0 })
  finish.resolve()
  await until('all is settled', async () => (await world.count('message_queue')) === 0)
})

test('an application can extend a lease explicitly', async () => {
  await using world = await shared({ ...BRISK, LEASE_MS })
  const [sender, recipient] = [await Member.open(world), await Member.open(world, undefined, { autoExtend: false })]
  const finish = Promise.withResolvers<void>()
  recipient.peer.onMessage((message) => {
    if (message.text() === 'long') message.extend(60_000)
    return finish.promise
  })
  await sender.peer.send(recipient.peer.key, 'long')
  await sender.peer.send(recipient.peer.key, 'short')
  await until('the lease of the other passed', () => recipient.peer.counters.duplicates >= 1)
  const attempts = await world.db.run(
    (sql) =>
      sql<{ attempts: number }[]>`select attempts from message_queue where mesh_id = ${world.meshId} order by id`,
  )
  expect(attempts[0]!.attempts).toBe(1)
  finish.resolve()
})

test('a peer in do-not-disturb mode receives urgent messages, and the rest after the mode ends', async () => {
  await using world = await shared(BRISK)
  const [alice, bob] = [await Member.open(world), await Member.open(world)]
  const texts: string[] = []
  bob.peer.onMessage((message) => void texts.push(message.text()))
  alice.peer.watchPresence()
  bob.peer.setStatus({ availability: 'dnd' })
  await until('it is known', () => alice.peer.presence.get(bob.peer.key)?.availability === 'dnd')
  for (const priority of ['low', 'next', 'now'] as const) await alice.peer.send(bob.peer.key, priority, { priority })
  await alice.peer.send(bob.peer.key, 'now, too', { priority: 'now' })
  await until('the urgent ones came', () => texts.length === 2)
  expect(texts).toEqual(['now', 'now, too'])
  bob.peer.setStatus({ availability: 'idle' })
  await until('the rest came', () => texts.length === 4)
  expect(texts.slice(2)).toEqual(['next', 'low'])
})

test('a delayed message arrives when it is due and not earlier, and holds up no other message', async () => {
  await using world = await shared(BRISK)
  const [alice, bob] = [await Member.open(world), await Member.open(world)]
  const arrived: Message[] = []
  bob.peer.onMessage((message) => void arrived.push(message))
  const notBefore = new Date(Date.now() + 2_000)
  await alice.peer.send(bob.peer.key, 'much later', { notBefore: Date.now() + 3_600_000 })
  await alice.peer.send(bob.peer.key, 'later', { notBefore })
  await alice.peer.send(bob.peer.key, 'at once')
  await until('both came', () => arrived.length === 2)
  expect(arrived.map((message) => message.text()).sort()).toEqual(['at once', 'later'])
  const later = arrived.find((message) => message.text() === 'later')!
  expect(later.receivedAtMs).toBeGreaterThanOrEqual(notBefore.getTime())
  expect(bob.all('gap')).toEqual([])
  await expect(
    alice.peer.send(bob.peer.key, 'never', { notBefore: Date.now() + 60_000, ttlSeconds: 5 }),
  ).rejects.toMatchObject({ code: 'delay_too_long' })
})

describe('receipts', () => {
  test('wait for an absent sender and are reported once', async () => {
    await using world = await shared(BRISK)
    const [place, absent] = await world.enrolMany(2)
    const before = await Member.open(world, place)
    const { envelopeId } = await before.peer.send(keyOf(absent), 'x', { receipts: 'all' })
    await before.peer.close()
    const bob = await Member.open(world, absent)
    const message = await next(bob.peer)
    expect(message.receipts).toBe('all')
    await until('both receipts wait', async () => (await world.count('message_queue')) === 2)
    const after = await Member.open(world, place)
    await until('both are told', () => after.all('receipt').length === 2)
    expect(receiptsOf(after)).toEqual([`${envelopeId} pushed`, `${envelopeId} settled`])
    await until('they are settled', async () => (await world.count('message_queue')) === 0)
  })

  test('report an expired message', async () => {
    await using world = await shared(BRISK)
    const [alice, absent] = [await Member.open(world), await world.enrol()]
    const { envelopeId } = await alice.peer.send(keyOf(absent), 'x', { receipts: 'end', ttlSeconds: 1 })
    await until('it is told', () => alice.all('receipt').length === 1)
    expect(receiptsOf(alice)).toEqual([`${envelopeId} expired`])
  })
})

test('report messages that expired while the sender was absent', async () => {
  await using world = await shared(BRISK)
  const [alice, absent] = [await Member.open(world), await world.enrol()]
  const { envelopeId } = await alice.peer.send(keyOf(absent), 'x', { ttlSeconds: 1 })
  await until('it expired', async () => (await world.count('dead_letter')) === 1)
  const bob = await Member.open(world, absent)
  await until('it is told', () => bob.all('recovered').length === 1)
  const lost = [{ envelopeId, sender: alice.peer.key, reason: 'expired' }]
  expect(bob.all('recovered')).toEqual([{ type: 'recovered', isRecovered: false, lost, isAll: true }])
  await bob.peer.close()
  const again = await Member.open(world, absent)
  await until('nothing more is told', () => again.all('recovered').length === 1)
  expect(again.all('recovered')[0]).toMatchObject({ isRecovered: true, lost: [] })
})

describe('a request', () => {
  test('gets a reply', async () => {
    await using world = await shared(BRISK)
    const [alice, bob] = [await Member.open(world), await Member.open(world)]
    bob.peer.onMessage((message) => message.reply(message.text().toUpperCase()))
    const answer = await alice.peer.request(bob.peer.key, 'hello', { thread: THREAD, ifOnline: true })
    expect(answer).toMatchObject({ sender: bob.peer.key, thread: THREAD, hops: 1, isError: false })
    expect(answer.text()).toBe('HELLO')
    await until('both are settled', async () => (await world.count('message_queue')) === 0)
  })

  test('to an absent peer is refused at once if the sender wants that, or times out', async () => {
    await using world = await shared(BRISK)
    const [alice, absent] = [await Member.open(world), await world.enrol()]
    const asked = alice.peer.request(keyOf(absent), 'x', { ifOnline: true })
    await expect(asked).rejects.toMatchObject({ code: 'no_responder' })
    expect(await world.count('message_queue')).toBe(0)
    const waits = alice.peer.request(keyOf(absent), 'y', { timeoutMs: 200 })
    await expect(waits).rejects.toMatchObject({ code: 'timeout' })
    const bob = await Member.open(world, absent)
    const late = next(alice.peer)
    bob.peer.onMessage((message) => message.reply('sorry, I was away'))
    expect((await late).text()).toBe('sorry, I was away')
  })
})

test('an ephemeral message reaches online peers, is reported if nobody is online, and is never stored', async () => {
  await using world = await shared(BRISK)
  const [alice, absent] = [await Member.open(world), await world.enrol()]
  const unheard = alice.peer.sendEphemeral(keyOf(absent), 'hello?')
  await until('it is told', () => alice.all('ephemeral_lost').length === 1)
  expect(alice.all('ephemeral_lost')[0]).toMatchObject({ envelopeId: unheard, code: 'no_responder' })
  const bob = await Member.open(world, absent)
  const heard = Promise.withResolvers<string>()
  bob.peer.onEphemeral(({ body }) => heard.resolve(new TextDecoder().decode(body)))
  alice.peer.sendEphemeral(bob.peer.key, '50 %')
  expect(await heard.promise).toBe('50 %')
  expect([await world.count('message_queue'), await world.count('dedupe_ledger')]).toEqual([0, 0])
})

test('a watcher receives the current presence, then each change', async () => {
  await using world = await shared(BRISK)
  const bob = await Member.open(world)
  bob.peer.setStatus({ availability: 'working', summary: 'on the roof' })
  const alice = await Member.open(world)
  alice.peer.watchPresence()
  const bobAs = () => alice.peer.presence.get(bob.peer.key)
  await until('the snapshot', () => bobAs()?.summary === 'on the roof')
  expect(bobAs()).toMatchObject({ isOnline: true, availability: 'working' })
  bob.peer.setStatus({ availability: 'idle' })
  await until('the change', () => bobAs()?.availability === 'idle')
  await bob.peer.close()
  await until('the leave', () => bobAs()?.isOnline === false)
})

test('an endless exchange of automatic replies is stopped', async () => {
  await using world = await shared(BRISK)
  const [alice, bob] = [await Member.open(world), await Member.open(world)]
  const send = (options: { hops?: number; thread?: string }) => alice.peer.send(bob.peer.key, 'thanks', options)
  await send({ hops: 64 })
  await expect(send({ hops: 65 })).rejects.toMatchObject({ code: 'too_many_hops' })
  await Promise.all(Array.from({ length: 200 }, () => send({ thread: THREAD })))
  // the rate limit refills one message every ten seconds
  const codeOfNext = () =>
    send({ thread: THREAD }).then(
      () => null,
      ({ code }: { code: string }) => code,
    )
  expect(await until('no more of it is taken', codeOfNext)).toBe('thread_exhausted')
  await send({ thread: 'd0'.repeat(16) })
})
