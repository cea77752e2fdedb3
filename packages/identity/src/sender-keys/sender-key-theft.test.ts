import { beforeAll, expect, test } from 'vitest'
import { ready } from '../index.ts'
import { type SenderKeyMember, type SentMessage, senderKeyMembers } from '../test/sender-key-member.ts'
import type { SenderKeyThief } from '../test/sender-key-thief.ts'
import { SENDER_KEY_MS_MAX } from './index.ts'

beforeAll(ready)

/** Sends to the others, who read and settle the message and confirm it. */
function talk(from: SenderKeyMember, others: readonly SenderKeyMember[], nowMs: number): SentMessage {
  const message = from.send(`at ${nowMs}`, others, { nowMs })
  for (const member of others) {
    expect(member.read(message, nowMs)).toBe(`at ${nowMs}`)
    from.keys.confirm(member.key, message.place.chainId)
  }
  return message
}

const without = (all: readonly SenderKeyMember[], one: SenderKeyMember) => all.filter((member) => member !== one)
const readable = (thief: SenderKeyThief, messages: readonly SentMessage[]) =>
  messages.filter(({ tickets, body }) => [...tickets.values()].some((ticket) => thief.read(ticket, body.bytes)))

test('a thief of all keys and memory of any member opens none of 10,000 settled deliveries to a group', () => {
  const all = senderKeyMembers(3)
  const messages: SentMessage[] = []
  for (let i = 0; i < 5_000; i++) {
    const from = all[i % 3]!
    messages.push(talk(from, without(all, from), i * 1_400))
  }
  expect(messages.flatMap(({ tickets }) => [...tickets.values()]).length).toBe(10_000)
  expect(new Set(messages.map(({ place }) => place.chainId)).size).toBeGreaterThan(20)
  for (const member of all) expect(readable(member.robbed(), messages).length).toBe(0)
})

test('after a theft, the thief opens nothing of the chains that begin after a round trip', () => {
  const all = senderKeyMembers(3)
  for (const from of all) talk(from, without(all, from), 0)
  for (const victim of all) {
    const thief = victim.robbed()
    const during = all.map((from) => talk(from, without(all, from), 1_000))
    expect(readable(thief, during).length).toBeGreaterThan(0)
    const rounds = [1, 2, 3].map((round) => 1_000 + round * SENDER_KEY_MS_MAX)
    for (const nowMs of rounds) for (const from of all) talk(from, without(all, from), nowMs)
    const after = all.map((from) => talk(from, without(all, from), 1_000 + 4 * SENDER_KEY_MS_MAX))
    expect(readable(thief, after).length).toBe(0)
    for (const from of all) from.keys.refused(from.keys.chain!.id)
  }
})

test('a departed member opens nothing that is sealed after its departure', () => {
  const all = senderKeyMembers(4)
  for (const from of all) talk(from, without(all, from), 0)
  const departed = all[3]!
  const rest = without(all, departed)
  const after = Array.from({ length: 30 }, (_, i) => talk(rest[i % 3]!, without(rest, rest[i % 3]!), 1_000 + i))
  expect(readable(departed.robbed(), after).length).toBe(0)
})

test('a thief opens what waits unsettled, and nothing that was settled beside it', () => {
  const [ann, ben, cleo] = senderKeyMembers(3) as [SenderKeyMember, SenderKeyMember, SenderKeyMember]
  const settled = talk(ann, [ben, cleo], 0)
  const held = ann.send('held', [ben, cleo])
  expect(ben.open(held).ok).toBe(true)
  const later = talk(ann, [ben, cleo], 0)
  expect(readable(ben.robbed(), [settled, held, later])).toEqual([held])
})
