/** Receives spans for tests, as OTLP over HTTP in JSON. */
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface ReceivedSpan {
  readonly name: string
  readonly kind: number
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes: readonly { readonly key: string; readonly value: object }[]
  readonly status: { readonly code?: number }
}

interface Request {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly { readonly key: string; readonly value: object }[] }
    readonly scopeSpans: readonly { readonly spans: readonly ReceivedSpan[] }[]
  }[]
}

export class SpanReceiver implements AsyncDisposable {
  readonly requests: { readonly path: string; readonly text: string }[] = []
  readonly #server: Server

  static async open(): Promise<SpanReceiver> {
    const receiver = new SpanReceiver()
    await new Promise<void>((resolve) => receiver.#server.listen(0, '127.0.0.1', resolve))
    return receiver
  }

  private constructor() {
    this.#server = createServer((request, response) => {
      let text = ''
      request.on('data', (bytes) => (text += String(bytes)))
      request.on('end', () => {
        this.requests.push({ path: request.url ?? '', text })
        response.setHeader('content-type', 'application/json').end('{}')
      })
    })
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  get text(): string {
    return this.requests.map(({ text }) => text).join('\n')
  }

  get spans(): ReceivedSpan[] {
    return this.#resources.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans))
  }

  /** The distinct services that sent spans. */
  get services(): string[] {
    const names = this.#resources.flatMap(({ resource }) =>
      resource.attributes.filter(({ key }) => key === 'service.name').map(({ value }) => Object.values(value)[0]),
    )
    return [...new Set(names.map(String))]
  }

  get #resources() {
    return this.requests.flatMap(({ text }) => (JSON.parse(text) as Request).resourceSpans)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }
}
