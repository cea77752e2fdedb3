/**
 * Records spans for OpenTelemetry. They contain counts, times, routes and refusal codes, never a key, a message, an id
 * or an address.
 *
 * Without an endpoint, the library is not even loaded.
 */
import type { Claimed } from '@sealpost/protocol'
import type { Batch } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'
import type { Config } from '../config/config.ts'
import type { Spans } from './traces-sdk.ts'

export class Traces {
  readonly #spans: Spans

  constructor(spans: Spans) {
    this.#spans = spans
  }

  /** Returns null if tracing is off. */
  static async open(config: Config): Promise<Traces | null> {
    if (config.OTEL_EXPORTER_OTLP_ENDPOINT === '') return null
    const { openSpans } = await import('./traces-sdk.ts')
    return new Traces(openSpans(config))
  }

  committed(batch: Batch, tookMs: Millis): void {
    this.#commit(batch, { tookMs })
  }

  commitFailed(batch: Batch, tookMs: Millis): void {
    this.#commit(batch, { tookMs, isFailed: true })
  }

  claimed(claimed: readonly Claimed[], tookMs: Millis): void {
    const rows = () => claimed.reduce((sum, one) => sum + (one.status === 'claimed' ? one.deliveries.length : 0), 0)
    const attributes = () => ({ 'sealpost.recipients': claimed.length, 'sealpost.rows': rows() })
    this.#spans.record({ name: 'claim', tookMs, attributes })
  }

  /**
   * Records a handshake. `tookMs`: the time since `hello`. @param refused - a refusal code, or null if the session
   * opened
   */
  handshake(tookMs: Millis, refused: string | null): void {
    const attributes = () => (refused === null ? {} : { 'sealpost.refused': refused })
    this.#spans.record({ name: 'handshake', tookMs, attributes, isFailed: refused !== null })
  }

  /**
   * Returns a handler that records requests. @param routeOf - maps a path to its route, because a path must not be
   * recorded
   */
  serving<Caller>(
    answer: (request: Request, caller: Caller) => Response | Promise<Response>,
    routeOf: (pathname: string) => string,
  ): (request: Request, caller: Caller) => Promise<Response> {
    return async (request, caller) => {
      const startedAtMs = performance.now()
      const response = await answer(request, caller)
      const route = routeOf(new URL(request.url).pathname)
      const { method, headers } = request
      this.#spans.record({
        name: `${method} ${route}`,
        tookMs: performance.now() - startedAtMs,
        attributes: () => ({
          'http.request.method': method,
          'http.route': route,
          'http.response.status_code': response.status,
        }),
        isFailed: response.status >= 500,
        headers,
      })
      return response
    }
  }

  stop(): Promise<void> {
    return this.#spans.stop()
  }

  /** Records a commit. Settles have their own span only without envelopes. */
  #commit({ appends, settles }: Batch, { tookMs, isFailed = false }: { tookMs: Millis; isFailed?: boolean }): void {
    const settle = { name: 'settle', tookMs, isFailed, attributes: () => ({ 'sealpost.rows': settles.length }) }
    if (appends.length === 0) return this.#spans.record(settle)
    const attributes = () => ({ 'sealpost.rows': appends.length, 'sealpost.sessions': sendersOf(appends) })
    this.#spans.record({ name: 'commit', tookMs, isFailed, attributes }, settles.length > 0 ? settle : undefined)
  }
}

const sendersOf = (appends: Batch['appends']): number => new Set(appends.map(({ sender }) => sender)).size
