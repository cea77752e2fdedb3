import type { StreamId } from '@sealpost/identity'
import type { Availability, Priority } from '@sealpost/protocol'
import { type PoolId, seededRandom } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { type MailClaim, MailDistribution, REPORTS_WITHIN_MS, type SessionReport, UNREAD_MS } from './distribution.ts'

const PLACE = { streamId: 'ab'.repeat(16) as StreamId, seq: 1 }
const claim = (id: string, more: Partial<MailClaim> = {}): MailClaim => ({ id, place: PLACE, isRead: true, ...more })

/** A distribution with a record of its orders. */
function distribution(awaited: readonly string[] = []) {
  const orders: string[] = []
  const ports = {
    give: (label: string, id: string) => void orders.push(`${label} gets ${id}`),
    recall: (label: string, id: string) => void orders.push(`${label} returns ${id}`),
    refuseClaim: (label: string, id: string) => void orders.push(`${label} lost ${id}`),
    finish: (id: string, { kind }: { kind: string }, label: string) => void orders.push(`${label} ${kind} ${id}`),
  }
  const host = new MailDistribution(ports, awaited, 0)
  const taken = () => orders.splice(0)
  const joins = (label: string, report: Partial<SessionReport> = {}, nowMs = 0) =>
    host.joined({ label, credit: 2, status: { availability: 'idle' }, claims: [], threads: [], ...report }, nowMs)
  const arrives = (
    id: string,
    { nowMs = 0, ...facts }: { thread?: string; priority?: Priority; pool?: PoolId; nowMs?: number } = {},
  ) => host.arrived({ id, thread: null, priority: 'next', ...facts }, nowMs)
  const settles = (label: string, id: string, nowMs = 0) => host.ended(label, id, { kind: 'settled' }, nowMs)
  return { host, taken, joins, arrives, settles }
}

const status = (availability: Availability) => ({ availability })

describe('a message to the member', () => {
  test('goes to the session with the fewest open messages, and in turn if several have as few', () => {
    const { joins, arrives, settles, taken } = distribution()
    for (const label of ['a', 'b', 'c']) joins(label)
    for (const id of ['1', '2', '3', '4']) arrives(id)
    expect(taken()).toEqual(['a gets 1', 'b gets 2', 'c gets 3', 'a gets 4'])
    settles('b', '2')
    arrives('5')
    expect(taken()).toEqual(['b settled 2', 'b gets 5'])
  })

  test('waits while every session has its credit, and the most urgent message goes first', () => {
    const { joins, arrives, settles, taken } = distribution()
    joins('a', { credit: 1 })
    arrives('1')
    arrives('2', { priority: 'low' })
    arrives('3')
    arrives('4', { priority: 'now' })
    expect(taken()).toEqual(['a gets 1'])
    for (const id of ['1', '4', '3', '2']) settles('a', id)
    expect(taken().filter((order) => order.includes('gets'))).toEqual(['a gets 4', 'a gets 3', 'a gets 2'])
  })

  test('does not go to a session with dnd, unless its priority is now', () => {
    const { host, joins, arrives, taken } = distribution()
    joins('a', { status: status('dnd') })
    arrives('1')
    arrives('2', { priority: 'now' })
    expect(taken()).toEqual(['a gets 2'])
    host.statusChanged('a', status('working'), 0)
    expect(taken()).toEqual(['a gets 1'])
  })

  test('that a busy session has not read goes to one that holds none, if the session shares them', () => {
    const { host, joins, arrives, taken } = distribution()
    joins('a', { credit: 4, sharesUnread: true })
    for (const id of ['1', '2', '3']) arrives(id)
    host.read('a', '1')
    joins('b', { credit: 4, sharesUnread: true })
    taken()
    host.tick(1_000)
    expect(taken()).toEqual(['a returns 2'])
    host.released('a', '2', 1_000)
    expect(taken()).toEqual(['b gets 2'])
    host.tick(2_000)
    joins('c', { credit: 4 })
    host.tick(3_000)
    expect(taken()).toEqual(['a returns 3'])
  })

  test('goes to a session for pools only if it was sent to one of them', () => {
    const { host, joins, arrives, taken } = distribution()
    const pool = 'c'.repeat(64) as PoolId
    joins('a', { isForPools: true, pools: [pool] })
    arrives('1')
    arrives('2', { pool })
    expect(taken()).toEqual(['a gets 2'])
    expect([host.isMailWanted, host.isAnyHeld]).toEqual([false, true])
    joins('b')
    expect(taken()).toEqual(['b gets 1'])
    expect(host.isMailWanted).toBe(true)
  })

  test('of a pool goes only to a session that takes the pool, and back to the pool without one', () => {
    const { host, joins, arrives, taken } = distribution()
    const pool = 'c'.repeat(64) as PoolId
    joins('a')
    arrives('1', { pool })
    expect(taken()).toEqual([])
    host.poolsChanged('a', [pool], 0)
    expect(taken()).toEqual(['a gets 1'])
    joins('b', { pools: [pool] })
    arrives('2', { pool })
    arrives('3', { pool })
    arrives('4', { pool })
    host.poolsChanged('a', [], 0)
    host.left('b', 0)
    expect(taken()).toEqual(['b gets 2', 'a gets 3', 'b gets 4', ' returned 2', ' returned 4'])
    arrives('5', { pool })
    host.tick(4_999)
    expect(taken()).toEqual([])
    host.tick(5_000)
    expect(taken()).toEqual([' returned 5'])
  })

  test('goes to another session if its session ends before it settles the message', () => {
    const { host, joins, arrives, taken } = distribution()
    joins('a')
    joins('b', { status: status('dnd') })
    arrives('1')
    host.read('a', '1')
    host.statusChanged('b', status('idle'), 0)
    host.left('a', 0)
    expect(taken()).toEqual(['a gets 1', 'b gets 1'])
  })

  test('has its outcome from the session that holds it only', () => {
    const { joins, arrives, settles, taken } = distribution()
    joins('a')
    joins('b')
    arrives('1')
    settles('b', '1')
    settles('a', '1')
    expect(taken()).toEqual(['a gets 1', 'b lost 1', 'a settled 1'])
  })
})

