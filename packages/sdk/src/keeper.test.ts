import type { EnvelopeId, PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import { Keeper } from './keeper.ts'
import type { StoreChange, StoreRecord } from './store.ts'

const record = (rank: number): StoreRecord => ({
  kind: 'loose',
  sender: 'a'.repeat(64) as PeerKey,
  envelopeId: '1'.repeat(32) as EnvelopeId,
  rank,
})

class World {
  readonly batches: StoreChange[][] = []
  readonly done: string[] = []
  readonly keeper = new Keeper((changes) => this.batches.push(changes))

  put(key: string, rank = 1): void {
    this.keeper.put(key, () => record(rank), this.note(key))
  }

  note(name: string): () => void {
    return () => void this.done.push(name)
  }

  get keys(): string[][] {
    return this.batches.map((batch) => batch.map(({ key }) => key))
  }
}

test('one batch is under way at a time, and the next holds all that came meanwhile', () => {
  const world = new World()
  world.put('a')
  world.keeper.flush()
  for (const key of ['b', 'c']) {
    world.put(key)
    world.keeper.flush()
  }
  expect(world.keys).toEqual([['a']])
  world.keeper.kept()
  expect(world.done).toEqual(['a'])
  world.keeper.flush()
  expect(world.keys).toEqual([['a'], ['b', 'c']])
  expect(world.keeper.isIdle).toBe(false)
  world.keeper.kept()
  expect(world.keeper.isIdle).toBe(true)
})

test('of one key only the last change is kept, as it stands when the batch leaves', () => {
  const world = new World()
  let rank = 1
  world.keeper.put('a', () => record(rank))
  world.put('b')
  world.keeper.remove('b')
  rank = 7
  world.keeper.flush()
  expect(world.batches).toEqual([
    [
      { key: 'a', record: record(7) },
      { key: 'b', record: null },
    ],
  ])
})

test('who waits for all that was asked for is called with the right batch, or at once', () => {
  const world = new World()
  world.keeper.whenKept(world.note('nothing asked'))
  world.put('a')
  world.keeper.flush()
  world.keeper.whenKept(world.note('after a'))
  world.put('b')
  world.keeper.whenKept(world.note('after b'))
  expect(world.done).toEqual(['nothing asked'])
  world.keeper.kept()
  expect(world.done).toEqual(['nothing asked', 'a', 'after a'])
  world.keeper.flush()
  world.keeper.kept()
  expect(world.done.slice(3)).toEqual(['b', 'after b'])
})
