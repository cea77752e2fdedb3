import { describe, expect, test } from 'vitest'
import type { SealpostError } from '../errors.ts'
import { StoreWriter } from '../stores/store.ts'
import { BOB, CAROL, LIMITS, World } from '../test/outbox.ts'
import type { SendItem } from './lane.ts'
import { type OutboxOptions, RESEND_FOR_MS_MAX } from './outbox.ts'

const HELD_MS = 5

function online(options: Partial<OutboxOptions> = {}): World {
  const world = new World(options)
  world.outbox.connected(LIMITS, 0)
  return world
}

const ids = (items: SendItem[]) => items.map((item) => item.envelopeId)
const heads = (items: SendItem[]) => items.map((item) => item.isHead)

describe('window', () => {
  test('the window bounds admitted messages, and acks admit the next ones', () => {
    const world = online({ window: 3 })
    for (let i = 0; i < 5; i++) world.post(BOB)
    const first = world.take()
    expect(first).toHaveLength(3)
    expect(world.take()).toEqual([])
    world.ack(first.slice(0, 2), 7)
    expect(world.take(8)).toHaveLength(2)
    expect(world.results[0]).toMatchObject({ isDuplicate: false, admittedAtMs: 0, ackedAtMs: 7 })
  })

  test('the window never exceeds the limit of the broker', () => {
    const world = new World()
    world.outbox.connected({ ...LIMITS, inFlightMax: 2 }, 0)
    for (let i = 0; i < 5; i++) world.post(BOB)
    expect(world.take()).toHaveLength(2)
  })

  test('the window is bounded in bytes, and admits one envelope of any size', () => {
    const world = online({ windowBytes: 1 })
    world.post(BOB)
    world.post(BOB)
    expect(world.take()).toHaveLength(1)
  })

  test('a post is refused when too many wait', () => {
    const world = new World({ waitingMax: 1 })
    world.post(BOB)
    const second = world.post(BOB)
    expect(world.codeOf(second)).toBe('outbox_full')
  })

  test('nothing is sealed before there is a session', () => {
    const world = new World()
    world.post(BOB)
    expect(world.take()).toEqual([])
    world.outbox.connected(LIMITS, 5)
    expect(world.take(5)).toHaveLength(1)
  })

  test('a long lane does not block another', () => {
    const world = online({ window: 32 })
    for (let i = 0; i < 100; i++) world.post(BOB)
    world.post(CAROL)
    expect(world.take().some((item) => item.recipient === CAROL)).toBe(true)
  })

  test('frames stay within their bounds in items and bytes', () => {
    const world = online({ window: 2000, windowBytes: 1e9 })
    world.outbox.connected({ ...LIMITS, inFlightMax: 9999 }, 0)
    for (let i = 0; i < 900; i++) world.post(BOB)
    for (let i = 0; i < 8; i++) world.post(BOB, { body: new Uint8Array(40_000) })
    const frames = world.outbox.takeFrames(0).filter((frame) => frame.type === 'send')
    expect(frames.flatMap((frame) => frame.envelopes)).toHaveLength(908)
    for (const { envelopes } of frames) {
      expect(envelopes.length).toBeLessThanOrEqual(1000)
      expect(envelopes.reduce((sum, item) => sum + item.envelope.length, 0)).toBeLessThan(200 * 1024)
    }
  })
})

