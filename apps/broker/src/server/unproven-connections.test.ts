import { expect, test } from 'vitest'
import { prefixesOf, SILENT_MS_MAX, UnprovenConnections } from './unproven-connections.ts'

const FAR = '203.0.113.1'

/** All came at 0, in this order. */
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

test('the oldest connection of the fullest network makes room, as long as that has two more', () => {
  const connections = connectionsOf('192.0.2.1', '198.51.100.1', '198.51.100.2', '198.51.100.3', '192.0.2.2')
  expect(evicted(connections)).toBe('2 198.51.100.1')
  expect(evicted(connections)).toBe('1 192.0.2.1')
  expect(evicted(connections)).toBe('3 198.51.100.2')
  expect(evicted(connections)).toBeUndefined()
  expect(connections.size).toBe(2)
})

test('within a network the fullest address makes room, and only for another address', () => {
  const connections = connectionsOf('192.0.2.1', '192.0.2.9', '192.0.2.9', '198.51.100.1')
  expect(connections.victimFor('192.0.2.9', 1)).toBeUndefined()
  expect(connections.victimFor('192.0.2.2', 1)).toBe('2 192.0.2.9')
  expect(connections.victimFor(FAR, 1)).toBe('2 192.0.2.9')
})

test('many /64s of one /48 are one network, and of one /56 within it', () => {
  const spread = ['2001:db8:1:100', '2001:db8:1:200', '2001:db8:1:201', '2001:db8:1:300']
  const connections = connectionsOf('192.0.2.1', '192.0.2.1', '192.0.2.1', ...spread)
  expect(evicted(connections)).toBe('5 2001:db8:1:200')
})

test('clients that all come back at once displace nobody who is about to be served', () => {
  const connections = connectionsOf('192.0.2.1', '198.51.100.1')
  connections.heard('1 192.0.2.1')
  expect(connections.victimFor(FAR, SILENT_MS_MAX - 1)).toBeUndefined()
  expect(connections.victimFor(FAR, SILENT_MS_MAX)).toBeUndefined() // it waits for the broker
  connections.delete('1 192.0.2.1')
  expect(connections.victimFor('198.51.100.1', SILENT_MS_MAX - 1)).toBeUndefined()
  expect(connections.victimFor('198.51.100.1', SILENT_MS_MAX)).toBe('2 198.51.100.1')
})

test('one that has proven its key is not among them any more', () => {
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
