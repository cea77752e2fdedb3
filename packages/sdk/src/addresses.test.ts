import { describe, expect, test } from 'vitest'
import { Addresses } from './addresses.ts'

const A = 'wss://a.example'
const B = 'wss://b.example'
const C = 'wss://c.example'
const LATER = 60_000
const to = (url: string) => ({ url, certificate: new Uint8Array() })

test('what does not answer is followed by the next, and the last by the first', () => {
  const addresses = new Addresses([A, B, C])
  expect(addresses.current.url).toBe(A)
  expect([addresses.turn(0), addresses.current.url]).toEqual([true, B])
  expect([addresses.turn(0), addresses.current.url]).toEqual([true, C])
  expect([addresses.turn(0), addresses.current.url]).toEqual([false, A])
  expect([addresses.turn(0), addresses.current.url]).toEqual([true, B])
})

test('a single address is dialled again and again', () => {
  const addresses = new Addresses([A])
  expect(addresses.hasOther(0)).toBe(false)
  expect([addresses.turn(0), addresses.current]).toEqual([
    false,
    { url: A, authority: 'a.example:443', from: 'given', certificate: null },
  ])
})

describe('a home', () => {
  test('is followed', () => {
    const addresses = new Addresses([A])
    expect(addresses.follow(to('wss://B.example/v1/ws'), 0)).toBe(true)
    expect(addresses.current).toMatchObject({ authority: 'b.example:443', from: 'home' })
    expect(addresses.asksToStay).toBe(false)
  })

  test('that does not answer sends the peer back to who named it, which is asked to serve it', () => {
    const addresses = new Addresses([A, C])
    addresses.follow(to(B), 0)
    expect([addresses.turn(0), addresses.current.url, addresses.asksToStay]).toEqual([true, A, true])
    addresses.settle()
    expect(addresses.asksToStay).toBe(false)
  })

  test('that served us and does not answer any more is said to be gone to the next, which need not send us back', () => {
    const addresses = new Addresses([A])
    addresses.follow(to(B), 0)
    addresses.settle()
    addresses.tell([C])
    addresses.turn(0)
    expect([addresses.current.url, addresses.asksToStay]).toEqual([C, true])
    addresses.turn(0)
    expect([addresses.current.url, addresses.asksToStay]).toEqual([A, false])
  })

  test('that served us and goes away is not followed again at once, but later', () => {
    const addresses = new Addresses([A])
    addresses.follow(to(B), 0)
    addresses.settle()
    addresses.tell([C])
    addresses.leave(0)
    expect([addresses.current.url, addresses.asksToStay]).toEqual([C, false])
    expect([addresses.follow(to(B), 10), addresses.current.url, addresses.asksToStay]).toEqual([false, C, true])
    addresses.settle()
    expect(addresses.follow(to(B), LATER)).toBe(true)
  })

  test('that names the next and so on is followed three times', () => {
    const addresses = new Addresses([A])
    expect([B, C, B, C].map((url) => addresses.follow(to(url), 0))).toEqual([true, true, true, false])
    expect([addresses.current.url, addresses.asksToStay]).toEqual([B, true])
  })

  test.each([
    ['the very place', A],
    ['no address', 'wss//b'],
    ['another scheme', 'https://b.example'],
    ['a password', 'wss://me:secret@b.example'],
    ['a query', 'wss://b.example?x'],
    ['one without encryption', 'ws://b.example'],
  ])('that is %s is not followed', (_, url) => {
    const addresses = new Addresses([A])
    expect(addresses.follow(to(url), 0)).toBe(false)
    addresses.tell([url])
    expect([addresses.current.url, addresses.hasOther(0)]).toEqual([A, false])
  })

  test('without encryption is for those who came without', () => {
    expect(new Addresses(['ws://127.0.0.1:1']).follow(to('ws://127.0.0.1:2'), 0)).toBe(true)
  })
})

test('shards that were told of come before the addresses that were given', () => {
  const addresses = new Addresses([A, 'wss://d.example'])
  addresses.tell([B, C])
  addresses.turn(0)
  expect(addresses.current).toMatchObject({ url: B, from: 'told' })
})