describe('lanes', () => {
  test('`isHead` marks an item with nothing of its lane before it', () => {
    const world = online()
    world.post(BOB)
    world.post(BOB)
    world.post(BOB, { priority: 'now' })
    world.post(CAROL)
    const items = world.take()
    const byLane = Object.groupBy(items, (item) => item.recipient + item.priority)
    for (const lane of Object.values(byLane)) expect(heads(lane!)).toEqual(lane!.map((_, i) => i === 0))
    world.ack(items)
    world.post(BOB)
    expect(heads(world.take())).toEqual([true])
  })

  test('after a retryable nack the lane waits for all replies, then continues from the lowest entry', () => {
    const world = online()
    for (let i = 0; i < 4; i++) world.post(BOB)
    const items = world.take()
    world.nack([items[1]!], 'busy', 200)
    expect(world.take(1000)).toEqual([])
    world.ack([items[0]!])
    world.nack(items.slice(2), 'out_of_sequence')
    expect(world.take(199)).toEqual([])
    expect(world.outbox.wakeAtMs).toBe(200)
    world.post(BOB)
    const again = world.take(200)
    expect(ids(again).slice(0, 3)).toEqual(ids(items.slice(1)))
    expect(heads(again)).toEqual([true, false, false, false])
    expect(again[0]!.envelope).toBe(items[1]!.envelope)
  })

  test('another lane continues meanwhile', () => {
    const world = online()
    world.post(BOB)
    world.nack(world.take(), 'rate_limited', 1000)
    world.post(CAROL)
    expect(world.take().map((item) => item.recipient)).toEqual([CAROL])
  })

  test('a final refusal affects only its post, and the next one begins a new stream', () => {
    const world = online()
    const first = world.post(BOB)
    world.nack(world.take(), 'unknown_recipient')
    expect(world.codeOf(first)).toBe('unknown_recipient')
    world.post(BOB)
    const header = new TextDecoder().decode(world.take()[0]!.envelope)
    expect(header).toContain('"seq":1,')
  })

  test.each([
    ['not_allowed', 'maybe_sent'],
    ['unknown_recipient', 'maybe_sent'],
    ['no_responder', 'maybe_sent'],
    ['id_reused', 'id_reused'],
    ['delay_too_long', 'delay_too_long'],
  ] as const)('what may be stored and is refused as %s by now is told as %s', (code, told) => {
    const world = online()
    const post = world.post(BOB)
    world.take()
    world.outbox.disconnected()
    world.outbox.connected(LIMITS, 1)
    world.nack(world.take(1), code)
    expect(world.codeOf(post)).toBe(told)
  })

  test('a message refused as busy and then for good was certainly not sent', () => {
    const world = online()
    const post = world.post(BOB)
    world.nack(world.take(), 'busy')
    world.nack(world.take(10_000), 'not_allowed')
    expect(world.codeOf(post)).toBe('not_allowed')
  })

  test('the numbers of a stream are consecutive, each with the hash of the previous header', () => {
    const world = online()
    for (let i = 0; i < 3; i++) world.post(BOB)
    const headers = world.take().map((item) => {
      const text = new TextDecoder().decode(item.envelope)
      return JSON.parse(text.slice(0, text.indexOf('\0'))) as { seq: number; streamId: string; prev: string }
    })
    expect(headers.map((header) => header.seq)).toEqual([1, 2, 3])
    expect(new Set(headers.map((header) => header.streamId)).size).toBe(1)
    expect(headers[0]!.prev).toBe('00'.repeat(16))
    expect(new Set(headers.map((header) => header.prev)).size).toBe(3)
  })

  test('a recipient without a key waits, others do not, and order holds when the key arrives', () => {
    const world = online()
    world.keyless.add(BOB)
    world.post(BOB)
    world.post(CAROL)
    world.post(BOB)
    expect(world.take().map((item) => item.recipient)).toEqual([CAROL])
    world.keyless.delete(BOB)
    world.outbox.unlock(BOB)
    expect(world.take().map((item) => item.envelope.at(-1))).toEqual([0, 2])
  })

  test('limits of the broker are checked locally, without using a number', () => {
    const world = online()
    const tooLong = world.post(BOB, { ttlSeconds: 1001 })
    const tooLarge = world.post(BOB, { body: new Uint8Array(64 * 1024 + 1) })
    world.post(BOB)
    expect(new TextDecoder().decode(world.take()[0]!.envelope)).toContain('"seq":1,')
    expect([world.codeOf(tooLong), world.codeOf(tooLarge)]).toEqual(['ttl_too_long', 'body_too_large'])
  })
})

