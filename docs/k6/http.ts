/** A k6 script: ramps up to ten workers that `POST /v1/send`, and as many that fetch and settle. See README.md. */
import { check } from 'k6'
import { SharedArray } from 'k6/data'
import exec from 'k6/execution'
import http from 'k6/http'
import { freshId } from './fresh-id.ts'
import type { Prepared, PreparedPeer } from './prepare.ts'

const prepared: Prepared = JSON.parse(open(__ENV.PEERS ?? './peers.json'))
const peers = new SharedArray<PreparedPeer>('peers', () => [...prepared.peers])
const url = __ENV.BROKER_HTTP_URL ?? `http://${prepared.authority}`
const workers = Math.min(10, peers.length)
const duration = __ENV.DURATION ?? '5m'

export const options = {
  scenarios: {
    send: {
      executor: 'ramping-vus',
      exec: 'send',
      startVUs: 1,
      stages: [
        { duration: __ENV.RAMP ?? '1m', target: workers },
        { duration, target: workers },
      ],
    },
    fetch: { executor: 'constant-vus', exec: 'fetchMail', vus: workers, duration },
  },
  thresholds: {
    http_req_failed: ['rate<0.01'],
    'http_req_duration{path:send}': ['p(95)<300'],
    checks: ['rate>0.99'],
  },
}

/** Sends the same envelope under a new id; the broker reads only the header. */
export function send(): void {
  const { token, recipient, envelope } = mine()
  const body = JSON.stringify({ envelopes: [{ envelopeId: freshId(), recipient, envelope }] })
  const answer = http.post(`${url}/v1/send`, body, { headers: headersOf(token), tags: { path: 'send' } })
  check(answer, { stored: ({ status, body: text }) => status === 200 && String(text).includes('"stored"') })
}

export function fetchMail(): void {
  const { token } = mine()
  const inbox = http.get(`${url}/v1/inbox?waitSeconds=1&max=256&takeover=true`, {
    headers: headersOf(token),
    tags: { path: 'inbox' },
  })
  if (!check(inbox, { fetched: ({ status }) => status === 200 })) return
  const { deliveries } = inbox.json() as unknown as { readonly deliveries: readonly { readonly id: number }[] }
  if (deliveries.length === 0) return
  const settled = http.post(`${url}/v1/settle`, JSON.stringify({ settle: deliveries.map(({ id }) => id) }), {
    headers: headersOf(token),
    tags: { path: 'settle' },
  })
  check(settled, { settled: ({ status }) => status === 204 })
}

const mine = (): PreparedPeer => peers[exec.vu.idInInstance % peers.length]!

const headersOf = (token: string) => ({ 'Content-Type': 'application/json', Authorization: `Bearer ${token}` })
