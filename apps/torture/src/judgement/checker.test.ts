/** Tests the checker with hand-written ledgers: violations to detect, and histories to accept. */
import { expect, test } from 'vitest'
import type { Leftover } from '../cluster/postgres.ts'
import { findingsOf } from './checker.ts'
import { historyOf, type Kind, type LedgerEvent } from './ledger.ts'

const LEASE_MS = 10_000

/** A ledger in which peer 0 writes to peer 1. */
class Book {
  readonly events: LedgerEvent[] = []
  readonly leftovers: Leftover[] = []
  atMs = 1_000_000

  after(ms: number): this {
    this.atMs += ms
    return this
  }
  sent(n: number, kind: Kind = 'plain'): this {
    return this.add({ e: 'sent', from: 0, to: 1, n, kind })
  }
  acked(n: number): this {
    return this.add({ e: 'acked', from: 0, to: 1, n, envelopeId: idOf(n) })
  }
  pushed(n: number, { peer = 1, session = 1, sender = 0, attempt = 1, deliveryId = n } = {}): this {
    return this.add({ e: 'pushed', peer, session, items: [[deliveryId, idOf(n), sender, attempt]] })
  }
  got(n: number, { peer = 1, life = 1, isWhole = true } = {}): this {
    return this.add({ e: 'got', peer, life, envelopeId: idOf(n), from: 0, to: 1, n, kind: 'plain', isWhole })
  }
  delivered(...numbers: number[]): this {
    for (const n of numbers) this.sent(n).acked(n)
    for (const n of numbers) this.pushed(n).got(n)
    return this
  }
  left(n: number, reason: Leftover['reason']): this {
    this.leftovers.push({ envelopeId: idOf(n), reason })
    return this
  }
  add(event: LedgerEvent extends infer E ? (E extends unknown ? Omit<E, 'atMs'> : never) : never): this {
    this.atMs += 1
    this.events.push({ atMs: this.atMs, ...event } as LedgerEvent)
    return this
  }
  async findings() {
    const { breaches, repeats } = findingsOf(await historyOf(this.events, this.leftovers), { leaseMs: LEASE_MS })
    return { rules: breaches.map(({ rule }) => rule), causes: repeats.map(({ cause }) => cause) }
  }
}

const idOf = (n: number) => `envelope-${n}`
const CLEAN = { rules: [], causes: [] }

test('a message that is delivered, queued, expired or dead is not lost', async () => {
  const book = new Book().delivered(0, 1)
  book.sent(2).acked(2).left(2, null).sent(3, 'brief').acked(3).left(3, 'expired')
  book.sent(4, 'poison').acked(4).left(4, 'strikes')
  expect(await book.findings()).toEqual(CLEAN)
})

test('an acked message that is nowhere is lost', async () => {
  expect(await new Book().delivered(0).sent(1).acked(1).findings()).toMatchObject({ rules: ['lost'] })
})

test('a message that reached a socket but no application is lost', async () => {
  expect(await new Book().sent(0).acked(0).pushed(0).findings()).toMatchObject({ rules: ['lost'] })
})

test('a refused message may be stored or not, and a send without a reply is reported', async () => {
  const book = new Book().sent(0).add({ e: 'refused', from: 0, to: 1, n: 0, code: 'maybe_sent' }).pushed(0).got(0)
  expect(await book.findings()).toEqual(CLEAN)
  expect(await book.sent(1).findings()).toMatchObject({ rules: ['unanswered'] })
})

test('a message with a wrong recipient, sender or body, or without a send, is misdelivered', async () => {
  const elsewhere = new Book().delivered(0).pushed(0, { peer: 2, attempt: 2 })
  expect((await elsewhere.findings()).rules).toContain('misdelivered')
  const renamed = new Book().sent(0).acked(0).pushed(0, { sender: 2 }).got(0)
  expect((await renamed.findings()).rules).toEqual(['misdelivered'])
  const invented = new Book().pushed(0).got(0)
  expect((await invented.findings()).rules).toContain('misdelivered')
  const spoiled = new Book().sent(0).acked(0).pushed(0).got(0, { isWhole: false })
  expect((await spoiled.findings()).rules).toEqual(['misdelivered'])
})

