import { expect, test } from 'vitest'
import { hostRefusal } from './api.ts'

const requestTo = (host: string) => new Request('http://127.0.0.1:7451/metrics', { headers: { host } })

test.each([
  '127.0.0.1:7451',
  '10.1.2.3:9',
  '[::1]:7451',
  'localhost:7451',
  'console.localhost:7451',
  'ops.example:7451',
  'broker-a:7451',
])('the host %s is served', (host) => expect(hostRefusal(requestTo(host), ['ops.example', 'broker-a'])).toBeNull())

test.each([
  'evil.example:7451',
  'localhost.evil.example',
  'evillocalhost:7451',
  '127.0.0.1.evil.example',
  '1.2.3.4.5.example',
  'evil:7451',
  'evil.local:7451',
  'evil.lan',
  'evil.internal',
  'b.ns.svc:1',
  '',
])('the host %j is refused', async (host) => {
  const refused = hostRefusal(requestTo(host), ['ops.example'])
  expect([refused?.status, await refused?.json()]).toEqual([421, { code: 'wrong_authority' }])
})
