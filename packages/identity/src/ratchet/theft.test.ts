import { beforeAll, expect, test } from 'vitest'
import { ready } from '../index.ts'
import { bytes, correspondent, MESH, peerNumber, text } from '../test/fixtures.ts'
import { RatchetThief } from '../test/ratchet-thief.ts'
import { Prekeys, Ratchet, sodiumRatchetCrypto } from './index.ts'

beforeAll(ready)

const SCOPE = { meshId: MESH, priority: 1 }
const DAY_MS = 86_400_000

function side(no: number) {
  const own = peerNumber(no)
  const prekeys = new Prekeys()
  const terms = { identity: own, meshId: MESH, nowMs: 0, notAfterMs: 90 * DAY_MS, keepFormerMs: DAY_MS }
  const statement = prekeys.rotate(sodiumRatchetCrypto, { ...terms, hasKem: true })
  return { own, prekeys, statement, ratchet: new Ratchet(SCOPE) }
}
type Side = ReturnType<typeof side>

function pair() {
  const [alice, bob] = [side(1), side(2)]
  const [oneTime] = bob.prekeys.addOneTime(sodiumRatchetCrypto, 1)
  const parties = { own: alice.own, peer: correspondent(bob.own) }
  alice.ratchet.agree(parties, { statement: bob.statement, oneTime: oneTime! }, 0)
  return { alice, bob }
}

function deliver(from: Side, to: Side, said: string, nowMs: number): Uint8Array {
  const message = from.ratchet.seal(bytes(said), nowMs)
  from.prekeys.spend(from.ratchet.export().spent)
  const { own, prekeys } = to
  const parties = { own, ownBoxes: [own.box], peers: [correspondent(from.own)], prekeys }
  const opened = to.ratchet.open(message, parties, nowMs)
  if (!opened.ok) throw new Error(opened.code)
  expect(text(opened.text)).toBe(said)
  to.ratchet.settle(opened.place)
  to.prekeys.spend(to.ratchet.export().spent)
  return message
}

const robbed = ({ own, ratchet, prekeys }: Side, other: Side) =>
  new RatchetThief({ own, peer: correspondent(other.own), scope: SCOPE, ratchet, prekeys, crypto: sodiumRatchetCrypto })

test('a thief of all keys and memory of either peer opens none of 10,000 settled messages', () => {
  const { alice, bob } = pair()
  const messages: Uint8Array[] = []
  for (let i = 0; messages.length < 10_000; i++) {
    const isToBob = i % 7 < 4
    const [from, to] = isToBob ? [alice, bob] : [bob, alice]
    messages.push(deliver(from, to, `message ${i}`, i * 40))
  }
  for (const thief of [robbed(alice, bob), robbed(bob, alice)])
    expect(messages.filter((message) => thief.read(message)).length).toBe(0)
})

test.each(['alice', 'bob'] as const)(
  'one second and one round trip after a theft from %s, the thief opens nothing',
  (name) => {
    const { alice, bob } = pair()
    for (let i = 0; i < 20; i++) deliver(i % 2 ? bob : alice, i % 2 ? alice : bob, `${i}`, i * 500)
    const [victim, other] = name === 'alice' ? [alice, bob] : [bob, alice]
    const thief = robbed(victim, other)
    const [during, after]: [Uint8Array[], Uint8Array[]] = [[], []]
    const nowMs = 30_000
    during.push(deliver(other, victim, 'to the victim', nowMs), deliver(victim, other, 'from the victim', nowMs))
    during.push(deliver(other, victim, 'to the victim', nowMs + 1_000))
    for (let i = 0; i < 100; i++) {
      after.push(deliver(victim, other, `from ${i}`, nowMs + 2_000 + i * 10))
      after.push(deliver(other, victim, `to ${i}`, nowMs + 2_005 + i * 10))
    }
    expect(during.filter((message) => thief.read(message)).length).toBeGreaterThan(0)
    expect(after.filter((message) => thief.read(message)).length).toBe(0)
  },
)

test('a thief opens what waits unsettled, and nothing that was settled beside it', () => {
  const { alice, bob } = pair()
  const settled = deliver(alice, bob, 'settled', 0)
  const waiting = alice.ratchet.seal(bytes('waiting'), 0)
  const later = deliver(alice, bob, 'later', 0)
  const thief = robbed(bob, alice)
  expect([settled, waiting, later].map((message) => text(thief.read(message)))).toEqual([null, 'waiting', null])
})
