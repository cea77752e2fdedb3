import { beforeAll, expect, test } from 'vitest'
import { generateBoxKeys, ready } from '../index.ts'
import { peerNumber } from '../test/fixtures.ts'
import type { PeerKeyFile } from './key-file.ts'
import { beginBoxKeyRotation, completeBoxKeyRotation } from './key-rotation.ts'

beforeAll(() => ready())

const DAY_MS = 24 * 3600_000
const file = (): PeerKeyFile => ({ kind: 'peer', identity: peerNumber(1), formerBoxKeys: [], enrolment: null })
const publishedOf = ({ identity: { box } }: PeerKeyFile) => ({ boxKey: box.publicKey, boxEpoch: box.epoch })
const epochsOf = ({ identity, formerBoxKeys }: PeerKeyFile) =>
  [identity.box, ...formerBoxKeys].map(({ epoch }) => epoch)

test('the next key opens at once and seals when it is published; the one before opens on', () => {
  const before = file()
  const { next, file: between } = beginBoxKeyRotation(before, publishedOf(before))
  expect(next.epoch).toBe(2)
  expect(between.identity).toEqual(before.identity)
  expect(between.formerBoxKeys).toEqual([next])
  const after = completeBoxKeyRotation(between, next, 1000)
  expect(after.identity).toEqual({ ...before.identity, box: next })
  expect(after.formerBoxKeys).toEqual([{ ...before.identity.box, retiredAtMs: 1000 }])
})

test('an attempt that broke off is taken up with the key it left, published or not', () => {
  const before = file()
  const { next, file: between } = beginBoxKeyRotation(before, publishedOf(before))
  expect(beginBoxKeyRotation(between, publishedOf(before))).toEqual({ next, file: between })
  expect(beginBoxKeyRotation(between, { boxKey: next.publicKey, boxEpoch: 2 })).toEqual({ next, file: between })
})

test('a key file older than the directory goes past it', () => {
  const before = file()
  const elsewhere = { boxKey: new Uint8Array(32), boxEpoch: 7 }
  expect(beginBoxKeyRotation(before, elsewhere).next.epoch).toBe(8)
  const { file: between } = beginBoxKeyRotation(before, publishedOf(before))
  const { next, file: again } = beginBoxKeyRotation(between, elsewhere)
  expect(next.epoch).toBe(8)
  expect(epochsOf(completeBoxKeyRotation(again, next, 0))).toEqual([8, 1, 2])
})

test('former keys are let go 60 days after they were retired, and 64 of them kept at most', () => {
  let kept = file()
  const rotate = (atMs: number) => {
    const { next, file: between } = beginBoxKeyRotation(kept, publishedOf(kept))
    kept = completeBoxKeyRotation(between, next, atMs)
  }
  for (const days of [0, 30, 61, 95]) rotate(days * DAY_MS)
  expect(epochsOf(kept)).toEqual([5, 4, 3])
  for (let i = 0; i < 70; i++) rotate(95 * DAY_MS + i)
  expect(kept.formerBoxKeys).toHaveLength(64)
  const unknown = { ...kept, formerBoxKeys: [generateBoxKeys(1)] }
  expect(completeBoxKeyRotation(unknown, generateBoxKeys(99), 5).formerBoxKeys[1]).toMatchObject({
    epoch: 1,
    retiredAtMs: 5,
  })
})
