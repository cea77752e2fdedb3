/** A k6 script: connects peers that each send at a steady rate and settle what they receive. See README.md. */
import { SharedArray } from 'k6/data'
import encoding from 'k6/encoding'
import exec from 'k6/execution'
import { Counter, Trend } from 'k6/metrics'
import { WebSocket } from 'k6/websockets'
import { freshId } from './fresh-id.ts'
import { signatureOf } from './handshake.ts'
import type { Prepared, PreparedPeer } from './prepare.ts'

const prepared: Prepared = JSON.parse(open(__ENV.PEERS ?? './peers.json'))
const peers = new SharedArray<PreparedPeer>('peers', () => [...prepared.peers])
const url = __ENV.BROKER_WS_URL ?? `ws://${prepared.authority}/v1/ws`
const seconds = Number(__ENV.SECONDS ?? 60)
const everyMs = Number(__ENV.EVERY_MS ?? 100)
const CREDIT = 256
/** k6 accepts a list of subprotocols here, but its types allow only null. */
const FORM = ['sealpost.v1.json'] as unknown as null

const ackMs = new Trend('sealpost_ack_ms', true)
const pushMs = new Trend('sealpost_push_ms', true)
const refused = new Counter('sealpost_refused')

export const options = {
  scenarios: {
    peers: { executor: 'per-vu-iterations', vus: peers.length, iterations: 1, maxDuration: `${seconds + 30}s` },
  },
  thresholds: {
    sealpost_ack_ms: ['p(99)<100'],
    sealpost_push_ms: ['p(99)<100'],
    sealpost_refused: ['count==0'],
  },
}

interface Hello {
  readonly type: 'hello'
  readonly versions: readonly number[]
  readonly connectionId: string
  readonly nonce: string
  readonly issuedAtMs: number
}
interface Ack {
  readonly type: 'ack'
  readonly items: readonly { readonly envelopeId: string }[]
}
interface Push {
  readonly type: 'push'
  readonly deliveries: readonly { readonly id: number; readonly envelopeId: string; readonly enqueuedAtMs: number }[]
}
type Frame = Hello | Ack | Push | { readonly type: 'welcome' | 'nack' | 'refused' }

export default function peer(): void {
  const self = peers[(exec.vu.idInTest - 1) % peers.length]!
  const socket = new WebSocket(url, FORM)
  const sentAtMs = new Map<string, number>()
  const send = (frame: object) => socket.send(JSON.stringify(frame))
  socket.onmessage = (event) => {
    const frame: Frame = JSON.parse(String(event!.data))
    if (frame.type === 'hello') send(authOf(frame, self))
    else if (frame.type === 'welcome') begin(socket, { self, sentAtMs, send })
    else if (frame.type === 'ack')
      for (const { envelopeId } of frame.items) ackMs.add(Date.now() - sentAtMs.get(envelopeId)!)
    else if (frame.type === 'push') take(frame, send)
    else if (frame.type === 'nack' || frame.type === 'refused') refused.add(1)
  }
}

function authOf(hello: Hello, { peerKey, seed }: PreparedPeer): object {
  const { brokerKey, meshId, authority } = prepared
  const clientNonce = crypto.getRandomValues(new Uint8Array(32))
  const version = hello.versions[0]!
  const signature = signatureOf(
    {
      ...{ version, versionsOffered: hello.versions, authority, brokerKey, meshId, peerKey, clientNonce },
      serverNonce: bytesOf(hello.nonce),
      connectionId: bytesOf(hello.connectionId),
      issuedAtMs: hello.issuedAtMs,
    },
    seed,
  )
  const own = { clientNonce: textOf(clientNonce), capabilities: [], signature: textOf(signature), credit: CREDIT }
  return { type: 'auth', version, meshId, peerKey, ...own }
}

interface Session {
  readonly self: PreparedPeer
  readonly sentAtMs: Map<string, number>
  readonly send: (frame: object) => void
}

function begin(socket: WebSocket, { self, sentAtMs, send }: Session): void {
  const { recipient, envelope } = self
  const timer = setInterval(() => {
    const envelopeId = freshId()
    const isHead = sentAtMs.size === 0
    sentAtMs.set(envelopeId, Date.now())
    const item = { envelopeId, recipient, priority: 'next', isHead, ttlSeconds: 0, envelope }
    send({ type: 'send', envelopes: [item] })
  }, everyMs)
  setTimeout(() => {
    clearInterval(timer)
    setTimeout(() => socket.close(), 1000)
  }, seconds * 1000)
}

/** Measures the latency since the commit, by the broker's clock. Run k6 where the clocks agree. */
function take({ deliveries }: Push, send: Session['send']): void {
  for (const { enqueuedAtMs } of deliveries) pushMs.add(Math.max(0, Date.now() - enqueuedAtMs))
  send({ type: 'settle', ids: deliveries.map(({ id }) => id) })
}

const bytesOf = (text: string): Uint8Array => new Uint8Array(encoding.b64decode(text, 'rawurl'))
const textOf = (bytes: Uint8Array): string => encoding.b64encode(bytes.slice().buffer, 'rawurl')