describe('sessions', () => {
  test('a new session resends everything unanswered with the same ids, bytes and order', () => {
    const world = online()
    for (const to of [BOB, CAROL, BOB, CAROL]) world.post(to)
    const items = world.take()
    world.ack([items[0]!])
    world.outbox.disconnected()
    world.post(BOB)
    expect(world.take()).toEqual([])
    world.outbox.connected(LIMITS, 10)
    const again = world.take(10)
    expect(ids(again).slice(0, 3)).toEqual(ids(items.slice(1)))
    expect(again.slice(0, 3).map((item) => item.envelope)).toEqual(items.slice(1).map((item) => item.envelope))
    expect(heads(again.slice(0, 3))).toEqual(
      again.slice(0, 3).map((item, i) => again.findIndex((other) => other.recipient === item.recipient) === i),
    )
    expect(again[3]!.isHead).toBe(false)
  })

  test('a pause ends with its session', () => {
    const world = online()
    world.post(BOB)
    world.nack(world.take(), 'busy', 60_000)
    world.outbox.disconnected()
    world.outbox.connected(LIMITS, 1)
    expect(heads(world.take(1))).toEqual([true])
  })

  test('nothing new is sent after `goaway`, and replies still count', () => {
    const world = online()
    world.post(BOB)
    const items = world.take()
    world.outbox.leaving()
    world.post(BOB)
    expect(world.take()).toEqual([])
    world.ack(items)
    expect(world.results[0]).toBeDefined()
  })

  test('a message is no longer resent once twelve hours have passed since it was first sent', () => {
    const world = online()
    const old = world.post(BOB)
    world.take(0)
    const young = world.post(BOB)
    world.take(1000)
    world.outbox.disconnected()
    expect(world.outbox.wakeAtMs).toBe(RESEND_FOR_MS_MAX)
    world.outbox.expire(RESEND_FOR_MS_MAX - 1)
    expect(world.codeOf(old)).toBeUndefined()
    world.outbox.connected(LIMITS, RESEND_FOR_MS_MAX)
    expect(world.codeOf(old)).toBe('maybe_sent')
    expect(world.codeOf(young)).toBeUndefined()
    expect(heads(world.take(RESEND_FOR_MS_MAX))).toEqual([true])
  })

  test('with a broker that remembers ids for a shorter time, resends stop after half of that time', () => {
    const world = new World()
    world.outbox.connected({ ...LIMITS, dedupeSeconds: 60 }, 0)
    const old = world.post(BOB)
    world.take(0)
    world.outbox.disconnected()
    expect(world.outbox.wakeAtMs).toBe(30_000)
    world.outbox.expire(29_999)
    expect(world.codeOf(old)).toBeUndefined()
    world.outbox.expire(30_000)
    expect(world.codeOf(old)).toBe('maybe_sent')
  })

  test.each([
    [60, 86_400],
    [86_400, 60],
  ])('of two sessions with %i and %i seconds, the shorter time counts', (first, second) => {
    const world = new World()
    world.outbox.connected({ ...LIMITS, dedupeSeconds: first }, 0)
    const old = world.post(BOB)
    world.take(0)
    world.outbox.disconnected()
    world.outbox.connected({ ...LIMITS, dedupeSeconds: second }, 30_000)
    expect(world.codeOf(old)).toBe('maybe_sent')
  })

  test('closing settles every post; attempted ones may be stored', () => {
    const world = online({ window: 1 })
    world.post(BOB)
    world.post(BOB)
    world.take()
    world.outbox.close({ code: 'closed' } as SealpostError)
    expect([world.codeOf(0), world.codeOf(1)]).toEqual(['maybe_sent', 'closed'])
    expect(world.outbox.pendingCount).toBe(0)
  })
})

describe('while a reply is owed, new messages', () => {
  const worldWithOwedReply = () => {
    const world = new World()
    world.outbox.connected(LIMITS, 0)
    world.post(BOB)
    return { world, owed: world.take() }
  }

  test('are held until eight wait', () => {
    const { world } = worldWithOwedReply()
    for (let n = 0; n < 7; n++) world.post(BOB)
    expect(world.take()).toEqual([])
    world.post(CAROL)
    expect(world.take()).toHaveLength(8)
  })

  test('are held until the last reply', () => {
    const { world, owed } = worldWithOwedReply()
    world.post(BOB)
    world.ack(owed)
    expect(world.take()).toHaveLength(1)
  })

  test('are held for 5 ms at most, counted from the first of them', () => {
    const { world } = worldWithOwedReply()
    world.post(BOB, { nowMs: 10 })
    world.post(BOB, { nowMs: 14 })
    expect([world.take(14), world.outbox.wakeAtMs]).toEqual([[], 10 + HELD_MS])
    expect(world.take(10 + HELD_MS)).toHaveLength(2)
    expect(world.outbox.wakeAtMs).toBe(Infinity)
  })

  test('are sent with a message of priority `now`, which is not held', () => {
    const { world } = worldWithOwedReply()
    world.post(BOB)
    world.post(CAROL, { priority: 'now' })
    expect(world.take()).toHaveLength(2)
  })

  test('are not held a second time if the window kept them back', () => {
    const world = new World({ window: 2 })
    world.outbox.connected(LIMITS, 0)
    for (let n = 0; n < 3; n++) world.post(BOB)
    const [first] = world.take()
    world.ack([first!])
    expect(world.take()).toHaveLength(1)
  })
})

