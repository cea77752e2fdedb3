import { describe, expect, test } from 'vitest'
import { ShardAddresses } from './addresses.ts'

const A = 'wss://a.example'
const B = 'wss://b.example'
const C = 'wss://c.example'
const LATER = 60_000
const told = (urls: string[], cell: string[] = []) => ({ urls, cell })
const to = (url: string) => ({ url, certificate: new Uint8Array() })

test('an address that does not reply is followed by the next one, and the last by the first', () => {
  const addresses = new ShardAddresses([A, B, C])
  expect(addresses.current.url).toBe(A)
  expect([addresses.next(0), addresses.current.url]).toEqual([true, B])
  expect([addresses.next(0), addresses.current.url]).toEqual([true, C])
  expect([addresses.next(0), addresses.current.url]).toEqual([false, A])
  expect([addresses.next(0), addresses.current.url]).toEqual([true, B])
})

test('a single address is dialled again and again', () => {
  const addresses = new ShardAddresses([A])
  expect(addresses.hasOther(0)).toBe(false)
  expect([addresses.next(0), addresses.current]).toEqual([
    false,
    { url: A, authority: 'a.example:443', from: 'given', certificate: null },
  ])
})

describe('a home', () => {
  test('is dialled after the redirect', () => {
    const addresses = new ShardAddresses([A])
    expect(addresses.follow(to('wss://B.example/v1/ws'), 0)).toBe(true)
    expect(addresses.current).toMatchObject({ authority: 'b.example:443', from: 'home' })
    expect(addresses.asksToStay).toBe(false)
  })

  test('that does not reply sends the peer back to the redirecting shard, which is asked to serve it', () => {
    const addresses = new ShardAddresses([A, C])
    addresses.follow(to(B), 0)
    expect([addresses.next(0), addresses.current.url, addresses.asksToStay]).toEqual([true, A, true])
    addresses.settle()
    expect(addresses.asksToStay).toBe(false)
  })

  test('that served the peer and fails is reported to the next shard, which need not redirect back', () => {
    const addresses = new ShardAddresses([A])
    addresses.follow(to(B), 0)
    addresses.settle()
    addresses.learn(told([C]))
    addresses.next(0)
    expect([addresses.current.url, addresses.asksToStay]).toEqual([C, true])
    addresses.next(0)
    expect([addresses.current.url, addresses.asksToStay]).toEqual([A, false])
  })

  test('that served the peer and shuts down is not dialled again at once, but later', () => {
    const addresses = new ShardAddresses([A])
    addresses.follow(to(B), 0)
    addresses.settle()
    addresses.learn(told([C]))
    addresses.leave(0)
    expect([addresses.current.url, addresses.asksToStay]).toEqual([C, false])
    expect([addresses.follow(to(B), 10), addresses.current.url, addresses.asksToStay]).toEqual([false, C, true])
    addresses.settle()
    expect(addresses.follow(to(B), LATER)).toBe(true)
  })

  test('that redirects further is followed three times', () => {
    const addresses = new ShardAddresses([A])
    expect([B, C, B, C].map((url) => addresses.follow(to(url), 0))).toEqual([true, true, true, false])
    expect([addresses.current.url, addresses.asksToStay]).toEqual([B, true])
  })

  test.each([
    ['the current address', A],
    ['not an address', 'wss//b'],
    ['of another scheme', 'https://b.example'],
    ['an address with a password', 'wss://me:secret@b.example'],
    ['an address with a query', 'wss://b.example?x'],
    ['an unencrypted address', 'ws://b.example'],
  ])('that is %s is not dialled', (_, url) => {
    const addresses = new ShardAddresses([A])
    expect(addresses.follow(to(url), 0)).toBe(false)
    addresses.learn(told([url]))
    expect([addresses.current.url, addresses.hasOther(0)]).toEqual([A, false])
  })

  test('without encryption is dialled only by peers that connected without it', () => {
    expect(new ShardAddresses(['ws://127.0.0.1:1']).follow(to('ws://127.0.0.1:2'), 0)).toBe(true)
  })
})

test('announced shards are dialled before the given addresses', () => {
  const addresses = new ShardAddresses([A, 'wss://d.example'])
  addresses.learn(told([B, C]))
  addresses.next(0)
  expect(addresses.current).toMatchObject({ url: B, from: 'told' })
})

test('a shard that served earlier is dialled if the current one announces no other', () => {
  const addresses = new ShardAddresses([A])
  addresses.follow(to(B), 0)
  addresses.settle()
  addresses.learn(told([A]))
  addresses.next(0)
  addresses.settle()
  expect(addresses.hasOther(LATER)).toBe(true)
  expect([addresses.next(LATER), addresses.current.url]).toEqual([true, B])
})

describe('after a move to another cell', () => {
  const OLD = 'wss://north.example'
  const NEW = 'wss://south.example'

  function moved(cell: string[] = []): ShardAddresses {
    const addresses = new ShardAddresses([OLD])
    addresses.follow(to(NEW), 0)
    addresses.settle()
    addresses.learn(told([], cell))
    return addresses
  }

  /** Returns the addresses that are dialled in turn while none replies. */
  function dialled(addresses: ShardAddresses): string[] {
    const urls = [addresses.current.url]
    while (addresses.next(0)) urls.push(addresses.current.url)
    return urls
  }

  test('the broker that served last is dialled again when the given addresses are gone', () => {
    const addresses = moved()
    expect(addresses.known).toEqual({ cell: [], home: NEW })
    expect(dialled(addresses)).toEqual([NEW, OLD])
    expect(dialled(addresses)).toEqual([OLD, NEW])
  })

  test('the addresses announced by the cell are dialled first, and named in invites', () => {
    const addresses = moved(['wss://south-2.example', NEW])
    expect(addresses.known).toEqual({ cell: ['wss://south-2.example', NEW], home: NEW })
    expect(addresses.publicUrl).toBe('wss://south-2.example')
    expect(dialled(addresses)).toEqual([NEW, 'wss://south-2.example', OLD])
    expect(addresses.current).toMatchObject({ url: 'wss://south-2.example', from: 'cell' })
  })

  test.each([
    ['its cell', { cell: [NEW], home: null }, [NEW, OLD]],
    ['the broker that served last', { cell: [], home: NEW }, [OLD, NEW]],
  ])('the next process knows %s', (_, known, urls) => {
    expect(dialled(new ShardAddresses([OLD], known))).toEqual(urls)
  })

  test('a mesh that moves back is found at the given addresses, and the other cell is forgotten', () => {
    const addresses = moved([NEW])
    addresses.next(0)
    expect(addresses.current.url).toBe(OLD)
    expect(addresses.settle()).toBe(true)
    expect(addresses.learn(told([], ['wss://north-2.example']))).toBe(false)
    expect(addresses.known).toEqual({ cell: [], home: null })
    expect(dialled(addresses)).toEqual([OLD, 'wss://north-2.example'])
  })

  test('only changes are reported, and unencrypted addresses are ignored', () => {
    const addresses = moved([NEW])
    expect(addresses.settle()).toBe(true)
    expect(addresses.settle()).toBe(false)
    expect(addresses.learn(told([C], [NEW]))).toBe(false)
    expect(addresses.learn(told([C], []))).toBe(false)
    expect(addresses.learn(told([], ['ws://south.example']))).toBe(false)
    expect(new ShardAddresses([OLD], { cell: ['ws://south.example'], home: 'ws://x.example' }).known).toEqual({
      cell: [],
      home: null,
    })
  })
})
