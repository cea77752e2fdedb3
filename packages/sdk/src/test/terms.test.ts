/** Tests the options of a message and the reports about its delivery, with the whole client. */
import { ready } from '@sealpost/identity'
import { type FrameOf, NO_THREAD } from '@sealpost/protocol'
import type { DeliveryId } from '@sealpost/std'
import { beforeAll, describe, expect, test } from 'vitest'
import type { Message } from '../inbox/message.ts'
import type { ConnectOptions } from '../peer.ts'
import { events, take, World } from './client.ts'

beforeAll(() => ready())

const THREAD = 'c0'.repeat(16)
const FAR_MS = 4_000_000_000_000

async function two(options: Partial<ConnectOptions> = {}) {
  const world = new World()
  const { next, all, onEvent } = events()
  const [alice, bob] = [await world.peer(), await world.peer({ onEvent, ...options })]
  const close = () => Promise.all([alice.close(), bob.close()])
  return { world, alice, bob, next, all, close }
}

describe('sending', () => {
  test('uses the plain frame without options and the other one with terms, in one order', async () => {
    const { world, alice, bob, close } = await two()
    await alice.lookupKey(bob.key)
    const arrived = take(bob, 4)
    const options = [{}, { thread: THREAD }, { noAutoReply: true, hops: 3 }, {}]
    await Promise.all(options.map((one, i) => alice.send(bob.key, String(i), one)))
    const messages = await arrived
    expect(messages.map((message) => message.text())).toEqual(['0', '1', '2', '3'])
    expect(messages.map(({ thread, hops, noAutoReply }) => [thread, hops, noAutoReply])).toEqual([
      [null, 0, false],
      [THREAD, 0, false],
      [null, 3, true],
      [null, 0, false],
    ])
    const frames = world.broker.heard.filter((frame) => frame.type === 'send' || frame.type === 'sendWith')
    expect(frames.map(({ type, envelopes }) => [type, envelopes.length])).toEqual([
      ['send', 1],
      ['sendWith', 2],
      ['send', 1],
    ])
    await close()
  })

  test('passes on all options', async () => {
    const { world, alice, bob, close } = await two()
    const terms = { receipts: 'all', thread: THREAD, hops: 7, noAutoReply: true, ifOnline: true } as const
    await alice.send(bob.key, 'x', { ...terms, notBefore: new Date(FAR_MS), priority: 'now', ttlSeconds: 60 })
    const [frame] = world.heard('sendWith')
    expect(frame!.envelopes[0]).toMatchObject({
      send: { priority: 'now', ttlSeconds: 60, isHead: true },
      terms: { ...terms, notBeforeMs: FAR_MS },
    })
    await close()
  })

  test('of a delayed message leaves no gap in the stream', async () => {
    const { alice, bob, all, close } = await two()
    const arrived = take(bob, 3)
    for (const notBefore of [0, FAR_MS, 0]) await alice.send(bob.key, 'x', { notBefore })
    const streams = (await arrived).map(({ stream }) => stream?.seq)
    expect(streams).toEqual([1, undefined, 2])
    expect(all('gap')).toEqual([])
    await close()
  })

  test.each([
    { thread: 'c0' },
    { hops: -1 },
    { hops: 65_536 },
    { notBefore: Number.NaN },
    { notBefore: new Date('no day') },
    { ttlSeconds: 0.5 },
  ])('refuses %o', async (options) => {
    const { alice, bob, close } = await two()
    await expect(alice.send(bob.key, 'x', options)).rejects.toBeInstanceOf(RangeError)
    await close()
  })

  test.each(['no_responder', 'too_many_hops', 'thread_exhausted', 'delay_too_long'] as const)(
    'fails with the code %s, and the lane continues',
    async (code) => {
      const { world, alice, bob, close } = await two()
      world.broker.intercept = (socket, frame) => {
        if (frame.type !== 'sendWith') return false
        const { envelopeId } = frame.envelopes[0]!.send
        socket.say({ type: 'nack', items: [{ envelopeId, code, retryAfterMs: 0 }] })
        return true
      }
      await expect(alice.send(bob.key, 'x', { ifOnline: true })).rejects.toMatchObject({ code, isRetryable: false })
      await alice.send(bob.key, 'y')
      await close()
    },
  )

  test('reports `maybe_sent` if a resend is refused temporarily, because the message may be stored', async () => {
    const { world, alice, bob, close } = await two()
    await alice.lookupKey(bob.key)
    let heard = 0
    world.broker.intercept = (socket, frame) => {
      if (frame.type !== 'sendWith') return false
      const { envelopeId } = frame.envelopes[0]!.send
      heard += 1
      if (heard === 1) socket.cut(1006)
      else socket.say({ type: 'nack', items: [{ envelopeId, code: 'no_responder', retryAfterMs: 0 }] })
      return true
    }
    await expect(alice.send(bob.key, 'x', { ifOnline: true })).rejects.toMatchObject({ code: 'maybe_sent' })
    await close()
  })
})

