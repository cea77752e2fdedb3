import type { MeshId, PeerKey, PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import { RequestLimits } from './route-parts.ts'
import { nameOf, shareNameOf } from './tokens.ts'

const holder = (peer: number, user: number) => ({
  ...{ meshId: 'ab'.repeat(16) as MeshId, peer: peer as PeerNo, user: user as PeerNo },
  peerKey: 'cd'.repeat(32) as PeerKey,
})

test('requests of a user and its devices share one rate, and each device has its own concurrency limit', () => {
  const [user, device, other] = [holder(1, 1), holder(2, 1), holder(3, 3)]
  const limits = new RequestLimits({ perSecond: 0.001, burst: 2 }, 1)
  const begin = (of: typeof user) => limits.begin(nameOf(of), shareNameOf(of))
  expect([begin(user), begin(device)]).toEqual([null, null])
  limits.done(nameOf(device))
  expect(begin(device)).toMatchObject({ code: 'rate_limited' })
  expect([begin(other), begin(other)]).toMatchObject([null, { code: 'too_many_requests' }])
})
