import { fromHex, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { ready } from '../index.ts'
import { bytes, correspondent, flipped, MESH, peerNumber, text } from '../test/fixtures.ts'
import { Prekeys, Ratchet, type RatchetPlace, readPrekeyStatement, sodiumRatchetCrypto } from './index.ts'

beforeAll(ready)

const DAY_MS = 86_400_000
const NOW = 1_767_225_600_000
const crypto = sodiumRatchetCrypto

/** One peer with its store, which keeps what `save` wrote. */
class Side {
  readonly own
  prekeys = new Prekeys()
  ratchet
  readonly statement
  #stored: { ratchet: Uint8Array; prekeys: Uint8Array }
  readonly #peerNo: number

  constructor(no: number, peerNo: number, hasKem = false) {
    this.own = peerNumber(no)
    this.#peerNo = peerNo
    const until = { nowMs: NOW, notAfterMs: NOW + 90 * DAY_MS, keepFormerMs: 35 * DAY_MS }
    this.statement = this.prekeys.rotate(crypto, { identity: this.own, meshId: MESH, ...until, hasKem })
    this.ratchet = new Ratchet({ meshId: MESH, priority: 1 })
    this.#stored = { ratchet: this.ratchet.export().bytes, prekeys: this.prekeys.export() }
  }

  get peer() {
    return correspondent(peerNumber(this.#peerNo))
  }

  agree(other: Side, nowMs = NOW, hasOneTime = true) {
    const oneTime = hasOneTime ? other.prekeys.addOneTime(crypto, 1)[0]! : null
    other.save()
    return this.ratchet.agree({ own: this.own, peer: this.peer }, { statement: other.statement, oneTime }, nowMs)
  }

  seal(said: string, nowMs = NOW): Uint8Array {
    const sealed = this.ratchet.seal(bytes(said), nowMs)
    this.save()
    return sealed
  }

  open(message: Uint8Array, nowMs = NOW) {
    const parties = { own: this.own, ownBoxes: [this.own.box], peers: [this.peer], prekeys: this.prekeys }
    return this.ratchet.open(message, parties, nowMs)
  }

  /** Opens and settles. Returns the text or the code. */
  read(message: Uint8Array, nowMs = NOW) {
    const opened = this.open(message, nowMs)
    if (!opened.ok) return opened.code
    this.settle(opened.place)
    return text(opened.text)
  }

  settle(place: RatchetPlace) {
    this.ratchet.settle(place)
    this.save()
  }

  save() {
    const { bytes: ratchet, spent } = this.ratchet.export()
    this.prekeys.spend(spent)
    this.#stored = { ratchet, prekeys: this.prekeys.export() }
    return this.#stored
  }

  /** Starts again with a store: the last one, or a copy. */
  restart(stored = this.#stored) {
    this.#stored = stored
    this.prekeys = Prekeys.restore(stored.prekeys)
    this.ratchet = Ratchet.restore(stored.ratchet, { meshId: MESH, priority: 1 })
  }
}

function pair({ hasKem = false } = {}) {
  const [alice, bob] = [new Side(1, 2, hasKem), new Side(2, 1, hasKem)]
  alice.agree(bob)
  return { alice, bob }
}

test.each([false, true])('messages open in both directions, with ML-KEM: %s', (hasKem) => {
  const { alice, bob } = pair({ hasKem })
  for (let round = 0; round < 5; round++) {
    const nowMs = NOW + round * 1_000
    const messages = [alice.seal('a', nowMs), alice.seal('b', nowMs)]
    expect(messages.map((message) => bob.read(message, nowMs))).toEqual(['a', 'b'])
    expect(alice.read(bob.seal('c', nowMs), nowMs)).toBe('c')
  }
})

test('messages open in any order, and each once', () => {
  const { alice, bob } = pair()
  const first = Array.from({ length: 20 }, (_, i) => alice.seal(`first ${i}`))
  expect(bob.read(first[19]!)).toBe('first 19')
  expect(alice.read(bob.seal('reply'))).toBe('reply')
  const second = Array.from({ length: 20 }, (_, i) => alice.seal(`second ${i}`, NOW + 2_000))
  expect(bob.read(second[7]!)).toBe('second 7')
  for (let i = 0; i < 19; i++) expect(bob.read(first[i]!)).toBe(`first ${i}`)
  for (const i of [19, 18, 9, 8, 6, 0]) expect(bob.read(second[i]!)).toBe(`second ${i}`)
  for (const message of [...first, second[19]!]) expect(bob.read(message)).toBe('settled')
})

test('a message opens again until it is settled, also in the next process', () => {
  const { alice, bob } = pair()
  const [one, two] = [alice.seal('one'), alice.seal('two')]
  expect(bob.open(one)).toMatchObject({ ok: true })
  expect(bob.open(one)).toMatchObject({ ok: true })
  bob.restart()
  expect(bob.open(one)).toMatchObject({ ok: true })
  expect(bob.read(two)).toBe('two')
  bob.restart()
  expect(bob.read(one)).toBe('one')
  expect([bob.read(one), bob.read(two)]).toEqual(['settled', 'settled'])
})

test('a store that is opened begins a chain, and every message of all chains opens', () => {
  const { alice, bob } = pair()
  const messages: Uint8Array[] = []
  for (let process = 0; process < 30; process++) {
    messages.push(alice.seal(`${process}`), alice.seal(`${process}`))
    alice.restart()
  }
  const keys = new Set(messages.map((message) => toHex(message.subarray(15, 47))))
  expect(keys.size).toBe(30)
  for (const [i, message] of messages.toReversed().entries()) expect(bob.read(message)).toBe(`${29 - (i >> 1)}`)
  expect(alice.read(bob.seal('reply'))).toBe('reply')
})

test('any changed byte is refused', () => {
  const { alice, bob } = pair()
  const first = alice.seal('hello')
  for (let at = 0; at < first.length; at++) {
    const before = toHex(bob.ratchet.export().bytes.slice(20))
    expect(bob.open(flipped(first, at)).ok).toBe(false)
    expect(toHex(bob.ratchet.export().bytes.slice(20))).toBe(before)
  }
  expect(bob.read(first)).toBe('hello')
  expect(alice.read(bob.seal('reply'))).toBe('reply')
  const second = alice.seal('again', NOW + 5_000)
  for (let at = 15; at < second.length; at++) expect(bob.read(flipped(second, at))).toBe('does_not_open')
  expect(bob.read(second)).toBe('again')
  for (let length = 0; length < second.length; length++) expect(bob.open(second.subarray(0, length)).ok).toBe(false)
})

test('a step costs at most one X25519 key per second', () => {
  const { alice, bob } = pair()
  const keys = new Set<string>()
  for (let message = 0; message < 100; message++) {
    const nowMs = NOW + message * 50
    const sealed = alice.seal('ping', nowMs)
    keys.add(toHex(sealed.subarray(15, 47)))
    bob.read(sealed, nowMs)
    alice.read(bob.seal('pong', nowMs), nowMs)
  }
  expect(keys.size).toBe(5)
})

test('peers that agree at once choose the same session, and lose nothing', () => {
  const [alice, bob] = [new Side(1, 2), new Side(2, 1)]
  alice.agree(bob)
  bob.agree(alice)
  const [toBob, toAlice] = [alice.seal('a'), bob.seal('b')]
  expect([bob.read(toBob), alice.read(toAlice)]).toEqual(['a', 'b'])
  const [again, back] = [alice.seal('c'), bob.seal('d')]
  expect(toHex(again.subarray(5, 15))).toBe(toHex(back.subarray(5, 15)))
  expect([bob.read(again), alice.read(back)]).toEqual(['c', 'd'])
})

test('without a one-time prekey, both sides report a last resort, and a replay begins no session', () => {
  const [alice, bob] = [new Side(1, 2), new Side(2, 1)]
  expect(alice.agree(bob, NOW, false)).toContain('ratchet_last_resort')
  const message = alice.seal('hello')
  const opened = bob.open(message)
  if (!opened.ok) throw new Error(opened.code)
  expect(opened.news).toContain('ratchet_last_resort')
  bob.settle(opened.place)
  bob.ratchet = new Ratchet({ meshId: MESH, priority: 1 })
  expect(bob.read(message)).toBe('prekey_gone')
})

test('a one-time prekey serves one session', () => {
  const [alice, bob] = [new Side(1, 2), new Side(2, 1)]
  const [oneTime] = bob.prekeys.addOneTime(crypto, 1)
  const bundle = { statement: bob.statement, oneTime: oneTime! }
  const other = new Ratchet({ meshId: MESH, priority: 1 })
  for (const ratchet of [alice.ratchet, other]) ratchet.agree({ own: alice.own, peer: alice.peer }, bundle, NOW)
  const [first, second] = [alice.seal('first'), other.seal(bytes('second'), NOW)]
  expect(bob.open(first).ok).toBe(true)
  expect(bob.open(second)).toMatchObject({ code: 'prekey_gone' })
  expect(bob.read(first)).toBe('first')
  bob.restart()
  expect(bob.open(second)).toMatchObject({ code: 'prekey_gone' })
})

test('a restored sender is detected, repeats no key, and both sides report it and agree again', () => {
  const { alice, bob } = pair()
  bob.read(alice.seal('one'))
  const yesterday = alice.save()
  alice.restart()
  bob.read(alice.seal('two'))
  alice.restart(yesterday)
  const conflicting = alice.seal('three')
  expect(bob.open(conflicting)).toEqual({ ok: false, code: 'ratchet_reset', news: ['ratchet_reset'] })
  expect(bob.ratchet.needsAgreement(NOW) && bob.ratchet.owesReset).toBe(true)
  bob.agree(alice, NOW + 1)
  const opened = alice.open(bob.seal('again'))
  expect(opened).toMatchObject({ ok: true, news: ['ratchet_agreed', 'ratchet_peer_reset'] })
  expect(bob.ratchet.owesReset).toBe(true)
  expect(bob.read(alice.seal('four'))).toBe('four')
  expect(bob.ratchet.owesReset).toBe(false)
})

test('a sender that was restored to a former session is answered with a reset', () => {
  const { alice, bob } = pair()
  bob.read(alice.seal('one'))
  alice.read(bob.seal('two'))
  const yesterday = alice.save()
  alice.restart()
  bob.read(alice.seal('three'))
  alice.ratchet.reset(NOW)
  alice.agree(bob, NOW + 100_000)
  bob.read(alice.seal('four', NOW + 100_000), NOW + 100_000)
  alice.restart(yesterday)
  const conflicting = alice.seal('five', NOW + 200_000)
  const opened = bob.open(conflicting, NOW + 200_000)
  expect(opened).toEqual({ ok: false, code: 'ratchet_reset', news: ['ratchet_reset'] })
  bob.agree(alice, NOW + 200_000)
  expect(alice.read(bob.seal('six'))).toBe('six')
  expect(bob.read(alice.seal('seven'))).toBe('seven')
})

test('peers that agree at once choose the same session, whichever first message arrives late', () => {
  const [alice, bob] = [new Side(1, 2), new Side(2, 1)]
  alice.agree(bob, NOW)
  bob.agree(alice, NOW + 1)
  const [toBob, late] = [alice.seal('a'), bob.seal('b')]
  expect(bob.read(toBob)).toBe('a')
  expect(bob.read(alice.seal('c'))).toBe('c')
  expect(alice.read(late)).toBe('b')
  const [again, back] = [alice.seal('d'), bob.seal('e')]
  expect(toHex(again.subarray(5, 15))).toBe(toHex(back.subarray(5, 15)))
  expect([bob.read(again), alice.read(back)]).toEqual(['d', 'e'])
})

test('a restored recipient detects it, from a message that refers to a key that it does not have', () => {
  const { alice, bob } = pair()
  bob.read(alice.seal('one'))
  alice.read(bob.seal('two'))
  const yesterday = bob.save()
  bob.restart()
  alice.read(bob.seal('three'))
  bob.restart(yesterday)
  const message = alice.seal('four', NOW + 5_000)
  expect(bob.open(message)).toEqual({ ok: false, code: 'ratchet_reset', news: ['ratchet_reset'] })
})

test('a recipient without its store reports a reset at most once per minute', () => {
  const { alice, bob } = pair()
  bob.read(alice.seal('one'))
  alice.read(bob.seal('two'))
  bob.ratchet = new Ratchet({ meshId: MESH, priority: 1 })
  const message = alice.seal('three', NOW + 5_000)
  expect(bob.open(message, NOW + 5_000).news).toEqual(['ratchet_reset'])
  expect(bob.open(message, NOW + 6_000).news).toEqual([])
  bob.agree(alice, NOW + 6_000)
  expect(alice.open(bob.seal('four')).news).toEqual(['ratchet_agreed', 'ratchet_peer_reset'])
})

test('two processes on one store repeat no key, and the second is answered with a reset', () => {
  const { alice, bob } = pair()
  bob.read(alice.seal('one'))
  const stored = alice.save()
  const twin = new Side(1, 2)
  for (const process of [alice, twin]) process.restart(stored)
  const [first, second] = [alice.seal('two'), twin.seal('three')]
  expect(toHex(first.subarray(15, 47))).not.toBe(toHex(second.subarray(15, 47)))
  expect([bob.read(first), bob.read(second)]).toEqual(['two', 'ratchet_reset'])
})

test('a message whose key was deleted is reported and never counts as settled', () => {
  const { alice, bob } = pair()
  const messages = Array.from({ length: 50 }, (_, i) => alice.seal(`${i}`))
  expect(bob.read(messages[49]!)).toBe('49')
  bob.ratchet.expire(NOW + 1)
  bob.restart(bob.save())
  for (const message of messages.slice(0, 49)) expect(bob.read(message)).toBe('ratchet_key_gone')
  expect(bob.read(messages[49]!)).toBe('settled')
  expect(bob.read(alice.seal('next'))).toBe('next')
})

test('a chain of a thousand missing messages and a thousand missing processes is skipped', () => {
  const { alice, bob } = pair()
  const early = Array.from({ length: 1_030 }, (_, i) => alice.seal(`${i}`))
  alice.restart()
  for (let process = 0; process < 200; process++) {
    alice.seal('missing')
    alice.restart()
  }
  expect(bob.read(alice.seal('late'))).toBe('late')
  expect(bob.read(early[1_029]!)).toBe('1029')
  expect(bob.read(early[0]!)).toBe('0')
  expect(bob.read(early[1_023]!)).toBe('1023')
  expect(toHex(early[1_024]!.subarray(15, 47))).not.toBe(toHex(early[1_023]!.subarray(15, 47)))
})

test('the keys of rejected messages are bounded, and those that were deleted are reported', () => {
  const { alice, bob } = pair()
  const messages = Array.from({ length: 2_100 }, (_, i) => alice.seal(`${i}`))
  for (const message of messages) expect(bob.open(message).ok).toBe(true)
  bob.restart(bob.save())
  const chains = [...bob.ratchet.sessions.values()].flatMap(({ receiving }) => [...receiving.values()])
  expect(chains.reduce((sum, { keys }) => sum + keys.size, 0)).toBe(2_048)
  for (const message of messages.slice(0, 52)) expect(bob.read(message)).toBe('ratchet_key_gone')
  expect(bob.read(messages[52]!)).toBe('52')
  expect(bob.read(messages[52]!)).toBe('settled')
  expect(bob.read(messages[2_099]!)).toBe('2099')
})

test('a prekey statement is refused if it was changed, is of another peer or mesh, is older than one seen, or expired', () => {
  const { statement, own } = new Side(1, 2, true)
  const expected = { meshId: MESH, peerKey: own.signing.publicKey, nowMs: NOW }
  expect(readPrekeyStatement(statement.bytes, expected)).toEqual({ ok: true, statement })
  for (let at = 0; at < statement.bytes.length; at += 7)
    expect(readPrekeyStatement(flipped(statement.bytes, at), expected)).toEqual({ ok: false, code: 'prekey_forged' })
  const other = { ...expected, peerKey: peerNumber(2).signing.publicKey }
  expect(readPrekeyStatement(statement.bytes, other).ok).toBe(false)
  const later = { ...expected, seenMs: NOW + 1 }
  expect(readPrekeyStatement(statement.bytes, later)).toEqual({ ok: false, code: 'prekey_rolled_back' })
  const late = { ...expected, nowMs: statement.notAfterMs + 1 }
  expect(readPrekeyStatement(statement.bytes, late)).toEqual({ ok: false, code: 'prekey_expired' })
})

test('a key of small order begins no session', () => {
  const [alice, bob] = [new Side(1, 2), new Side(2, 1)]
  const oneTime = { id: 9, publicKey: fromHex('00'.repeat(32)) }
  const agree = () =>
    alice.ratchet.agree({ own: alice.own, peer: alice.peer }, { statement: bob.statement, oneTime }, NOW)
  expect(agree).toThrow('can not begin a ratchet')
})

test('30 days after its replacement, a signed prekey still serves; 36 days after it, its secret is gone', () => {
  const [alice, bob] = [new Side(1, 2), new Side(2, 1)]
  alice.agree(bob, NOW, false)
  const message = alice.seal('hello')
  const terms = { identity: bob.own, meshId: MESH, nowMs: NOW, notAfterMs: NOW, keepFormerMs: 35 * DAY_MS }
  bob.prekeys.rotate(crypto, { ...terms, hasKem: false })
  bob.prekeys.expire(NOW + 30 * DAY_MS)
  bob.restart(bob.save())
  expect(bob.open(message).ok).toBe(true)
  bob.restart(bob.save())
  const late = new Side(2, 1)
  late.prekeys = Prekeys.restore(bob.prekeys.export())
  late.prekeys.expire(NOW + 36 * DAY_MS)
  expect(late.open(message)).toMatchObject({ code: 'prekey_gone' })
})
