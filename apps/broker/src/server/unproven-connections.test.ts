import { describe, expect, test } from 'vitest'
import {
  Addresses,
  isNetwork,
  type Proxies,
  prefixesOf,
  SILENT_MS_MAX,
  UnprovenConnections,
} from './unproven-connections.ts'

const FAR = '203.0.113.1'

/** Adds connections at time 0. */
const connectionsOf = (...addresses: string[]) => {
  const connections = new UnprovenConnections<string>()
  for (const [i, address] of addresses.entries()) connections.add(`${i + 1} ${address}`, address, 0)
  return connections
}

function evicted(connections: UnprovenConnections<string>, address = FAR, nowMs = 1): string | undefined {
  const victim = connections.victimFor(address, nowMs)
  if (victim !== undefined) connections.delete(victim)
  return victim
}

test.each([
  ['198.51.100.7', ['198.51.100', '198.51.100.7']],
  ['2001:db8:1:ab12', ['2001:db8:1/48', '2001:db8:1:ab/56', '2001:db8:1:ab12']],
  ['2001:db8:1:2', ['2001:db8:1/48', '2001:db8:1:0/56', '2001:db8:1:2']],
])('%s belongs to its networks', (address, prefixes) => {
  expect(prefixesOf(address)).toEqual(prefixes)
})

test('the oldest connection of the fullest network is replaced if that network has at least two more connections', () => {
  const connections = connectionsOf('192.0.2.1', '198.51.100.1', '198.51.100.2', '198.51.100.3', '192.0.2.2')
  expect(evicted(connections)).toBe('2 198.51.100.1')
  expect(evicted(connections)).toBe('1 192.0.2.1')
  expect(evicted(connections)).toBe('3 198.51.100.2')
  expect(evicted(connections)).toBeUndefined()
  expect(connections.size).toBe(2)
})

test('within a network, the fullest address loses a connection, and only to another address', () => {
  const connections = connectionsOf('192.0.2.1', '192.0.2.9', '192.0.2.9', '198.51.100.1')
  expect(connections.victimFor('192.0.2.9', 1)).toBeUndefined()
  expect(connections.victimFor('192.0.2.2', 1)).toBe('2 192.0.2.9')
  expect(connections.victimFor(FAR, 1)).toBe('2 192.0.2.9')
})

test('the /64s of one /48 count as one network, and within it those of one /56', () => {
  const spread = ['2001:db8:1:100', '2001:db8:1:200', '2001:db8:1:201', '2001:db8:1:300']
  const connections = connectionsOf('192.0.2.1', '192.0.2.1', '192.0.2.1', ...spread)
  expect(evicted(connections)).toBe('5 2001:db8:1:200')
})

test('clients that all reconnect at once do not displace each other', () => {
  const connections = connectionsOf('192.0.2.1', '198.51.100.1')
  connections.heard('1 192.0.2.1')
  expect(connections.victimFor(FAR, SILENT_MS_MAX - 1)).toBeUndefined()
  expect(connections.victimFor(FAR, SILENT_MS_MAX)).toBeUndefined() // B has sent its first frame
  connections.delete('1 192.0.2.1')
  expect(connections.victimFor('198.51.100.1', SILENT_MS_MAX - 1)).toBeUndefined()
  expect(connections.victimFor('198.51.100.1', SILENT_MS_MAX)).toBe('2 198.51.100.1')
})

test('a connection that has proven its key is no longer tracked', () => {
  const connections = connectionsOf('192.0.2.1', '192.0.2.1')
  connections.delete('1 192.0.2.1')
  connections.delete('1 192.0.2.1')
  connections.delete('2 192.0.2.1')
  expect(connections.victimFor(FAR, 60_000)).toBeUndefined()
  expect(connections.size).toBe(0)
})

test('a crowd of 50 networks never keeps out a client from elsewhere', () => {
  const connections = new UnprovenConnections<string>()
  for (let i = 0; i < 1000; i++) connections.add(`${i}`, `10.0.${i % 50}.${i >> 6}`, 0)
  for (let i = 0; i < 18; i++) {
    const address = `192.0.${i}.1`
    expect(evicted(connections, address)).toBeDefined()
    connections.add(`honest ${i}`, address, 0)
  }
  expect(connections.size).toBe(1000)
})

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
])('H58: a connection of %s counts as %s; an IPv6 address counts as its /64', (connection, client) => {
  expect(clientOf(connection)).toBe(client)
})

test('headers of an untrusted proxy are ignored', () => {
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

  test('the header that the proxy does not write is ignored', () => {
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
