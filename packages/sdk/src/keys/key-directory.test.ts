import type { FrameOf, KeyBindingEntry } from '@sealpost/protocol'
import type { MeshId, PeerKey } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { fakeBinding, fakeCrypto } from '../test/fake-crypto.ts'
import { KeyDirectory } from './key-directory.ts'
import { KeyEpochs } from './key-epochs.ts'

const BOB = 'b'.repeat(64) as PeerKey
const CAROL = 'c'.repeat(64) as PeerKey
const binding = (peer: PeerKey, boxEpoch = 1, notAfterMs = 1_000_000): KeyBindingEntry =>
  fakeBinding({ peer, boxKey: new Uint8Array(32).fill(boxEpoch), boxEpoch, notAfterMs })

class World {
  readonly log: string[] = []
  readonly epochs = new KeyEpochs({ self: 'a'.repeat(64) as PeerKey })
  readonly keys = new KeyDirectory({
    crypto: fakeCrypto({
      peerKey: 'a'.repeat(64) as PeerKey,
      meshId: '1'.repeat(32) as MeshId,
      boxKey: new Uint8Array(32),
      random: () => 0.5,
    }),
    epochs: this.epochs,
    isFormer: () => false,
    learned: (peer, key) => this.log.push(`learned ${peer[0]} ${key.boxEpoch}`),
    refused: (peer, reason) => this.log.push(`refused ${peer[0]} ${reason}`),
    changed: (peer, key) => this.log.push(`changed ${peer[0]} ${key.boxEpoch}`),
  })

  answer(bindings: KeyBindingEntry[], unknown: PeerKey[] = [], nowMs = 0): void {
    const directory: FrameOf<'directory'> = { type: 'directory', ref: 1, bindings, unknown }
    this.keys.answered(directory, nowMs)
  }

  recheck(peer: PeerKey, nowMs: number): void {
    this.keys.recheck(peer, nowMs)
    this.keys.takeFrames(nowMs)
  }

  /** Replies under each request number that may be open. */
  answerHistory(bindings: KeyBindingEntry[], nowMs = 0): void {
    for (let ref = 1; ref < 9; ref++) this.keys.historyAnswered({ type: 'keyHistory', ref, bindings }, nowMs)
  }

  know(entry: KeyBindingEntry, nowMs = 0): void {
    this.keys.find(entry.peer, nowMs)
    this.keys.takeFrames(nowMs)
    this.answer([entry], [], nowMs)
    this.log.length = 0
  }
}

