import { BACKOFF_MAX_MS } from '@sealpost/sdk/backoff'
import { describe, expect, test } from 'vitest'
import { checkPlacement, type StormSetup, weatherStorm } from './simulation.ts'

describe('placement', () => {
  test.each([
    [3, 1_000],
    [20, 5_000],
  ])('over %i shards moves the minimum of %i meshes', (shards, meshes) => {
    const outcome = checkPlacement({ shards, meshes, spread: 0, seed: 1 })
    expect(outcome.movedInVain).toBe(0)
    expect(outcome.movedByNewShard).toBeCloseTo(1 / (shards + 1), 1)
    expect(outcome.movedByLoss).toBeCloseTo(1 / shards, 1)
    expect(outcome.fullest).toBeLessThan(1.25)
    expect(outcome.emptiest).toBeGreaterThan(0.75)
  })

  test('weighs meshes by their size', () => {
    const alike = checkPlacement({ shards: 10, meshes: 2_000, spread: 0, seed: 1 })
    const uneven = checkPlacement({ shards: 10, meshes: 2_000, spread: 2, seed: 1 })
    expect(uneven.fullest).toBeGreaterThan(alike.fullest)
  })
})

describe('a storm', () => {
  const usual: StormSetup = {
    sessions: 5_000,
    meshPeers: 10,
    survivors: 4,
    handshakesPerSecond: 500,
    unprovenMax: 1000,
    seed: 1,
  }

  test('ends with every peer reconnected once', () => {
    const outcome = weatherStorm(usual)
    expect(outcome.allBackSeconds).toBeLessThan(BACKOFF_MAX_MS / 1000)
    expect(outcome.halfBackSeconds).toBeLessThanOrEqual(outcome.mostBackSeconds)
    expect(outcome.allBackSeconds).toBeGreaterThanOrEqual(usual.sessions / usual.survivors / usual.handshakesPerSecond)
  })

  test('at brokers that let few connections wait has more refusals, and ends too', () => {
    const outcome = weatherStorm({ ...usual, unprovenMax: 50 })
    expect(outcome.refused).toBeGreaterThan(weatherStorm(usual).refused)
    expect(Number.isFinite(outcome.allBackSeconds)).toBe(true)
  })

  test('at slow brokers that let all connections wait makes peers time out', () => {
    const slow = weatherStorm({ ...usual, handshakesPerSecond: 10, unprovenMax: 5_000 })
    expect(slow.gaveUp).toBeGreaterThan(0)
  })

  test('is reproducible from its seed', () => {
    expect(weatherStorm(usual)).toEqual(weatherStorm(usual))
  })
})