describe('a thread', () => {
  test('stays with its session, also across hosts', () => {
    const { joins, arrives, settles, taken } = distribution()
    joins('a')
    joins('b', { threads: ['t'] })
    arrives('1', { thread: 't' })
    arrives('2', { thread: 't' })
    settles('b', '1')
    arrives('3', { thread: 't' })
    expect(taken()).toEqual(['b gets 1', 'b gets 2', 'b settled 1', 'b gets 3'])
  })

  test('waits for its busy session for half a minute, then moves', () => {
    const { host, joins, arrives, settles, taken } = distribution()
    joins('a', { credit: 1 })
    arrives('1', { thread: 't' })
    joins('b')
    host.read('a', '1')
    arrives('2', { thread: 't' })
    arrives('3', { thread: 't' })
    host.tick(UNREAD_MS - 1)
    expect(taken()).toEqual(['a gets 1'])
    host.tick(UNREAD_MS)
    settles('a', '1', UNREAD_MS)
    arrives('4', { thread: 't', nowMs: UNREAD_MS })
    expect(taken()).toEqual(['b gets 2', 'b gets 3', 'a settled 1'])
  })

  test('moves at once if its session has dnd or has ended', () => {
    const { host, joins, arrives, taken } = distribution()
    joins('a', { threads: ['t', 'u'] })
    joins('b')
    host.statusChanged('a', status('dnd'), 0)
    arrives('1', { thread: 't' })
    host.left('a', 0)
    arrives('2', { thread: 'u' })
    expect(taken()).toEqual(['b gets 1', 'b gets 2'])
  })
})

describe('an unread message', () => {
  test('is recalled after half a minute if another session is free, and goes there once it is released', () => {
    const { host, joins, arrives, taken } = distribution()
    joins('a')
    arrives('1')
    host.tick(UNREAD_MS)
    joins('b')
    expect(taken()).toEqual(['a gets 1'])
    host.tick(UNREAD_MS)
    expect(taken()).toEqual(['a returns 1'])
    host.tick(UNREAD_MS * 2)
    host.released('a', '1', UNREAD_MS * 2)
    expect(taken()).toEqual(['b gets 1'])
  })

  test('stays if its session has read it in the meantime', () => {
    const { host, joins, arrives, settles, taken } = distribution()
    joins('a')
    arrives('1')
    joins('b')
    host.tick(UNREAD_MS)
    host.read('a', '1')
    host.released('a', '1', UNREAD_MS)
    host.tick(UNREAD_MS * 3)
    settles('a', '1')
    expect(taken()).toEqual(['a gets 1', 'a returns 1', 'a settled 1'])
  })

  test('keeps a session that does not reply to a recall from getting more', () => {
    const { host, joins, arrives, taken } = distribution()
    joins('a')
    arrives('1')
    joins('b')
    host.tick(UNREAD_MS)
    for (const id of ['2', '3']) arrives(id)
    expect(taken()).toEqual(['a gets 1', 'a returns 1', 'b gets 2', 'b gets 3'])
    host.left('a', UNREAD_MS)
    host.left('b', UNREAD_MS)
    joins('c', { credit: 3 })
    expect(taken()).toEqual(['c gets 1', 'c gets 2', 'c gets 3'])
  })

  test('of a claim goes back to the queue if its session releases it before the broker has pushed it again', () => {
    const { host, joins, arrives, taken } = distribution()
    joins('a', { claims: [claim('1', { isRead: false })] })
    joins('b')
    host.tick(UNREAD_MS)
    arrives('1', { nowMs: UNREAD_MS })
    host.tick(UNREAD_MS)
    host.released('a', '1', UNREAD_MS)
    expect(taken()).toEqual(['a returns 1', 'b gets 1'])
  })
})

