import type { PeerNo } from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import { idOf, keyOf, MESH, memberOf, sendOf, world } from '../test/testing-world.ts'
import { Mailboxes, unknownMailbox } from './quotas.ts'

const LIMITS = { countMax: 40, bytesMax: 4000, perSenderMax: 12, bytesPerSenderMax: 1000 }
const MESH_LIMITS = { countMax: 100, bytesMax: 100_000, perSenderMax: 100, bytesPerSenderMax: 100_000 }
const [ann, bob] = [1, 2] as [PeerNo, PeerNo]
const owner = () => ({ peer: 9 as PeerNo, mailbox: unknownMailbox() })

let asked: number
let mailboxes: Mailboxes
beforeEach(() => {
  asked = 0
  mailboxes = new Mailboxes(LIMITS, () => {
    asked += 1
  })
})

function addMany(to: ReturnType<typeof owner>, count: number, sender = ann, nowMs = 0) {
  for (let i = 0; i < count; i++) mailboxes.add(MESH, to, { sender, byteCount: 10 }, nowMs)
}
const isFull = (to: ReturnType<typeof owner>, sender = ann, nowMs = 0) => mailboxes.isFull(MESH, to, sender, nowMs)

test('the first send starts a measurement, and the backlog is counted from its result on', () => {
  const to = owner()
  addMany(to, 1)
  expect(asked).toBe(1)
  expect(isFull(to)).toBe(false)
  mailboxes.measured(to, [{ sender: ann, count: 12, bytes: 0 }])
  expect(isFull(to)).toBe(true)
  expect(isFull(to, bob)).toBe(false)
})

test.each([
  ['deliveries', [{ sender: bob, count: 40, bytes: 0 }]],
  ['bytes', [{ sender: bob, count: 1, bytes: 4000 }]],
])('the quota of %s counts all senders together', (_, found) => {
  const to = owner()
  addMany(to, 1)
  mailboxes.measured(to, found)
  expect([isFull(to, ann), isFull(to, bob)]).toEqual([true, true])
})

test('the bytes of one sender have their own bound, and leave room for others', () => {
  const to = owner()
  mailboxes.add(MESH, to, { sender: ann, byteCount: 400 }, 0)
  mailboxes.measured(to, [])
  mailboxes.add(MESH, to, { sender: ann, byteCount: 600 }, 0)
  expect([isFull(to, ann), isFull(to, bob)]).toEqual([true, false])
  mailboxes.measured(to, [{ sender: ann, count: 1, bytes: 200 }])
  expect(isFull(to, ann)).toBe(true) // 1000 bytes were in flight when the measurement began, and count
  mailboxes.landed(to, { sender: ann, byteCount: 400 })
  mailboxes.landed(to, { sender: ann, byteCount: 600 })
  isFull(to, ann, 1000)
  mailboxes.measured(to, [{ sender: ann, count: 1, bytes: 999 }])
  expect(isFull(to, ann, 1000)).toBe(false)
})

test('sends during a measurement are added to its result', () => {
  const to = owner()
  addMany(to, 1)
  addMany(to, 11)
  expect(isFull(to)).toBe(true)
  mailboxes.measured(to, [{ sender: ann, count: 1, bytes: 10 }])
  expect(isFull(to)).toBe(true)
})

test('the next measurement comes after a quarter of a quota, while there is room, and subtracts settled deliveries', () => {
  const to = owner()
  addMany(to, 1)
  mailboxes.measured(to, [{ sender: ann, count: 1, bytes: 10 }])
  addMany(to, 2)
  expect(asked).toBe(2) // a measurement is due after a quarter of 12, including those in flight at the first one
  mailboxes.measured(to, [])
  expect(isFull(to)).toBe(false)
})

test('a full mailbox is measured again, but not at every send', () => {
  const to = owner()
  addMany(to, 1)
  mailboxes.measured(to, [{ sender: ann, count: 12, bytes: 0 }])
  const before = asked
  for (let i = 0; i < 5; i++) isFull(to, ann, 500)
  expect(asked).toBe(before)
  for (let i = 0; i < 5; i++) isFull(to, ann, 1000)
  expect(asked).toBe(before + 1)
  mailboxes.measured(to, [{ sender: ann, count: 3, bytes: 0 }])
  expect(isFull(to, ann, 1000)).toBe(false)
})

