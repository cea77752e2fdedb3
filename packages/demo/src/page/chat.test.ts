import type { PeerKey } from '@sealpost/sdk'
import type { EnvelopeId } from '@sealpost/std'
import { expect, test } from 'vitest'
import {
  type Chat,
  contactsOf,
  type Fate,
  linesWith,
  nameOf,
  orphanedLines,
  type ReceivedLine,
  unreadFrom,
  unreadInAll,
  type WrittenLine,
  waitingLine,
  withArrival,
  withLine,
  withMembers,
  withRead,
} from './chat.ts'

const [me, bea, cem] = ['11', '22', '33'].map((digits) => digits.repeat(32) as PeerKey) as [PeerKey, PeerKey, PeerKey]
const empty: Chat = {
  me: { key: me, name: 'me' },
  link: { name: 'online' },
  peers: [],
  lines: new Map(),
  readNos: new Map(),
  open: null,
  heard: '',
  notice: null,
}
const member = (peer: PeerKey, name: string) => ({ peer, name, role: 'member' }) as const
const received = (no: number, peer = bea): ReceivedLine => ({
  kind: 'received',
  no,
  peer,
  text: `line ${no}`,
  atMs: 0,
  envelopeId: `${no}` as EnvelopeId,
})
const written = (no: number, fate: Fate): WrittenLine => ({ kind: 'written', no, peer: bea, text: '', atMs: 0, fate })

test('lines are sorted by number, and a later version of a line replaces it', () => {
  const chat = [received(3), written(1, { name: 'keeping' }), written(1, { name: 'stored' })].reduce(withLine, empty)
  expect(linesWith(chat, bea)).toEqual([written(1, { name: 'stored' }), received(3)])
})

test('received lines are unread until they are seen, and later ones are unread again', () => {
  const arrived = [received(1), received(2), received(3, cem)].reduce(withArrival, empty)
  expect([unreadFrom(arrived, bea), unreadFrom(arrived, cem), unreadInAll(arrived)]).toEqual([2, 1, 3])
  const read = withRead(arrived, bea)
  expect([unreadFrom(read, bea), unreadInAll(read)]).toEqual([0, 1])
  expect(unreadFrom(withArrival(read, received(4)), bea)).toBe(1)
  expect(unreadFrom(withLine(read, written(4, { name: 'stored' })), bea)).toBe(0)
})

test('a screen reader is notified of messages in other conversations only', () => {
  const chat = withMembers(empty, [member(bea, 'bea'), member(cem, 'cem')])
  expect(withArrival({ ...chat, open: bea }, received(1)).heard).toBe('')
  expect(withArrival({ ...chat, open: bea }, received(1, cem)).heard).toBe('New message from cem')
})

test('members are sorted by name, without oneself', () => {
  const chat = withMembers(empty, [member(cem, 'Zoe'), member(me, 'me'), member(bea, 'ann')])
  expect(chat.peers.map(({ name }) => name)).toEqual(['ann', 'Zoe'])
})

test('a former member stays only while there are lines, and cannot be written to', () => {
  const both = withLine(withMembers(empty, [member(bea, 'bea'), member(cem, 'cem')]), received(1))
  const none = withMembers({ ...both, open: cem }, [])
  expect(none.peers).toEqual([{ peer: bea, name: 'bea', isMember: false }])
  expect(none.open).toBeNull()
})

test('a sender that is not in the list yet is shown by its key', () => {
  expect(nameOf(withArrival(empty, received(1)), bea)).toBe('peer-22222222')
})

test('a reply finds its line by the outbox number, even if an older line had the same number', () => {
  const lines = [written(1, { name: 'stored' }), written(2, { name: 'waiting', outboxNo: 7 })]
  const chat = lines.reduce(withLine, empty)
  expect(waitingLine(chat, 7)?.no).toBe(2)
  expect(waitingLine(chat, 8)).toBeUndefined()
})

test('a line is orphaned if no entry of the outbox will bring a reply', () => {
  const lines = [
    written(1, { name: 'keeping' }),
    written(2, { name: 'waiting', outboxNo: 7 }),
    written(3, { name: 'waiting', outboxNo: 8 }),
    written(4, { name: 'stored' }),
    received(5),
  ]
  expect(orphanedLines(lines.reduce(withLine, empty), new Set([8])).map(({ no }) => no)).toEqual([1, 2])
})

test('devices and sessions are listed under their user, and without it as contacts of their own', () => {
  const chat = withMembers(empty, [
    member(bea, 'bea/laptop'),
    member(cem, 'bea'),
    member('44'.repeat(32) as PeerKey, 'bea-2'),
    member('55'.repeat(32) as PeerKey, 'dan/phone'),
    member('66'.repeat(32) as PeerKey, ''),
  ])
  const listed = contactsOf(chat).map(({ user, devices }) => [user.name, devices.map(({ name }) => name)])
  expect(listed).toEqual([['', []], ['bea', ['bea/laptop']], ['bea-2', []], ['dan/phone', []]]) // biome-ignore format: one thing
})
