import type { Append, Settle } from '@sealpost/protocol'
import type { PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import { type Config, readConfig } from '../config/config.ts'
import { routesOf } from '../server/server.ts'
import { type ReceivedSpan, SpanReceiver } from '../test/receiver.ts'
import { Traces } from './traces.ts'

function configWith(env: Record<string, string>): Config {
  const read = readConfig({ DATABASE_URL: 'postgres://a@localhost/b', ...env })
  if (!read.ok) throw new Error(read.errors.join())
  return read.config
}

async function receivedOf(env: Record<string, string>, act: (traces: Traces) => unknown): Promise<SpanReceiver> {
  await using receiver = await SpanReceiver.open()
  const traces = await Traces.open(configWith({ OTEL_EXPORTER_OTLP_ENDPOINT: `${receiver.url}/`, ...env }))
  await act(traces!)
  await traces!.stop()
  return receiver
}

const appendOf = (sender: number) => ({ sender: sender as PeerNo }) as Append
const settles = [{}, {}] as Settle[]
const attributesOf = ({ attributes }: ReceivedSpan) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]))
const millisOf = ({ startTimeUnixNano, endTimeUnixNano }: ReceivedSpan) =>
  Math.round(Number(BigInt(endTimeUnixNano) - BigInt(startTimeUnixNano)) / 1e6)

test('without an endpoint tracing is off', async () => {
  expect(await Traces.open(configWith({}))).toBeNull()
})

test("a commit's span records its rows, sessions and settles", async () => {
  const { spans, services, requests } = await receivedOf({ OTEL_SERVICE_NAME: 'mail' }, (traces) => {
    traces.committed({ appends: [appendOf(1), appendOf(2), appendOf(1)], settles }, 250)
    traces.commitFailed({ appends: [], settles }, 10)
    traces.claimed([{ status: 'stale' }, { status: 'claimed', deliveries: [], hasMore: false }], 5)
  })
  const [commit, settle, failed, claim] = spans as [ReceivedSpan, ReceivedSpan, ReceivedSpan, ReceivedSpan]
  expect(spans.map(({ name }) => name)).toEqual(['commit', 'settle', 'settle', 'claim'])
  expect(attributesOf(commit)).toEqual({ 'sealpost.rows': 3, 'sealpost.sessions': 2 })
  expect([millisOf(commit), millisOf(settle)]).toEqual([250, 250])
  expect([settle.traceId, settle.parentSpanId]).toEqual([commit.traceId, commit.spanId])
  expect([commit, failed].map(({ status }) => status.code ?? 0)).toEqual([0, 2])
  expect(attributesOf(claim)).toEqual({ 'sealpost.recipients': 2, 'sealpost.rows': 0 })
  expect([services, requests[0]!.path]).toEqual([['mail'], '/v1/traces'])
})

test('a request continues the trace in its headers, and records its route but not its path', async () => {
  const traceId = 'a'.repeat(32)
  const headers = { traceparent: `00-${traceId}-${'b'.repeat(16)}-01` }
  const routes = ['/*', '/v1/send', '/v1/part/:id{[0-9a-f]+}'].map((path) => ({ path }))
  const { spans, text } = await receivedOf({}, async (traces) => {
    const serve = traces.serving(() => new Response(null, { status: 404 }), routesOf({ routes }))
    await serve(new Request('http://a/v1/send?token=secret', { method: 'POST', headers }), null)
    await serve(new Request('http://a/secret'), null)
    await serve(new Request('http://a/v1/part/secret'), null)
    traces.handshake(20, 'auth_failed')
  })
  const [sent, other, part, handshake] = spans as [ReceivedSpan, ReceivedSpan, ReceivedSpan, ReceivedSpan]
  expect(sent).toMatchObject({ name: 'POST /v1/send', kind: 2, traceId, parentSpanId: 'b'.repeat(16) })
  expect(attributesOf(sent)).toEqual({
    'http.request.method': 'POST',
    'http.route': '/v1/send',
    'http.response.status_code': 404,
  })
  expect([other.name, part.name]).toEqual(['GET other', 'GET /v1/part/:id{[0-9a-f]+}'])
  expect(attributesOf(handshake)).toEqual({ 'sealpost.refused': 'auth_failed' })
  expect(text).not.toContain('secret')
})

test('the sampler setting is applied', async () => {
  const kept = async (sampler: string, ratio: string) => {
    const env = { OTEL_TRACES_SAMPLER: sampler, OTEL_TRACES_SAMPLER_ARG: ratio }
    const { spans } = await receivedOf(env, (traces) => {
      for (let i = 0; i < 200; i++) traces.handshake(1, null)
    })
    return spans.length
  }
  expect(await kept('always_off', '1')).toBe(0)
  expect(await kept('traceidratio', '0')).toBe(0)
  expect(await kept('parentbased_traceidratio', '1')).toBe(200)
  const half = await kept('traceidratio', '0.5')
  expect(half).toBeGreaterThan(50)
  expect(half).toBeLessThan(150)
})

test('an unavailable receiver does not delay the exit', async () => {
  const traces = await Traces.open(configWith({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1' }))
  traces!.handshake(1, null)
  await traces!.stop()
})
