import { ANY_ID, NO_TURNS, PRIORITY_MAX, type Want } from '@sealpost/protocol'
import type { PeerNo } from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import { MESH } from './conformance-world.ts'
import { Drain } from './drain.ts'

let nowMs: number
let claims: number[][]
let ticks: { atMs: number; tick: () => void }[]
let drain: Drain

beforeEach(() => {
  nowMs = 0
  claims = []
  ticks = []
  drain = new Drain(
    {
      start: (wants) => claims.push(wants.map((want) => want.session.peer)),
      schedule: (afterMs, tick) => ticks.push({ atMs: nowMs + afterMs, tick }),
      nowMs: () => nowMs,
    },
    { tickMs: 5, wantsMax: 3 },
  )
})

test('a quiet drain claims at once', () => {
  drain.want(want(1))
  drain.pull()
  expect(claims).toEqual([[1]])
  expect(ticks).toEqual([])
})

test('a pull without a want does nothing', () => {
  drain.pull()
  drain.ended()
  expect(claims).toEqual([])
  expect(ticks).toEqual([])
})

test('one claim is in flight at a time, and what came meanwhile shares the next one', () => {
  drain.want(want(1))
  drain.pull()
  for (const peer of [2, 3]) {
    drain.want(want(peer))
    drain.pull()
  }
  expect(claims).toEqual([[1]])
  nowMs = 9
  drain.ended()
  expect(claims).toEqual([[1], [2, 3]])
})

test('claims begin a tick apart, and one tick is scheduled for all who pull', () => {
  drain.want(want(1))
  drain.pull()
  nowMs = 2
  drain.ended()
  for (const peer of [2, 3]) {
    drain.want(want(peer))
    drain.pull()
  }
  expect(claims).toEqual([[1]])
  expect(ticks.map(({ atMs }) => atMs)).toEqual([5])
  nowMs = 5
  ticks[0]!.tick()
  expect(claims).toEqual([[1], [2, 3]])
})

test('a claim takes as many wants as are allowed, and the rest has the next tick', () => {
  for (const peer of [1, 2, 3, 4]) drain.want(want(peer))
  drain.pull()
  expect(claims).toEqual([[1, 2, 3]])
  drain.ended()
  expect(claims).toHaveLength(1)
  nowMs = 5
  ticks[0]!.tick()
  expect(claims).toEqual([[1, 2, 3], [4]])
})

const want = (peer: number): Want => ({
  session: { meshId: MESH, peer: peer as PeerNo, epoch: 1 },
  limit: 1,
  limitBytes: 1,
  ids: ANY_ID,
  priorityMax: PRIORITY_MAX,
  turns: NO_TURNS,
  collected: [],
})
