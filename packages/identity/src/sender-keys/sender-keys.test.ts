import { toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { openBody, ready } from '../index.ts'
import { CHAIN_MAX } from '../ratchet/receiving-chains.ts'
import { bytes, flipped, text } from '../test/fixtures.ts'
import { SENDER_SCOPE, type SentMessage, senderKeyMembers } from '../test/sender-key-member.ts'
import { ReceivedSenderKeys, SENDER_KEY_MS_MAX, type SenderKeyMessage } from './index.ts'
import { readDistribution, readTicket } from './sender-key-ticket.ts'

beforeAll(ready)

const DAY_MS = 86_400_000
/** Without a distribution. */
const TICKET_BYTES = 69
const hasDistribution = (message: SentMessage, to: { key: SentMessage['from'] }) =>
  readTicket(message.tickets.get(to.key)!)!.distribution !== null

function group() {
  const [ann, ben, cleo] = senderKeyMembers(3)
  return { ann: ann!, ben: ben!, cleo: cleo!, all: [ben!, cleo!] }
}

test('every member reads messages that were sealed once, in any order', () => {
  const { ann, ben, cleo, all } = group()
  const messages = Array.from({ length: 20 }, (_, i) => ann.send(`message ${i}`, all))
  expect(messages.map((message) => ben.read(message))).toEqual(messages.map((_, i) => `message ${i}`))
  const backwards = [...messages].reverse()
  expect(backwards.map((message) => cleo.read(message))).toEqual(backwards.map((_, i) => `message ${19 - i}`))
})

test('a ticket repeats its distribution until the recipient has confirmed a message of the chain', () => {
  const { ann, ben, cleo, all } = group()
  const first = ann.send('first', all)
  const second = ann.send('second', all)
  const distributionOf = (message: SentMessage) => toHex(readTicket(message.tickets.get(ben.key)!)!.distribution!)
  expect(distributionOf(second)).toBe(distributionOf(first))
  expect(ben.read(second)).toBe('second')
  ann.keys.confirm(ben.key, second.place.chainId)
  const third = ann.send('third', all)
  expect([hasDistribution(third, ben), hasDistribution(third, cleo)]).toEqual([false, true])
  expect([third, first].map((message) => ben.read(message))).toEqual(['third', 'first'])
})

test('a message opens again until it is settled, and is then reported as settled', () => {
  const { ann, ben, all } = group()
  const message = ann.send('hello', all)
  for (const _ of [1, 2]) {
    const opened = ben.open(message)
    expect(opened.ok && text(openBody(message.body.bytes, opened.ticket))).toBe('hello')
  }
  expect(ben.read(message)).toBe('hello')
  expect(ben.read(message)).toBe('settled')
})

test('a member that joins reads nothing older, and one that leaves nothing newer', () => {
  const { ann, ben, cleo, all } = group()
  const before = ann.send('before', [ben])
  const during = ann.send('during', all)
  expect(during.place.chainId).toBe(before.place.chainId)
  const after = ann.send('after', [ben])
  expect(after.place.chainId).not.toBe(before.place.chainId)
  expect(cleo.read(during)).toBe('during')
  const as = (message: SentMessage) => ({ ...message, tickets: new Map([[cleo.key, during.tickets.get(cleo.key)!]]) })
  expect(cleo.robbed().read(before.tickets.get(ben.key)!, before.body.bytes)).toBe(null)
  expect(cleo.robbed().read(after.tickets.get(ben.key)!, after.body.bytes)).toBe(null)
  expect(cleo.read(as(after))).toBe('settled')
  expect(ben.read(after)).toBe('after')
})

test('a chain ends after its time, after its last message, and when the clock goes back', () => {
  const { ann, ben } = group()
  const chainAt = (nowMs: number) => ann.send('hello', [ben], { nowMs }).place.chainId
  const first = chainAt(1_000)
  expect(chainAt(1_000 + SENDER_KEY_MS_MAX - 1)).toBe(first)
  const second = chainAt(1_000 + SENDER_KEY_MS_MAX)
  expect(second).not.toBe(first)
  const third = chainAt(0)
  expect(third).not.toBe(second)
  for (let i = 1; i < CHAIN_MAX; i++) expect(chainAt(0)).toBe(third)
  expect(chainAt(0)).not.toBe(third)
})

test('a process that opens the store of another one begins a chain of its own', () => {
  const { ann, ben, all } = group()
  const stored = ann.save()
  const before = ann.send('before', all)
  expect(ben.read(before)).toBe('before')
  ann.restart(stored)
  const after = ann.send('after', all)
  expect(after.place).not.toEqual(before.place)
  expect(after.body.bytes).not.toEqual(before.body.bytes)
})

test('two processes of one sender do not disturb each other', () => {
  const { ann, ben } = group()
  const twin = senderKeyMembers(1)[0]!
  ben.read(ann.send('agree', [ben]))
  twin.ratchets = ann.ratchets
  const messages = [0, 1, 2, 3].map((i) => (i % 2 ? twin : ann).send(`${i}`, [ben]))
  expect(messages.map((message) => ben.read(message))).toEqual(['0', '1', '2', '3'])
})

test('a restored recipient refuses messages of chains that it lost, until the sender begins another one', () => {
  const { ann, ben } = group()
  ben.read(ann.send('agree', [ben]))
  ann.keys.refused(ann.keys.chain!.id)
  const stored = ben.save()
  const first = ann.send('first', [ben])
  expect(ben.read(first)).toBe('first')
  ann.keys.confirm(ben.key, first.place.chainId)
  ben.restart(stored)
  expect(ben.read(ann.send('second', [ben]))).toBe('sender_key_unknown')
  ann.keys.refused('00'.repeat(32))
  expect(ben.read(ann.send('third', [ben]))).toBe('sender_key_unknown')
  ann.keys.refused(first.place.chainId)
  expect(ben.read(ann.send('fourth', [ben]))).toBe('fourth')
})

test('a recipient without a ratchet gets the key of each message, and no key of the chain', () => {
  const { ann, ben, cleo, all } = group()
  const messages = [0, 1].map((i) => ann.send(`${i}`, all, { without: [cleo] }))
  expect(messages.map((message) => ben.read(message))).toEqual(['0', '1'])
  const texts = messages.map(({ body, tickets }) => text(openBody(body.bytes, tickets.get(cleo.key)!)))
  expect(texts).toEqual(['0', '1'])
  // Its departure ends no chain, because it never had one.
  expect(ann.send('later', [ben]).place.chainId).toBe(messages[0]!.place.chainId)
})

test('tickets can be requested late, and a chain that has ended is not distributed any more', () => {
  const { ann, ben, cleo, all } = group()
  const to = all.map(({ key }) => key)
  const [first, second] = [0, 1].map((i) => ann.keys.seal(bytes(`${i}`), to, 0)) as [SenderKeyMessage, SenderKeyMessage]
  const as = (message: SenderKeyMessage, member: typeof ben) => {
    const ticket = message.ticketFor(member.key, (key) => ann.ratchetTo(member, 0).seal(key, 0))
    return ticket && { ...message, from: ann.key, tickets: new Map([[member.key, ticket]]) }
  }
  for (const message of [first, second]) expect(ben.read(as(message, ben)!)).toBe(`${message.place.number}`)
  ann.keys.refused(first.place.chainId)
  for (const message of [first, second]) expect(as(message, cleo)).toBe(null)
  expect(readTicket(as(first, ben)!.tickets.get(ben.key)!)!.chainId).toBe(first.place.chainId)
})

test('an error of a ratchet leaves the chain as it was', () => {
  const { ann, ben, cleo, all } = group()
  const before = ann.send('before', [ben])
  const failed = ann.keys.seal(
    new Uint8Array(1),
    all.map(({ key }) => key),
    0,
  )
  const failing = () => {
    throw new Error('no key')
  }
  expect(() => failed.ticketFor(cleo.key, failing)).toThrow('no key')
  const after = ann.send('after', all)
  expect(after.place).toEqual({ ...before.place, number: 2 })
  expect([ben.read(before), ben.read(after), cleo.read(after)]).toEqual(['before', 'after', 'after'])
})

test('keys of missing and unsettled messages expire, and their messages are refused as gone', () => {
  const { ann, ben } = group()
  const [first, second, third] = ['first', 'second', 'third'].map((said) => ann.send(said, [ben]))
  expect(ben.read(second!)).toBe('second')
  ben.receivedFrom(ann.key).expire(DAY_MS)
  ben.restart(ben.save())
  expect([first, second, third].map((message) => ben.read(message!))).toEqual([
    'sender_key_gone',
    'settled',
    'sender_key_gone',
  ])
})

test('no message makes a recipient keep more than its bounds', () => {
  const { ann, ben } = group()
  const early: SentMessage[] = []
  for (let i = 0; i < 80; i++) {
    early.push(ann.send('early', [ben]))
    ben.read(ann.send('read', [ben]))
    ann.keys.refused(ann.keys.chain!.id)
  }
  const { receiving } = ben.receivedFrom(ann.key)
  expect([...receiving.values()].filter(({ key }) => key).length).toBe(64)
  expect(new Set(early.map((message) => ben.read(message)))).toEqual(new Set(['early']))
})

test('a changed ticket opens nothing', () => {
  const { ann, ben } = group()
  ben.read(ann.send('agree', [ben]))
  const message = ann.send('hello', [ben])
  const ticket = message.tickets.get(ben.key)!
  const stored = ben.save()
  const textOf = (changed: Uint8Array) => {
    ben.restart(stored)
    const opened = ben.open({ ...message, tickets: new Map([[ben.key, changed]]) })
    return opened.ok && openBody(message.body.bytes, opened.ticket)
  }
  for (let at = 0; at < TICKET_BYTES; at++) expect(textOf(flipped(ticket, at)) || null).toBe(null)
  for (let length = 0; length < TICKET_BYTES; length++) expect(textOf(ticket.slice(0, length))).toBe(false)
  expect(text(textOf(ticket) || null)).toBe('hello')
})

test('a changed distribution opens nothing', () => {
  const { ann, ben } = group()
  const message = ann.send('hello', [ben])
  const ticket = message.tickets.get(ben.key)!
  const stored = ben.save()
  for (let at = TICKET_BYTES; at < ticket.length; at += 7) {
    ben.restart(stored)
    const tickets = new Map([[ben.key, flipped(ticket, at)]])
    expect(ben.read({ ...message, tickets })).toBe('sender_key_unknown')
  }
  expect(ben.read(message)).toBe('hello')
})

test('a distribution is for one mesh, group and priority', () => {
  const { ann, ben } = group()
  const message = ann.send('hello', [ben])
  const distribution = readTicket(message.tickets.get(ben.key)!)!.distribution!
  const opened = ben.ratchetTo(ann, 0)
  expect(opened).toBeDefined()
  const { key } = ann
  ben.received.set(key, new ReceivedSenderKeys({ ...SENDER_SCOPE, priority: 2 }))
  expect(ben.read(message)).toBe('sender_key_unknown')
  expect(readDistribution(distribution, SENDER_SCOPE)).toBe(null)
})
