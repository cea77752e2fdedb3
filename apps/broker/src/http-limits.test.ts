import type { MeshId, PeerKey, PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import { RequestLimits } from './http-limits.ts'
import { nameOf, shareNameOf } from './http-tokens.ts'

const holder = (peer: number, person: number) => ({
  ...{ meshId: 'ab'.repeat(16) as MeshId, peer: peer as PeerNo, person: person as PeerNo },
  peerKey: 'cd'.repeat(32) as PeerKey,
})

test('requests of a person and its devices share one rate, and each device has its own at a time', () => {
  const [person, device, other] = [holder(1, 1), holder(2, 1), holder(3, 3)]
  const limits = new RequestLimits({ perSecond: 0.001, burst: 2 }, 1)
  const begin = (of: typeof person) => limits.begin(nameOf(of), shareNameOf(of))
  expect([begin(person), begin(device)]).toEqual([null, null])
  limits.done(nameOf(device))
  expect(begin(device)).toMatchObject({ code: 'rate_limited' })
  expect([begin(other), begin(other)]).toMatchObject([null, { code: 'too_many_requests' }])
})
