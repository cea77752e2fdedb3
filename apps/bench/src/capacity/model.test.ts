import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { costAt, type Figures, readFigures } from './figures.ts'
import { CONNECTIONS_PER_BROKER, type Load, planFor, usualHardware, usualLoad } from './model.ts'

const figures = await readFigures()
const { headroom, sessionsPerBroker } = usualHardware

const loads = fc.record({
  peers: fc.integer({ min: 1, max: 1_000_000_000 }),
  onlineShare: fc.double({ min: 0, max: 1, noNaN: true }),
  messagesPerPeerADay: fc.integer({ min: 1, max: 5_000 }),
  payloadBytes: fc.integer({ min: 1, max: 60_000 }),
  peakFactor: fc.double({ min: 1, max: 10, noNaN: true }),
  offlineShare: fc.double({ min: 0, max: 1, noNaN: true }),
  waitHours: fc.double({ min: 0, max: 100, noNaN: true }),
})

describe('a plan', () => {
  test('holds any load without the spare brokers', () => {
    fc.assert(
      fc.property(loads, (some) => {
        const { broker, cell } = planFor({ ...usualLoad, ...some }, usualHardware, figures)
        const cores = 1 + (usualHardware.cellCores - 1) * usualHardware.cellCoreShare
        expect(broker.sessions).toBeLessThanOrEqual(sessionsPerBroker)
        expect(broker.perSecond).toBeLessThanOrEqual(figures.messagesPerSecondMax * headroom * 1.000001)
        expect(broker.memoryMb).toBeLessThanOrEqual(usualHardware.brokerMb)
        expect(cell.cores).toBeLessThanOrEqual(cores * headroom * 1.000001)
        expect(cell.diskGb).toBeLessThanOrEqual(usualHardware.cellDiskGb)
        expect(cell.walBytesPerSecond).toBeLessThanOrEqual(usualHardware.walMbPerSecond * 1e6)
        expect(cell.connections + CONNECTIONS_PER_BROKER).toBeLessThanOrEqual(usualHardware.connectionsPerCell)
      }),
      { numRuns: 300, seed: 7 },
    )
  })

  test('never shrinks when peers are added', () => {
    fc.assert(
      fc.property(loads, (some) => {
        const [small, large] = [some.peers, some.peers * 2].map((peers) =>
          planFor({ ...usualLoad, ...some, peers }, usualHardware, figures),
        )
        expect(large!.brokers).toBeGreaterThanOrEqual(small!.brokers)
        expect(large!.cells).toBeGreaterThanOrEqual(small!.cells)
      }),
      { numRuns: 200, seed: 7 },
    )
  })

  test('for a team is one database and two brokers, one of them spare', () => {
    const plan = planOf({ peers: 1000 })
    expect(plan).toMatchObject({ cells: 1, brokersPerCell: 2, brokers: 2, postgresServers: 2, brokersOfLargestMesh: 1 })
  })

  test('names the deciding need', () => {
    expect(planOf({ peers: 1_000_000 }).brokerNeeds[0]!.what).toBe('sessions')
    expect(planOf({ peers: 1_000_000, messagesPerPeerADay: 50_000 }).brokerNeeds[0]!.what).toBe('messages')
    expect(planOf({ peers: 1_000_000, waitHours: 10_000, onlineShare: 0.01 }).cellNeeds[0]!.what).toBe('memory')
    expect(planOf({ peers: 300_000_000, messagesPerPeerADay: 1 }).cellNeeds[0]!.what).toBe('connections')
  })

  test('reports a mesh that is too large for one broker', () => {
    expect(planOf({ peers: 1_000_000, meshPeers: 500_000 }).brokersOfLargestMesh).toBe(15)
  })
})

describe('the cost of a message', () => {
  test('equals the measured cost at a measured rate, and lies between two of them elsewhere', () => {
    const [low, high] = figures.costs as [Figures['costs'][0], Figures['costs'][0]]
    expect(costAt(figures, low.perSecond).postgresUs).toBeCloseTo(low.postgresUs)
    const between = costAt(figures, (low.perSecond + high.perSecond) / 2)
    expect(between.postgresUs).toBeLessThan(low.postgresUs)
    expect(between.postgresUs).toBeGreaterThan(high.postgresUs)
  })

  test('equals the cost at the nearest rate outside the measured range', () => {
    expect(costAt(figures, 0.1)).toEqual({ ...figures.costs[0], perSecond: 0.1 })
    expect(costAt(figures, 1e9)).toEqual({ ...figures.costs.at(-1), perSecond: 1e9 })
  })
})

const planOf = (differs: Partial<Load>) => planFor({ ...usualLoad, ...differs }, usualHardware, figures)