describe('a new host', () => {
  test('gives no message before all sessions have reported or ended', () => {
    const { host, joins, arrives, taken } = distribution(['a', 'b'])
    arrives('1')
    arrives('2')
    joins('a')
    expect([taken(), host.awaited]).toEqual([[], ['b']])
    host.left('b', 0)
    expect(taken()).toEqual(['a gets 1', 'a gets 2'])
  })

  test('leaves a message with the session that holds it', () => {
    const { joins, arrives, settles, taken } = distribution(['a', 'b'])
    joins('a')
    arrives('1')
    joins('b', { claims: [claim('1'), claim('2')] })
    arrives('2')
    settles('b', '2')
    settles('b', '1')
    expect(taken()).toEqual(['b settled 2', 'b settled 1'])
  })

  test('gives a message that was settled to nobody, whether it arrives before or after the report', () => {
    const { joins, arrives, taken } = distribution(['a', 'b'])
    arrives('1')
    const claims = ['1', '2'].map((id) => claim(id, { outcome: { kind: 'settled' } }))
    joins('a', { claims })
    joins('b')
    arrives('2')
    expect(taken()).toEqual(['a settled 1', 'a settled 2'])
  })

  test('settles a message after the session that reported it has ended', () => {
    const { host, joins, arrives, taken } = distribution()
    joins('a', { claims: [claim('1')] })
    host.ended('a', '1', { kind: 'rejected', reason: 'no' }, 0)
    host.left('a', 0)
    joins('b')
    arrives('1')
    expect(taken()).toEqual(['a rejected 1'])
  })

  test('waits for ten seconds only, and refuses late claims', () => {
    const { host, joins, arrives, settles, taken } = distribution(['a', 'b'])
    arrives('1')
    joins('b')
    host.tick(REPORTS_WITHIN_MS)
    joins('a', { claims: [claim('1'), claim('2', { outcome: { kind: 'settled' } })] })
    settles('b', '1')
    expect(taken()).toEqual(['b gets 1', 'a lost 1', 'b settled 1'])
  })
})

test('a session that connects again keeps the messages that it claims, and the others go elsewhere', () => {
  const { joins, arrives, settles, taken } = distribution()
  joins('a', { credit: 3 })
  for (const id of ['1', '2', '3']) arrives(id)
  joins('b', { status: status('dnd') })
  joins('a', { claims: [claim('1'), claim('2', { outcome: { kind: 'settled' } })] })
  settles('a', '1')
  expect(taken()).toEqual(['a gets 1', 'a gets 2', 'a gets 3', 'a settled 2', 'a gets 3', 'a settled 1'])
})

test('a mailbox that is paused keeps its messages until it is resumed', () => {
  const { host, joins, arrives, taken } = distribution()
  joins('a')
  host.pause(['x'])
  arrives('x/1')
  arrives('y/2')
  expect(taken()).toEqual(['a gets y/2'])
  host.resume(['x'], 0)
  expect(taken()).toEqual(['a gets x/1'])
})

test('a mailbox is in use while a session holds one of its messages, or its outcome is not stored', () => {
  const { host, joins, arrives, settles, taken } = distribution()
  joins('a', { credit: 1, claims: [claim('x/1')] })
  arrives('y/2')
  expect(['x', 'y', ''].map((mailbox) => host.isInUse(mailbox))).toEqual([true, false, false])
  expect(host.remove('y')).toEqual(['y/2'])
  settles('a', 'x/1')
  expect([taken(), host.isInUse('x')]).toEqual([[], true])
  expect(host.takeStored(({ place }) => place?.seq === 2)).toEqual([])
  expect(host.takeStored(({ place }) => place?.seq === 1)).toEqual([{ label: 'a', id: 'x/1' }])
  expect(host.isInUse('x')).toBe(false)
})