test('a failed measurement is repeated, but not at every send', () => {
  const to = owner()
  addMany(to, 1)
  mailboxes.measured(to, null)
  addMany(to, 5, ann, 999)
  expect(asked).toBe(1)
  addMany(to, 1, ann, 1000)
  expect(asked).toBe(2)
})

test("an envelope beyond a mailbox's limit is refused and may be resent, and bars its lane meanwhile", () => {
  const { engine, appends, send, nacks } = world({ mailbox: { ...LIMITS, perSenderMax: 2 } })
  send(sendOf(1, 2))
  engine.resolved(1, [keyOf(2)], [memberOf(2)])
  engine.measured(MESH, 2 as PeerNo, [{ sender: ann, count: 1, bytes: 50 }])
  for (const n of [2, 3, 4]) send(sendOf(n, 2, { isHead: false }))
  expect(nacks().map(({ envelopeId, code, retryAfterMs }) => [envelopeId, code, retryAfterMs > 0])).toEqual([
    [idOf(2), 'mailbox_full', true],
    [idOf(3), 'out_of_sequence', false],
    [idOf(4), 'out_of_sequence', false],
  ])
  engine.committed(appends.splice(0), { outcomes: [{ status: 'duplicate' }], enqueuedAtMs: 0 })
  engine.advance(1000)
  send(sendOf(2, 2)) // starts a measurement
  engine.measured(MESH, 2 as PeerNo, [])
  send(sendOf(2, 2))
  expect(appends.map(({ envelopeId }) => envelopeId)).toEqual([idOf(2)])
})

test('a full mesh refuses every send, and accepts sends when something has left it', () => {
  const { engine, appends, send, nacks } = world({
    mailbox: null,
    mesh: { ...MESH_LIMITS, countMax: 10, bytesMax: 1_000 },
  })
  const resolve = () => engine.resolved(1, [keyOf(2), keyOf(3)], [memberOf(2), memberOf(3)])
  send(sendOf(1, 2))
  resolve()
  engine.measured(MESH, 'mesh', [{ sender: ann, count: 9, bytes: 0 }])
  send(sendOf(2, 3))
  expect(nacks()).toMatchObject([{ envelopeId: idOf(2), code: 'mailbox_full' }])
  engine.committed(appends.splice(0), { outcomes: [{ status: 'duplicate' }], enqueuedAtMs: 0 })
  engine.advance(15_000)
  send(sendOf(2, 3))
  resolve() // starts a measurement
  engine.measured(MESH, 'mesh', [{ sender: bob, count: 2, bytes: 900 }])
  send(sendOf(2, 3), sendOf(3, 2), sendOf(4, 2, { isHead: false }))
  expect(appends.map(({ envelopeId }) => envelopeId)).toEqual([idOf(2), idOf(3)])
  expect(nacks().at(-1)).toMatchObject({ envelopeId: idOf(4), code: 'mailbox_full' })
})

test('one sender fills only its share of a mesh, for any recipients', () => {
  const { engine, appends, send, nacks } = world({ mailbox: null, mesh: { ...MESH_LIMITS, perSenderMax: 3 } })
  send(sendOf(1, 2))
  engine.resolved(1, [keyOf(2), keyOf(3)], [memberOf(2), memberOf(3)])
  engine.measured(MESH, 'mesh', [
    { sender: ann, count: 1, bytes: 0 },
    { sender: bob, count: 5, bytes: 0 },
  ])
  send(sendOf(2, 3), sendOf(3, 2, { isHead: false }))
  expect(appends.map(({ envelopeId }) => envelopeId)).toEqual([idOf(1), idOf(2)])
  expect(nacks()).toMatchObject([{ envelopeId: idOf(3), code: 'mailbox_full' }])
})

test('an overload refuses sends as busy until it is over', () => {
  const { engine, appends, send, nacks } = world()
  engine.isOverloaded = true
  send(sendOf(1, 1))
  engine.isOverloaded = false
  send(sendOf(1, 1))
  expect(nacks()).toMatchObject([{ code: 'busy' }])
  expect(appends).toHaveLength(1)
})