describe('receiving', () => {
  test('reject sends the reason and no settle, and the message is not shown again', async () => {
    const { world, alice, bob, close } = await two()
    const rejected = world.hears('reject')
    bob.onMessage((message) => {
      message.reject('keine Lust: ¡no!'.padEnd(200, '.'))
      message.settle()
      message.retry()
      message.extend()
    })
    await alice.send(bob.key, 'x')
    const [item] = (await rejected).items
    expect(item!.reason).toBe('keine Lust: ?no!'.padEnd(120, '.'))
    for (const type of ['settle', 'retry', 'extend'] as const) expect(world.heard(type)).toEqual([])
    await close()
  })

  test('a rejection that was lost with its session is repeated, not turned into a settle', async () => {
    const { world, alice, bob, close } = await two()
    let runs = 0
    bob.onMessage((message) => {
      runs += 1
      message.reject('no')
    })
    const again = Promise.withResolvers<FrameOf<'reject'>>()
    let heard = 0
    world.broker.intercept = (socket, frame) => {
      if (frame.type !== 'reject') return false
      heard += 1
      if (heard === 2) again.resolve(frame)
      else socket.cut(1006)
      return true
    }
    await alice.send(bob.key, 'x')
    expect((await again.promise).items[0]!.reason).toBe('no')
    expect([runs, world.heard('settle')]).toEqual([1, []])
    await close()
  })

  test('extend requests a lease, or the given time', async () => {
    const { world, alice, bob, close } = await two()
    const extended = world.hears('extend', 3)
    bob.onMessage((message) => {
      message.extend()
      message.extend(90_000.5)
      message.extend(90_001)
      message.extend(10 ** 9)
      return new Promise(() => undefined)
    })
    await alice.send(bob.key, 'x')
    await extended
    expect(world.heard('extend').map(({ ids, forMs }) => [ids.length, forMs])).toEqual([
      [1, 30_000],
      [2, 90_001],
      [1, 240_000],
    ])
    await close()
  })

  test('the lease of a message is extended only while its handler runs', async () => {
    const { world, alice, bob, close } = await two()
    world.broker.leaseMs = 40
    world.socketOf(bob).cut(1006)
    const finish = Promise.withResolvers<void>()
    bob.onMessage(() => finish.promise)
    const thrice = world.hears('extend', 3)
    await alice.send(bob.key, 'x')
    expect(await thrice).toMatchObject({ ids: [1], forMs: 40 })
    const settled = world.hears('settle')
    finish.resolve()
    expect(await settled).toMatchObject({ ids: [1] })
    const ofX = () => world.heard('extend').filter(({ ids }) => ids.includes(1 as DeliveryId))
    const { length } = ofX()
    world.broker.intercept = undefined
    await alice.send(bob.key, 'y') // a round trip, after which earlier frames have arrived
    expect(ofX()).toHaveLength(length)
    await close()
  })

  test('a loop over messages extends leases too', async () => {
    const { world, alice, bob, close } = await two()
    world.broker.leaseMs = 40
    world.socketOf(bob).cut(1006)
    const extended = world.hears('extend')
    await alice.send(bob.key, 'x')
    for await (const _ of bob) {
      await extended
      break
    }
    await close()
  })

  test('a message with different threads inside and outside is not shown', async () => {
    const { world, alice, bob, next, close } = await two()
    bob.onMessage(() => expect.unreachable('it was shown'))
    world.broker.intercept = (_, frame) => {
      if (frame.type === 'sendWith') Object.assign(frame.envelopes[0]!.terms, { thread: 'd0'.repeat(16) })
      return false
    }
    await alice.send(bob.key, 'x', { thread: THREAD })
    expect(await next('tamper')).toMatchObject({ sender: alice.key, reason: 'wrong_thread' })
    await close()
  })

  test('a thread that the broker omits is taken from the sealed contents, and a thread that it adds is ignored', async () => {
    const { world, alice, bob, close } = await two()
    world.broker.intercept = (_, frame) => {
      if (frame.type !== 'sendWith') return false
      const { terms } = frame.envelopes[0]!
      terms.thread = terms.thread === THREAD ? NO_THREAD : 'd0'.repeat(16)
      return false
    }
    const arrived = take(bob, 2)
    await alice.send(bob.key, 'x', { thread: THREAD })
    await alice.send(bob.key, 'y', { hops: 1 })
    expect((await arrived).map(({ thread }) => thread)).toEqual([THREAD, null])
    await close()
  })
})