describe('requesting', () => {
  test('a reply that came before its request makes the request unnecessary', () => {
    const world = new World()
    world.keys.find(BOB, 0)
    world.answer([binding(BOB)])
    expect(world.keys.takeFrames(0)).toEqual([])
    expect(world.log).toEqual(['learned b 1'])
  })

  test('a key is requested once, then known', () => {
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

  test('a frame requests at most 256 keys', () => {
    const world = new World()
    for (let i = 0; i < 300; i++) world.keys.find(i.toString(16).padStart(64, '0') as PeerKey, 0)
    expect(world.keys.takeFrames(0).map((frame) => frame.type === 'lookup' && frame.peers.length)).toEqual([256, 44])
  })

  test('a request without a reply is repeated, whatever is requested meanwhile', () => {
    const world = new World()
    world.keys.find(BOB, 0)
    world.keys.takeFrames(0)
    world.keys.find(CAROL, 4_000)
    world.keys.takeFrames(4_000)
    expect(world.keys.wakeAtMs).toBe(5_000)
    expect(world.keys.takeFrames(5_000)).toMatchObject([{ peers: [BOB, CAROL] }])
  })

  test('a new session repeats the requests', () => {
    const world = new World()
    world.keys.find(BOB, 0)
    world.keys.takeFrames(0)
    world.keys.disconnected()
    expect(world.keys.takeFrames(1)).toMatchObject([{ peers: [BOB] }])
  })

  test('an expired key is requested again, and still opens what it sealed', () => {
    const world = new World()
    world.know(binding(BOB, 1, 100))
    expect(world.keys.find(BOB, 100)).not.toBeNull()
    expect(world.keys.find(BOB, 101)).toBeNull()
    expect(world.keys.findForOpening(BOB)).toMatchObject({ boxEpoch: 1 })
    expect(world.keys.takeFrames(101)).toMatchObject([{ peers: [BOB] }])
  })

  test('former keys are requested for one peer at a time: at once for a new key, rarely afterwards', () => {
    const world = new World()
    world.know(binding(BOB))
    expect(world.keys.recheck(BOB, 1)).toBe(true)
    expect(world.keys.takeFrames(1)).toMatchObject([{ type: 'lookupHistory', peer: BOB }])
    world.answerHistory([binding(BOB)], 1)
    expect(world.log).toEqual(['learned b 1'])
    expect(world.keys.recheck(BOB, 10_000)).toBe(false)
    expect(world.keys.recheck(BOB, 10_001)).toBe(true)
  })

  test('a long-used key is looked up again, and stays valid meanwhile', () => {
    const world = new World()
    world.know(binding(BOB, 1, 1e9))
    expect(world.keys.find(BOB, 3_600_000)).not.toBeNull()
    expect(world.keys.takeFrames(3_600_000)).toEqual([])
    expect(world.keys.find(BOB, 3_600_001)).not.toBeNull()
    expect(world.keys.takeFrames(3_600_001)).toMatchObject([{ type: 'lookup', peers: [BOB] }])
  })

  test('a hint requests a known key, and no other', () => {
    const world = new World()
    world.know(binding(BOB))
    world.keys.rebound([BOB, CAROL])
    expect(world.keys.takeFrames(1)).toMatchObject([{ type: 'lookup', peers: [BOB] }])
    world.answer([binding(BOB, 2)], [], 1)
    expect(world.log).toEqual(['changed b 2', 'learned b 2'])
  })

  test('a reply that may predate a hint is not enough', () => {
    const world = new World()
    world.keys.find(BOB, 0)
    world.keys.takeFrames(0)
    world.keys.rebound([BOB])
    world.answer([binding(BOB, 1)])
    expect(world.log).toEqual([])
    expect(world.keys.takeFrames(1)).toMatchObject([{ peers: [BOB] }])
    world.answer([binding(BOB, 2)])
    expect(world.log).toEqual(['changed b 2', 'learned b 2'])
  })

  test('a request for one key becomes a request for all, whichever reply comes first', () => {
    const world = new World()
    world.keys.find(BOB, 0)
    world.keys.takeFrames(0)
    expect(world.keys.recheck(BOB, 0)).toBe(true)
    expect(world.keys.takeFrames(0)).toMatchObject([{ type: 'lookupHistory', peer: BOB }])
    world.answer([binding(BOB, 2)])
    expect(world.log).toEqual([])
    world.answerHistory([binding(BOB, 2), binding(BOB, 1)])
    expect(world.log).toEqual(['learned b 2'])
  })
})

describe('trusting', () => {
  test.each([
    ['forged', { ...binding(BOB), boxEpoch: 7 }, 'binding_forged'],
    ['expired', binding(BOB, 1, -1 + 0), 'binding_expired'],
  ])('a binding is refused: %s', (_, entry, reason) => {
    const world = new World()
    world.keys.find(BOB, 0)
    world.answer([entry])
    expect(world.log).toEqual([`refused b ${reason}`])
    expect(world.keys.find(BOB, 0)).toBeNull()
  })

  test('an epoch never decreases', () => {
    const world = new World()
    world.know(binding(BOB, 5))
    world.recheck(BOB, 20_000)
    world.answerHistory([binding(BOB, 4)], 20_000)
    expect(world.log).toEqual(['refused b binding_rolled_back'])
    expect(world.keys.find(BOB, 20_000)).toMatchObject({ boxEpoch: 5 })
  })

  test('a newer key is reported, and earlier ones are kept for opening', () => {
    const world = new World()
    for (const epoch of [1, 2, 3]) {
      world.know(binding(BOB, epoch))
      world.keys.rebound([BOB])
    }
    expect(world.keys.formersOf(BOB)).toMatchObject([{ boxEpoch: 2 }, { boxEpoch: 1 }])
  })

  test('former keys are trusted if the peer signed them, even if they have expired', () => {
    const world = new World()
    world.recheck(BOB, 50)
    const forged = { ...binding(BOB, 2), boxKey: new Uint8Array(32) }
    world.answerHistory([binding(BOB, 4), binding(BOB, 3, 49), forged, binding(CAROL, 2), binding(BOB, 1)], 50)
    expect(world.log).toEqual(['learned b 4'])
    expect(world.keys.formersOf(BOB).map(({ boxEpoch }) => boxEpoch)).toEqual([3, 1])
  })

  test.each([
    ['empty', [], 'unknown_peer'],
    ['of another peer', [binding(CAROL)], 'unknown_peer'],
    ['with an expired first key', [binding(BOB, 1, 1)], 'binding_expired'],
  ])('a list of former keys is refused: %s', (_, bindings, reason) => {
    const world = new World()
    world.recheck(BOB, 50)
    world.answerHistory(bindings, 50)
    expect(world.log).toEqual([`refused b ${reason}`])
  })

  test('keys that nobody requested are ignored', () => {
    const world = new World()
    world.answer([binding(BOB)], [CAROL])
    expect(world.log).toEqual([])
    expect(world.keys.find(BOB, 0)).toBeNull()
  })
})

describe('epochs seen elsewhere', () => {
  test('a key older than one that a former process saw is refused, and a newer one is recorded', () => {
    const world = new World()
    world.epochs.raise(BOB, 3)
    world.keys.find(BOB, 0)
    world.answer([binding(BOB, 2)])
    expect(world.log).toEqual(['refused b binding_rolled_back'])
    expect(world.keys.find(BOB, 0)).toBeNull()
    world.answer([binding(BOB, 4)])
    expect(world.log.at(-1)).toBe('learned b 4')
    expect(world.epochs.of(BOB)).toBe(4)
  })

  test('a key is requested again if its reply is older than a key that a space saw meanwhile', () => {
    const world = new World()
    world.keys.find(BOB, 0)
    world.keys.takeFrames(0)
    world.epochs.raise(BOB, 2)
    world.answer([binding(BOB, 1)])
    expect(world.log).toEqual([])
    expect(world.keys.takeFrames(1)).toMatchObject([{ peers: [BOB] }])
    world.answer([binding(BOB, 1)])
    expect(world.log).toEqual(['refused b binding_rolled_back'])
  })

  test("a peer's own key epochs are not recorded, because its key file has them", () => {
    const [self, records] = [BOB, [{ kind: 'keyEpoch', peer: BOB, boxEpoch: 9 }] as const]
    const epochs = new KeyEpochs({ self })
    epochs.raise(self, 5)
    expect([epochs.of(self), new KeyEpochs({ self, records }).of(self)]).toEqual([0, 0])
  })
})
