import { describe, expect, test } from 'vitest'
import { Addresses, isNetwork, type Proxies } from './addresses.ts'

const clientOf = (connection: string, headers: Record<string, string> = {}, proxies: Partial<Proxies> = {}) =>
  new Addresses({ trusted: [], header: 'x-forwarded-for', ...proxies }).clientOf(new Headers(headers), connection)

const behind = (said: string, connection = '10.0.0.1') =>
  clientOf(connection, { 'X-Forwarded-For': said }, { trusted: ['10.0.0.0/8', 'fd00::/8'] })
const forwarded = (said: string) =>
  clientOf('10.0.0.1', { Forwarded: said }, { trusted: ['10.0.0.1'], header: 'forwarded' })

test.each([
  ['192.0.2.7', '192.0.2.7'],
  ['::ffff:192.0.2.7', '192.0.2.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
  ['2001:db8::1', '2001:db8:0:0'],
  ['2001:db8::2:3', '2001:db8:0:0'],
  ['::1', '0:0:0:0'],
  ['fe80::', 'fe80:0:0:0'],
  ['2001:0DB8:0001::9', '2001:db8:1:0'],
  ['', ''],
])('H58: a connection of %s counts as %s, the /64 of an address of IPv6', (connection, client) => {
  expect(clientOf(connection)).toBe(client)
})

test('nobody is believed who is no trusted proxy', () => {
  expect(clientOf('192.0.2.7', { 'X-Forwarded-For': '198.51.100.1', Forwarded: 'for=198.51.100.1' })).toBe('192.0.2.7')
  expect(behind('198.51.100.1', '192.0.2.7')).toBe('192.0.2.7')
})

describe('behind a trusted proxy', () => {
  test.each([
    ['198.51.100.1', '198.51.100.1'],
    ['203.0.113.5, 198.51.100.1', '198.51.100.1'],
    ['203.0.113.5, 198.51.100.1, 10.9.9.9, fd00::7', '198.51.100.1'],
    ['198.51.100.1:4711', '198.51.100.1'],
    ['[2001:db8::5]:4711', '2001:db8:0:0'],
    ['unknown', '10.0.0.1'],
    ['198.51.100.1, <script>', '10.0.0.1'],
    ['', '10.0.0.1'],
    ['10.1.1.1', '10.1.1.1'],
  ])('%s counts as %s', (said, client) => {
    expect(behind(said)).toBe(client)
  })

  test('the header that it does not write is not read', () => {
    const both = { 'X-Forwarded-For': '198.51.100.1', Forwarded: 'for=203.0.113.5' }
    expect(clientOf('10.0.0.1', both, { trusted: ['10.0.0.1'] })).toBe('198.51.100.1')
    expect(clientOf('10.0.0.1', both, { trusted: ['10.0.0.1'], header: 'forwarded' })).toBe('203.0.113.5')
  })

  test.each([
    ['for=198.51.100.1', '198.51.100.1'],
    ['for=203.0.113.5, proto=https; For="[2001:db8:cafe::17]:4711";by=10.0.0.1', '2001:db8:cafe:0'],
    ['for=_hidden', '10.0.0.1'],
    ['by=198.51.100.1', '10.0.0.1'],
  ])('Forwarded: %s counts as %s', (said, client) => {
    expect(forwarded(said)).toBe(client)
  })
})

test.each([
  ['10.0.0.0/8', true],
  ['192.0.2.1', true],
  ['fd00::/8', true],
  ['10.0.0.0/33', false],
  ['10.0.0.0/', false],
  ['10.0.0.0/8/8', false],
  ['proxy.example', false],
])('%s is a network: %s', (text, is) => {
  expect(isNetwork(text)).toBe(is)
})
