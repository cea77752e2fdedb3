import { ready } from '@sealpost/identity'
import type { PeerKey } from '@sealpost/std'
import { beforeAll, describe, expect, test } from 'vitest'
import type { PresenceEntry } from '../ports.ts'
import { events, World } from '../test/client.ts'
import { PresenceClient, validateStatus } from './presence-client.ts'

beforeAll(() => ready())

const [ANN, BEN] = ['a', 'b'].map((digit) => digit.repeat(64) as PeerKey) as [PeerKey, PeerKey]
const entry = (peer: PeerKey, changes: Partial<PresenceEntry> = {}): PresenceEntry => ({
  peer,
  isOnline: true,
  availability: 'idle',
  summary: '',
  ...changes,
})

test('nothing is said until there is something to say, then once in each session', () => {
  const standing = new PresenceClient(() => undefined)
  standing.connected()
  expect(standing.takeFrames()).toEqual([])
  standing.say({ availability: 'working', summary: 'in a meeting' })
  standing.watch(true)
  const status = { type: 'status', availability: 'working', summary: 'in a meeting', declinesReceipts: false }
  const both = [status, { type: 'watch', isOn: true }]
  expect(standing.takeFrames()).toEqual(both)
  expect(standing.takeFrames()).toEqual([])
  standing.disconnected()
  standing.connected()
  expect(standing.takeFrames()).toEqual(both)
  standing.watch(false)
  expect(standing.takeFrames()).toEqual([{ type: 'watch', isOn: false }])
  standing.connected()
  expect(standing.takeFrames()).toEqual([status])
})

test('a change is told once, and everybody is offline without a session', () => {
  const told: PresenceEntry[] = []
  const standing = new PresenceClient((one) => told.push(one))
  standing.watch(true)
  const snapshot = { type: 'presence' as const, peers: [entry(ANN), entry(BEN)], isSnapshot: true }
  standing.told(snapshot)
  standing.told(snapshot)
  const busy = entry(BEN, { availability: 'dnd', summary: 'quiet' })
  standing.told({ ...snapshot, peers: [busy], isSnapshot: false })
  expect(told).toEqual([entry(ANN), entry(BEN), busy])
  standing.disconnected()
  standing.disconnected()
  expect(told.slice(3)).toEqual([entry(ANN, { isOnline: false }), { ...busy, isOnline: false }])
  expect([...standing.presence.values()].some(({ isOnline }) => isOnline)).toBe(false)
  standing.told({ ...snapshot, peers: [entry(ANN)] })
  expect(told.at(-1)).toEqual(entry(ANN))
})

test('who looks away and back again starts over', () => {
  const standing = new PresenceClient(() => undefined)
  standing.connected()
  standing.watch(true)
  expect(standing.takeFrames()).toHaveLength(1)
  const snapshot = { type: 'presence' as const, peers: [entry(ANN)], isSnapshot: true }
  standing.told(snapshot)
  standing.watch(true)
  expect([standing.takeFrames(), standing.presence.size]).toEqual([[], 1])
  standing.watch(false)
  standing.told(snapshot) // it was on its way
  expect(standing.presence.size).toBe(0)
  standing.watch(true)
  expect(standing.takeFrames()).toEqual([{ type: 'watch', isOn: true }])
})

test.each(['x'.repeat(121), 'in Zürich', 'a\nb'])('a summary %j is refused', (summary) => {
  expect(() => validateStatus({ availability: 'idle', summary })).toThrow(
    expect.objectContaining({ code: 'summary_malformed' }),
  )
})

describe('in the client', () => {
  test('a watcher sees who is there and what changes, again after a reconnect, until it looks away', async () => {
    const world = new World()
    const { next, onEvent } = events()
    const [alice, bob] = [await world.peer({ onEvent }), await world.peer()]
    const seen: string[] = []
    const off = alice.watchPresence(({ peer, availability }) => {
      if (peer === bob.key) seen.push(availability)
    })
    await next('presence', 2) // Alice is online herself
    bob.setStatus({ availability: 'dnd', summary: 'asleep' })
    await next('presence', 3)
    expect(alice.presence.get(bob.key)).toMatchObject({ isOnline: true, availability: 'dnd', summary: 'asleep' })
    world.socketOf(alice).cut(1006)
    await next('disconnected')
    expect(alice.presence.get(bob.key)).toMatchObject({ isOnline: false })
    await next('connected', 2)
    await next('presence', 7)
    expect(alice.presence.get(bob.key)).toMatchObject({ isOnline: true })
    expect(seen).toEqual(['idle', 'dnd', 'dnd', 'idle'])
    const watched = world.hears('watch')
    off()
    expect(await watched).toEqual({ type: 'watch', isOn: false })
    await Promise.all([alice.close(), bob.close()])
  })

  test('a status is said again in the next session', async () => {
    const world = new World()
    const alice = await world.peer()
    const twice = world.hears('status', 2)
    alice.setStatus({ availability: 'working', declinesReceipts: true })
    await expect.poll(() => world.heard('status')).toHaveLength(1)
    world.socketOf(alice).cut(1006)
    expect(await twice).toEqual({ type: 'status', availability: 'working', summary: '', declinesReceipts: true })
    await alice.close()
  })
})
