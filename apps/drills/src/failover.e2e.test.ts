import { Teardown } from '@sealpost/harness/programs/teardown'
import { expect, test } from 'vitest'
import { drillFailover, type FailoverOptions } from './failover.ts'

const AGREEING = { missing: 0, duplicates: 0, misordered: 0 }
const WHOLE = { brokerExits: 0, lost: 0, duplicates: 0, misordered: 0 }

async function drill(options: Pick<FailoverOptions, 'replication'> & Partial<FailoverOptions>) {
  const teardown = new Teardown()
  try {
    return await drillFailover(
      { brokers: 3, peers: 12, rate: 120, losesBroker: false, address: 'moved', ...options },
      teardown,
    )
  } finally {
    await teardown.run()
  }
}

test('a synchronous standby takes over: no broker exits, no peer is notified, and no acknowledged message is resent', {
  timeout: 300_000,
}, async () => {
  const result = await drill({ replication: 'synchronous', orders: true })
  expect(result).toMatchObject({ ...WHOLE, resends: 0, peersTold: 0, orders: { ...AGREEING, extra: 0 } })
  expect(result.orders!.orders).toBeGreaterThan(50)
  expect(result.events).toMatchObject({ 'database.kept': 3, 'broker.ready': 3 })
  expect(result.events).not.toHaveProperty('database.replaced')
})

test('brokers whose URL names both servers find the promoted server', { timeout: 300_000 }, async () => {
  const result = await drill({ replication: 'synchronous', address: 'several' })
  expect(result).toMatchObject({ ...WHOLE, resends: 0, peersTold: 0 })
  expect(result.events).toMatchObject({ 'database.kept': 3, 'broker.ready': 3 })
})

test('an asynchronous standby that is missing commits takes over: each peer is notified, and all messages still arrive', {
  timeout: 300_000,
}, async () => {
  const result = await drill({ replication: 'asynchronous', orders: true })
  expect(result).toMatchObject({ ...WHOLE, peersTold: 12, orders: AGREEING })
  expect(result.orders!.orders).toBeGreaterThan(0)
  expect(result.resends).toBeGreaterThanOrEqual(result.ackedBeyondStandby)
  expect(result.events).toMatchObject({ 'database.replaced': 3, 'broker.ready': 6 })
  expect(result.events).not.toHaveProperty('database.kept')
})

test('if a broker dies together with the primary, it is unknown what the broker acknowledged, and the incarnation ends', {
  timeout: 300_000,
}, async () => {
  const result = await drill({ replication: 'synchronous', losesBroker: true })
  expect(result).toMatchObject({ ...WHOLE, peersTold: 12 })
  expect(result.events).toMatchObject({ 'database.replaced': 2, 'broker.ready': 5 })
})
