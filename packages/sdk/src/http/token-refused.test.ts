/** Tests that HTTP clients honour the retry-after of a broker that receives too many token requests. */
import { generateIdentity, ready } from '@sealpost/identity'
import type { MeshId, PeerKey } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { Access } from '../state/access.ts'
import { HttpAccess } from './access.ts'

const RETRY_AFTER_MS = 3_600_000
const LIMITED = expect.objectContaining({ code: 'rate_limited' })

beforeAll(ready)

const placeOf = () => ({
  ...{ url: 'ws://127.0.0.1:1', brokerKey: '00'.repeat(32) as PeerKey, meshId: '00'.repeat(16) as MeshId },
  identity: generateIdentity(),
})

function limited() {
  const asked: string[] = []
  const fetch = async (url: string) => {
    asked.push(new URL(url).pathname)
    return Response.json({ code: 'rate_limited', retryAfterMs: RETRY_AFTER_MS }, { status: 429 })
  }
  return { asked, fetch }
}

test('a retry-after beyond the patience of the caller ends a request at once', async () => {
  const { asked, fetch } = limited()
  const access = new HttpAccess(placeOf(), { fetch, patienceMs: 60_000 })
  await expect(access.ask({ method: 'GET', path: '/v1/attachments' })).rejects.toThrow(LIMITED)
  expect(asked).toEqual(['/v1/token/challenge'])
})

test('a space waits as long as the broker requests', async () => {
  const { fetch } = limited()
  const waits: number[] = []
  const wait = async (ms: number) => void waits.push(ms)
  const access = new Access(placeOf(), { fetch, wait, random: () => 0.5 }, { patienceMs: Infinity })
  await expect(access.ask({ method: 'GET', path: '/v1/meshes' })).rejects.toThrow(LIMITED)
  expect(new Set(waits)).toEqual(new Set([RETRY_AFTER_MS]))
})
