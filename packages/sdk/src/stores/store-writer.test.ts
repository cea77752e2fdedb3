import type { EnvelopeId, PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import type { StoreRecord } from './records.ts'
import { type StoreChange, StoreWriter } from './store.ts'

const record = (rank: number): StoreRecord => ({
  kind: 'loose',
  sender: 'a'.repeat(64) as PeerKey,
  envelopeId: '1'.repeat(32) as EnvelopeId,
  rank,
})

class World {
  readonly batches: StoreChange[][] = []
  readonly done: string[] = []
  readonly writer = new StoreWriter((changes) => this.batches.push(changes))

  put(key: string, rank = 1): void {
    this.writer.put(key, () => record(rank), this.note(key))
  }

  note(name: string): () => void {
    return () => void this.done.push(name)
  }

  get keys(): string[][] {
    return this.batches.map((batch) => batch.map(({ key }) => key))
  }
}

test('one batch is in flight at a time, and the next contains all later changes', () => {
  const world = new World()
  world.put('a')
  world.writer.flush()
  for (const key of ['b', 'c']) {
    world.put(key)
    world.writer.flush()
  }
  expect(world.keys).toEqual([['a']])
  world.writer.written()
  expect(world.done).toEqual(['a'])
  world.writer.flush()
  expect(world.keys).toEqual([['a'], ['b', 'c']])
  expect(world.writer.isIdle).toBe(false)
  world.writer.written()
  expect(world.writer.isIdle).toBe(true)
})

test('only the last change of each key is written, in its state when the batch leaves', () => {
  const world = new World()
  let rank = 1
  world.writer.put('a', () => record(rank))
  world.put('b')
  world.writer.remove('b')
  rank = 7
  world.writer.flush()
  expect(world.batches).toEqual([
    [
      { key: 'a', record: record(7) },
      { key: 'b', record: null },
    ],
  ])
})

test('waiters are called with the right batch, or at once', () => {
  const world = new World()
  world.writer.whenWritten(world.note('nothing asked'))
  world.put('a')
  world.writer.flush()
  world.writer.whenWritten(world.note('after a'))
  world.put('b')
  world.writer.whenWritten(world.note('after b'))
  expect(world.done).toEqual(['nothing asked'])
  world.writer.written()
  expect(world.done).toEqual(['nothing asked', 'a', 'after a'])
  world.writer.flush()
  world.writer.written()
  expect(world.done.slice(3)).toEqual(['b', 'after b'])
})