describe('replies', () => {
  async function asked(options: Parameters<Awaited<ReturnType<typeof two>>['alice']['send']>[2]) {
    const world = await two()
    const arrived = take(world.bob, 1)
    const { envelopeId } = await world.alice.send(world.bob.key, 'question', options)
    const [message] = await arrived
    return { ...world, message: message as Message, envelopeId }
  }

  test('keep the thread and the priority, increment the hops, and name the message', async () => {
    const { alice, bob, message, envelopeId, close } = await asked({ thread: THREAD, hops: 4, priority: 'now' })
    const answered = take(alice, 2)
    await message.reply('answer')
    await message.replyError('no idea', { priority: 'low', receipts: 'end' })
    const [answer, error] = await answered
    const inReply = { sender: bob.key, thread: THREAD, hops: 5, inReplyTo: envelopeId, isRequest: false }
    expect(answer).toMatchObject({ ...inReply, priority: 'now', isError: false, receipts: 'none' })
    expect(error).toMatchObject({ ...inReply, priority: 'low', isError: true, receipts: 'end' })
    await close()
  })

  test('not written by a person are refused if the sender declines them', async () => {
    const { world, alice, message, close } = await asked({ noAutoReply: true })
    await expect(message.reply('out of office', { isAutomatic: true })).rejects.toMatchObject({ code: 'no_auto_reply' })
    const answered = take(alice, 1)
    await message.reply('a person wrote this')
    expect((await answered)[0]!.thread).toBe(null)
    expect(world.heard('sendWith')).toHaveLength(2)
    await close()
  })
})

describe('events', () => {
  test('a receipt is reported once and settled each time', async () => {
    const { world, bob, alice, next, all, close } = await two()
    const item = {
      envelopeId: 'ab'.repeat(16) as never,
      recipient: alice.key,
      event: 'settled' as const,
      atMs: 1_700_000_000_000,
    }
    const socket = world.socketOf(bob)
    const settled = world.hears('settle')
    socket.say({ type: 'receipts', items: [{ id: 7 as DeliveryId, ...item }] })
    expect(await next('receipt')).toEqual({ type: 'receipt', ...item })
    socket.say({ type: 'receipts', items: [{ id: 9 as DeliveryId, ...item }] })
    await settled
    expect(world.heard('settle').flatMap(({ ids }) => ids)).toEqual([7, 9])
    socket.say({ type: 'receipts', items: [{ id: 10 as DeliveryId, ...item, event: 'pushed' }] })
    await next('receipt', 2)
    expect(all('receipt').map(({ event }) => event)).toEqual(['settled', 'pushed'])
    await close()
  })

  test('losses between two sessions are reported', async () => {
    const { world, alice, bob, next, close } = await two()
    const mail = { envelopeId: 'ab'.repeat(16) as never, sender: alice.key, reason: 'expired' as const }
    world.socketOf(bob).say({ type: 'recovered', lost: [], isAll: true })
    expect(await next('recovered')).toEqual({ type: 'recovered', isRecovered: true, lost: [], isAll: true })
    world.socketOf(bob).say({ type: 'recovered', lost: [{ id: 3 as DeliveryId, ...mail }], isAll: false })
    expect(await next('recovered', 2)).toEqual({ type: 'recovered', isRecovered: false, lost: [mail], isAll: false })
    await close()
  })
})
