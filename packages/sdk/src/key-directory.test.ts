import type { FrameOf, KeyBindingEntry } from '@sealpost/protocol'
import type { MeshId, PeerKey } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { fakeBinding, fakeCrypto } from './fake-crypto.ts'
import { KeyDirectory } from './key-directory.ts'

const BOB = 'b'.repeat(64) as PeerKey
const CAROL = 'c'.repeat(64) as PeerKey
const binding = (peer: PeerKey, boxEpoch = 1, notAfterMs = 1_000_000): KeyBindingEntry =>
  fakeBinding({ peer, boxKey: new Uint8Array(32).fill(boxEpoch), boxEpoch, notAfterMs })

class World {
  readonly log: string[] = []
  readonly keys = new KeyDirectory({
    crypto: fakeCrypto({
      peerKey: 'a'.repeat(64) as PeerKey,
      meshId: '1'.repeat(32) as MeshId,
      boxKey: new Uint8Array(32),
      random: () => 0.5,
    }),
    learned: (peer, key) => this.log.push(`learned ${peer[0]} ${key.boxEpoch}`),
    refused: (peer, reason) => this.log.push(`refused ${peer[0]} ${reason}`),
    changed: (peer, key) => this.log.push(`changed ${peer[0]} ${key.boxEpoch}`),
  })

  answer(bindings: KeyBindingEntry[], unknown: PeerKey[] = [], nowMs = 0): void {
    const directory: FrameOf<'directory'> = { type: 'directory', ref: 1, bindings, unknown }
    this.keys.answered(directory, nowMs)
  }

  know(entry: KeyBindingEntry, nowMs = 0): void {
    this.keys.find(entry.peer, nowMs)
    this.keys.takeFrames(nowMs)
    this.answer([entry], [], nowMs)
    this.log.length = 0
  }
}

describe('asking', () => {
  test('a key is asked for once, then known', () => {
    const world = new World()
    expect(world.keys.find(BOB, 0)).toBeNull()
    expect(world.keys.find(BOB, 0)).toBeNull()
    expect(world.keys.takeFrames(0)).toMatchObject([{ peers: [BOB] }])
    expect(world.keys.takeFrames(1)).toEqual([])
    world.answer([binding(BOB)])
    expect(world.log).toEqual(['learned b 1'])
    expect(world.keys.find(BOB, 0)).toMatchObject({ peerKey: BOB, boxEpoch: 1 })
    expect(world.keys.wakeAtMs).toBe(Infinity)
  })

  test('a frame asks for 256 at most', () => {
    const world = new World()
    for (let i = 0; i < 300; i++) world.keys.find(i.toString(16).padStart(64, '0') as PeerKey, 0)
    expect(world.keys.takeFrames(0).map((frame) => frame.peers.length)).toEqual([256, 44])
  })

  test('what is not answered is asked again, whatever else is asked meanwhile', () => {
    const world = new World()
    world.keys.find(BOB, 0)
    world.keys.takeFrames(0)
    world.keys.find(CAROL, 4_000)
    world.keys.takeFrames(4_000)
    expect(world.keys.wakeAtMs).toBe(5_000)
    expect(world.keys.takeFrames(5_000)).toMatchObject([{ peers: [BOB, CAROL] }])
  })

  test('a new session asks anew', () => {
    const world = new World()
    world.keys.find(BOB, 0)
    world.keys.takeFrames(0)
    world.keys.disconnected()
    expect(world.keys.takeFrames(1)).toMatchObject([{ peers: [BOB] }])
  })

  test('an expired key is asked for again, and still opens what it sealed', () => {
    const world = new World()
    world.know(binding(BOB, 1, 100))
    expect(world.keys.find(BOB, 100)).not.toBeNull()
    expect(world.keys.find(BOB, 101)).toBeNull()
    expect(world.keys.findForOpening(BOB)).toMatchObject({ boxEpoch: 1 })
    expect(world.keys.takeFrames(101)).toMatchObject([{ peers: [BOB] }])
  })

  test('rechecks of a known key are rare', () => {
    const world = new World()
    world.know(binding(BOB))
    expect(world.keys.recheck(BOB, 9_999)).toBe(false)
    expect(world.keys.recheck(BOB, 10_000)).toBe(true)
  })
})

describe('believing', () => {
  test.each([
    ['forged', { ...binding(BOB), boxEpoch: 7 }, 'binding_forged'],
    ['expired', binding(BOB, 1, -1 + 0), 'binding_expired'],
  ])('a %s binding is refused', (_, entry, reason) => {
    const world = new World()
    world.keys.find(BOB, 0)
    world.answer([entry])
    expect(world.log).toEqual([`refused b ${reason}`])
    expect(world.keys.find(BOB, 0)).toBeNull()
  })

  test('an epoch never goes back', () => {
    const world = new World()
    world.know(binding(BOB, 5))
    world.keys.recheck(BOB, 20_000)
    world.answer([binding(BOB, 4)], [], 20_000)
    expect(world.log).toEqual(['refused b binding_rolled_back'])
    expect(world.keys.find(BOB, 20_000)).toMatchObject({ boxEpoch: 5 })
  })

  test('a newer key is told, and the one before it is kept for opening', () => {
    const world = new World()
    world.know(binding(BOB, 1))
    world.keys.recheck(BOB, 20_000)
    world.answer([binding(BOB, 2)], [], 20_000)
    expect(world.log).toEqual(['changed b 2', 'learned b 2'])
    expect(world.keys.formerOf(BOB)).toMatchObject({ boxEpoch: 1 })
  })

  test('what nobody asked for is not taken', () => {
    const world = new World()
    world.answer([binding(BOB)], [CAROL])
    expect(world.log).toEqual([])
    expect(world.keys.find(BOB, 0)).toBeNull()
  })
})