test('the member has the status of its most available session', () => {
  const { host, joins } = distribution()
  expect(host.status).toBeNull()
  joins('a', { status: { availability: 'dnd', summary: 'asleep' } })
  expect(host.status).toEqual({ availability: 'dnd', summary: 'asleep' })
  joins('b', { status: { availability: 'working', summary: 'a build' } })
  expect(host.status).toEqual({ availability: 'working', summary: 'a build' })
  host.left('b', 0)
  expect(host.status?.summary).toBe('asleep')
})

test.each([1, 2, 3, 4])('in random runs (seed %i), no message is settled twice, and none is lost', (seed) => {
  const random = seededRandom(seed)
  const settled: string[] = []
  const left = new Set<string>()
  const labels = ['a', 'b', 'c']
  /** The messages of each session, as the session knows them. */
  const held = new Map(labels.map((label) => [label, new Set<string>()]))
  const unconfirmed = new Map(labels.map((label) => [label, new Set<string>()]))
  const down = new Set<string>(labels)
  let nowMs = 0
  let host: MailDistribution
  const ports = {
    give: (label: string, id: string) => void held.get(label)!.add(id),
    recall: (label: string, id: string) => {
      held.get(label)!.delete(id)
      queue.push(() => host.released(label, id, nowMs))
    },
    refuseClaim: (label: string, id: string) => void held.get(label)!.delete(id),
    finish: (id: string, _: unknown, label: string) => {
      settled.push(id)
      left.delete(id)
      unconfirmed.get(label)!.delete(id)
    },
  }
  const queue: (() => void)[] = []
  const joins = (label: string) => {
    down.delete(label)
    const open = [...held.get(label)!].map((id) => claim(id, { isRead: false }))
    const ended = [...unconfirmed.get(label)!].map((id) => claim(id, { outcome: { kind: 'settled' } }))
    const claims = [...open, ...ended]
    host.joined({ label, credit: 2, status: { availability: 'idle' }, claims, threads: [] }, nowMs)
  }
  const hosts = () => {
    queue.length = 0
    const running = labels.filter((label) => !down.has(label))
    host = new MailDistribution(ports, running, nowMs)
    const arrivals = [...left].map((id) => () => host.arrived({ id, thread: null, priority: 'next' }, nowMs))
    queue.push(...arrivals, ...running.map((label) => () => joins(label)))
    queue.sort(() => random.next() - 0.5)
  }
  const dies = (label: string) => {
    down.add(label)
    for (const which of [held, unconfirmed]) which.get(label)!.clear()
    host.left(label, nowMs)
  }
  const settles = (label: string) => {
    const [id] = held.get(label)!
    if (!id) return
    held.get(label)!.delete(id)
    unconfirmed.get(label)!.add(id)
    if (host.awaited.includes(label)) return // it is not connected
    host.ended(label, id, { kind: 'settled' }, nowMs)
  }
  hosts()
  for (let step = 0; step < 1_000; step++) {
    nowMs += random.below(3_000)
    const label = labels[random.below(labels.length)]!
    const act = random.below(12)
    if (act === 0 && random.chance(0.1)) hosts()
    else if (act === 1 && random.chance(0.3) && !down.has(label)) dies(label)
    else if (act === 2 && down.has(label)) joins(label)
    else if (act <= 5) {
      left.add(String(step))
      host!.arrived({ id: String(step), thread: String(step % 5), priority: 'next' }, nowMs)
    } else if (act <= 9) settles(label)
    else if (queue.length > 0) queue.shift()!()
    else host!.tick(nowMs)
  }
  while (queue.length > 0) queue.shift()!()
  for (const label of labels) if (down.has(label)) joins(label)
  for (let turn = 0; left.size > 0 && turn < 10_000; turn++) {
    nowMs += 1_000
    host!.tick(nowMs)
    while (queue.length > 0) queue.shift()!()
    for (const label of labels) settles(label)
  }
  expect([...left]).toEqual([])
  expect(settled.length).toBe(new Set(settled).size)
  expect(settled.length).toBeGreaterThan(100)
})