describe('with a store', () => {
  test('posts stored while their lane pauses follow the refused ones', () => {
    const writer = new StoreWriter(() => undefined)
    const world = new World({}, 1, writer)
    world.outbox.connected(LIMITS, 0)
    const keep = () => {
      writer.flush()
      writer.written()
    }
    world.post(BOB)
    expect(world.take()).toEqual([])
    keep()
    const first = world.take()
    world.post(BOB)
    expect(world.take(HELD_MS)).toEqual([])
    world.nack(first, 'busy', 100)
    keep()
    expect(world.take(50)).toEqual([])
    const again = world.take(6_000)
    expect(again.map((item) => item.isHead)).toEqual([true, false])
    expect(again[0]!.envelope).toBe(first[0]!.envelope)
  })
})

describe('after a database restore', () => {
  const reoffer = (world: World, nowMs = 1) => world.outbox.reoffer(() => undefined, nowMs)

  test('acknowledged messages are resent in order, before unacknowledged ones', () => {
    const world = online()
    for (let i = 0; i < 3; i++) world.post(BOB)
    world.post(CAROL)
    const sent = world.take()
    world.ack([sent[0]!, sent[1]!, sent[3]!])
    world.outbox.disconnected()
    expect(reoffer(world)).toBe(3)
    world.outbox.connected(LIMITS, 1)
    const again = world.take(1)
    expect(ids(again)).toEqual(ids([sent[0]!, sent[1]!, sent[3]!, sent[2]!]))
    expect(heads(again)).toEqual([true, false, true, false])
    expect(again.map((item) => item.envelope)).toEqual([0, 1, 3, 2].map((i) => sent[i]!.envelope))
    world.ack(again, 2)
    expect([world.outbox.pendingCount, world.codeOf(2)]).toEqual([0, undefined])
  })

  test('a second restore resends all of them again, once', () => {
    const world = online()
    world.post(BOB)
    world.ack(world.take())
    for (let restores = 0; restores < 2; restores++) {
      world.outbox.disconnected()
      expect(reoffer(world)).toBe(1)
      world.outbox.connected(LIMITS, 1)
      world.ack(world.take(1))
    }
    expect(world.outbox.pendingCount).toBe(0)
  })

  test('the resend stays within the window, in the order of each lane, before new messages', () => {
    const world = online({ window: 4 })
    for (let n = 0; n < 9; n++) world.post(n % 2 === 0 ? BOB : CAROL)
    const before: SendItem[] = []
    for (let said = world.take(); said.length > 0; said = world.take()) {
      before.push(...said)
      world.ack(said)
    }
    world.outbox.disconnected()
    expect(reoffer(world)).toBe(9)
    world.outbox.connected(LIMITS, 1)
    world.post(BOB)
    const again: SendItem[] = []
    for (let said = world.take(1); said.length > 0; said = world.take(1)) {
      expect(said.length).toBeLessThanOrEqual(4)
      again.push(...said)
      world.ack(said.slice(0, 3))
      if (said.length > 3) world.nack(said.slice(3), 'unknown_recipient')
    }
    expect(ids(again).slice(0, 9)).toEqual(ids(before))
    expect(again.slice(9).map((item) => item.envelope.at(-1))).toEqual([9])
    expect(world.outbox.isHeldUp).toBe(false)
  })

  test('a lane that pauses meanwhile continues from the same position', () => {
    const world = online({ window: 4 })
    for (let n = 0; n < 8; n++) world.post(BOB)
    for (let said = world.take(); said.length > 0; said = world.take()) world.ack(said)
    world.outbox.disconnected()
    reoffer(world)
    world.outbox.connected(LIMITS, 1)
    const [first, ...others] = world.take(1)
    world.nack([first!], 'busy')
    world.nack(others, 'out_of_sequence')
    world.post(CAROL)
    const texts: (number | undefined)[] = []
    for (let said = world.take(10_000); said.length > 0; said = world.take(10_000)) {
      texts.push(...said.filter(({ recipient }) => recipient === BOB).map((item) => item.envelope.at(-1)))
      world.ack(said)
    }
    expect(texts).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
    expect(world.outbox.pendingCount).toBe(0)
  })

  test('messages acknowledged more than 15 minutes ago are not resent', () => {
    const world = online()
    world.post(BOB)
    world.ack(world.take(), 0)
    world.post(BOB)
    world.ack(world.take(), 10_000)
    expect(reoffer(world, 15 * 60_000)).toBe(1)
  })
})
