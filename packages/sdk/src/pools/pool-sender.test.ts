/** Tests for which members a message to a pool is sealed while the pool changes. */
import type { PoolStatement } from '@sealpost/identity'
import { readBoxes } from '@sealpost/protocol'
import type { MeshId, PeerKey, PoolId } from '@sealpost/std'
import { expect, test } from 'vitest'
import type { PeerCounters } from '../ports.ts'
import { seenStoreOf } from '../stores/store.ts'
import { fakeCrypto } from '../test/fake-crypto.ts'
import { PoolSender } from './pool-sender.ts'
import { PoolStatements } from './pools.ts'

const MESH = 'ab'.repeat(16) as MeshId
const POOL = 'f0'.repeat(32) as PoolId
const keyOf = (n: number) => n.toString(16).padStart(64, '0') as PeerKey
/** Returns a statement for a crypto fake that trusts every statement. */
function statement(epoch: number, members: readonly number[]): PoolStatement {
  const facts = { meshId: MESH, poolId: POOL, epoch, owner: keyOf(1), nonce: '00'.repeat(16), name: 'crew' }
  const pool = { ...facts, members: members.map(keyOf) }
  return { ...pool, bytes: new TextEncoder().encode(JSON.stringify(pool)) }
}
const read = (bytes: Uint8Array): PoolStatement => ({ ...JSON.parse(new TextDecoder().decode(bytes)), bytes })
const ignore = () => undefined

test('a message prepared for former members names their epoch: the broker refuses it, and it is sealed again', () => {
  const random = () => 0.5
  const crypto = fakeCrypto({ peerKey: keyOf(1), meshId: MESH, boxKey: new Uint8Array(32), random })
  const statements = new PoolStatements(read, { emit: ignore, seen: seenStoreOf(null) }, ignore)
  const counters = { acked: 0, nacked: 0, resent: 0, sent: 0 } as PeerCounters
  const sends = new PoolSender({
    ...{ crypto, statements, counters, random, flushSoon: ignore },
    current: (peer) => peer,
    lookup: (peerKey, { found }) => found({ peerKey, boxKey: new Uint8Array(32) } as never),
  })
  statements.add(statement(1, [2]))
  const unused = { accepted: ignore, refused: ignore }
  const terms = { priority: 'next', ttlSeconds: 0, terms: undefined } as const
  sends.send({ poolId: POOL, body: new Uint8Array(1), ...terms, ...unused })
  // Without a session, nothing was sent.
  statements.add(statement(2, [3]))
  sends.connected({ ttlSecondsMax: 60, dedupeSeconds: 600 } as never)
  const [first] = sends.takeFrames(0)
  expect(first!.rosterEpoch).toBe(1)
  const { envelopeId } = first!.send
  sends.nacked([{ envelopeId, code: 'stale_roster', retryAfterMs: 0 }], 0)
  statements.listed([statement(2, [3]).bytes], true)
  const [second] = sends.takeFrames(0)
  expect(second!.rosterEpoch).toBe(2)
  expect(readBoxes(second!.send.envelope)!.map(({ peer }) => peer)).toEqual([keyOf(3)])
})
