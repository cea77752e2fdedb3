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

test('nothing is sent until there is a status, then it is sent once in each session', () => {
  const presence = new PresenceClient(() => undefined)
  presence.connected()
  expect(presence.takeFrames()).toEqual([])
  presence.setStatus({ availability: 'working', summary: 'in a meeting' })
  presence.watch(true)
  const status = { type: 'status', availability: 'working', summary: 'in a meeting', declinesReceipts: false }
  const both = [status, { type: 'watch', isOn: true }]
  expect(presence.takeFrames()).toEqual(both)
  expect(presence.takeFrames()).toEqual([])
  presence.disconnected()
  presence.connected()
  expect(presence.takeFrames()).toEqual(both)
  presence.watch(false)
  expect(presence.takeFrames()).toEqual([{ type: 'watch', isOn: false }])
  presence.connected()
  expect(presence.takeFrames()).toEqual([status])
})

test('a change is reported once, and everybody is offline without a session', () => {
  const told: PresenceEntry[] = []
  const presence = new PresenceClient((one) => told.push(one))
  presence.watch(true)
  const snapshot = { type: 'presence' as const, peers: [entry(ANN), entry(BEN)], isSnapshot: true }
  presence.received(snapshot)
  presence.received(snapshot)
  const busy = entry(BEN, { availability: 'dnd', summary: 'quiet' })
  presence.received({ ...snapshot, peers: [busy], isSnapshot: false })
  expect(told).toEqual([entry(ANN), entry(BEN), busy])
  presence.disconnected()
  presence.disconnected()
  expect(told.slice(3)).toEqual([entry(ANN, { isOnline: false }), { ...busy, isOnline: false }])
  expect([...presence.presence.values()].some(({ isOnline }) => isOnline)).toBe(false)
  presence.received({ ...snapshot, peers: [entry(ANN)] })
  expect(told.at(-1)).toEqual(entry(ANN))
})

test('a new subscription starts over', () => {
  const presence = new PresenceClient(() => undefined)
  presence.connected()
  presence.watch(true)
  expect(presence.takeFrames()).toHaveLength(1)
  const snapshot = { type: 'presence' as const, peers: [entry(ANN)], isSnapshot: true }
  presence.received(snapshot)
  presence.watch(true)
  expect([presence.takeFrames(), presence.presence.size]).toEqual([[], 1])
  presence.watch(false)
  presence.received(snapshot) // The snapshot was requested earlier and arrives late.
  expect(presence.presence.size).toBe(0)
  presence.watch(true)
  expect(presence.takeFrames()).toEqual([{ type: 'watch', isOn: true }])
})

test.each(['x'.repeat(121), 'in Zürich', 'a\nb'])('a summary %j is refused', (summary) => {
  expect(() => validateStatus({ availability: 'idle', summary })).toThrow(
    expect.objectContaining({ code: 'summary_malformed' }),
  )
})

describe('in the client', () => {
  test('a watcher sees online peers and changes, also after a reconnect, until it unsubscribes', async () => {
    const world = new World()
    const { next, onEvent } = events()
    const [alice, bob] = [await world.peer({ onEvent }), await world.peer()]
    const seen: string[] = []
    const off = alice.watchPresence(({ peer, availability }) => {
      if (peer === bob.key) seen.push(availability)
    })
    await next('presence', 2)
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

  test('a status is sent again in the next session', async () => {
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