test('first deliveries of a pair ascend, and gaps and repeats do not matter', async () => {
  const turned = new Book().sent(0).sent(1).acked(0).acked(1).pushed(1).pushed(0).got(0).got(1)
  expect((await turned.findings()).rules).toEqual(['misordered'])
  const shown = new Book().sent(0).sent(1).acked(0).acked(1).pushed(0).pushed(1).got(1).got(0)
  expect((await shown.findings()).rules).toEqual(['misordered'])
  const gap = new Book().delivered(0, 2).pushed(0, { session: 2, attempt: 2 })
  expect(await gap.findings()).toEqual({ rules: [], causes: ['session'] })
})

test('a short-lived message may be overtaken while the clock is set, and only then', async () => {
  const said = () => new Book().sent(0, 'brief').sent(1).acked(0).acked(1)
  const overtaken = (book: Book) => book.pushed(1).got(1).pushed(0).got(0).findings()
  const set = { e: 'fault', no: 1, scenario: 'clock-database', peers: null } as const
  expect(await overtaken(said().add(set))).toEqual(CLEAN)
  expect((await overtaken(said())).rules).toContain('misordered')
  expect((await overtaken(new Book().sent(0).sent(1).acked(0).acked(1).add(set))).rules).toContain('misordered')
})

test('a further push needs a cause', async () => {
  const again = (book: Book) => book.pushed(0, { attempt: 2 }).findings()
  expect(await again(new Book().delivered(0))).toEqual({ rules: ['duplicated'], causes: [] })
  expect(await again(new Book().delivered(0).after(LEASE_MS))).toEqual({ rules: [], causes: ['lease'] })
  const failed = new Book().delivered(0).add({ e: 'broker failed', event: 'claim.failed' })
  expect(await again(failed)).toEqual({ rules: [], causes: ['fence'] })
  const putOff = new Book().delivered(0).add({ e: 'put off', peer: 1, envelopeId: idOf(0) })
  expect(await again(putOff)).toEqual({ rules: [], causes: ['retry'] })
  const clock = new Book().delivered(0).add({ e: 'fault', no: 1, scenario: 'clock-database', peers: null })
  expect(await again(clock)).toEqual({ rules: [], causes: ['clock'] })
})

test('a lease may have expired while its push was delayed', async () => {
  const book = new Book()
    .sent(0)
    .acked(0)
    .add({ e: 'fault', no: 1, scenario: 'peer-stop', peers: [1] })
  book.after(LEASE_MS).add({ e: 'repaired', no: 1 }).pushed(0).got(0).pushed(0, { attempt: 2 })
  expect(await book.findings()).toEqual({ rules: [], causes: ['lease'] })
})

test('a push that repeats an attempt number or has another queue id has no permitted cause', async () => {
  const twice = new Book().delivered(0).pushed(0, { session: 2 })
  expect((await twice.findings()).rules).toEqual(['duplicated'])
  const stored = new Book().delivered(0).pushed(0, { session: 2, attempt: 2, deliveryId: 77 })
  expect((await stored.findings()).rules).toEqual(['duplicated'])
})

test('a message may keep its attempt number only if its peer closed the session normally and did not hand it out', async () => {
  const pushedOnce = () => new Book().sent(0).acked(0).pushed(0)
  const finish = (book: Book, session = 1) => book.add({ e: 'finished', peer: 1, session })
  const again = (book: Book, session = 2) => book.pushed(0, { session }).got(0, { life: 2 }).findings()
  expect(await again(finish(pushedOnce()))).toEqual({ rules: [], causes: ['session'] })
  expect((await again(pushedOnce())).rules).toEqual(['duplicated'])
  expect((await again(finish(pushedOnce(), 2))).rules).toEqual(['duplicated'])
  expect((await again(finish(pushedOnce()), 1)).rules).toEqual(['duplicated'])
  expect((await again(finish(pushedOnce().got(0)))).rules).toEqual(['duplicated'])
})

test('an application receives a message once in each life', async () => {
  expect((await new Book().delivered(0).got(0).findings()).rules).toEqual(['duplicated'])
  expect(await new Book().delivered(0).got(0, { life: 2 }).findings()).toEqual(CLEAN)
})

test('tampering alarms, and dead letters without a failing recipient, are reported', async () => {
  const alarmed = new Book().delivered(0).add({ e: 'alarm', peer: 1, what: 'box_broken', envelopeId: idOf(0) })
  expect((await alarmed.findings()).rules).toEqual(['tampered'])
  expect((await new Book().sent(0).acked(0).left(0, 'strikes').findings()).rules).toEqual(['struck'])
})
