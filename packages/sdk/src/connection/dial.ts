/** One connection for a short exchange, frame by frame: it is not kept up, and ends with its first trouble. */
import { decodeServerFrame, encode, type Form, type FrameOf, type ServerFrame, SUBPROTOCOLS } from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import { refusedBy, SealpostError } from '../errors.ts'
import { certificateErrorCode, certificateUntrusted } from './addresses.ts'
import { codeOfClose } from './connection.ts'

/** What is needed of a WebSocket: the standard's own surface, so that browsers, Node, Bun and fakes all fit. */
export interface WebSocketLike {
  binaryType: string
  readonly protocol: string
  /** Copies the bytes before it returns, as the standard has it. */
  send(wire: Uint8Array | string): void
  close(code?: number, reason?: string): void
  onopen: ((event: never) => void) | null
  onmessage: ((event: { data: unknown }) => void) | null
  onclose: ((event: { code: number }) => void) | null
  onerror: ((event: never) => void) | null
}

export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike

export function platformWebSocket(): WebSocketConstructor {
  return WebSocket as unknown as WebSocketConstructor
}

/** Where a broker listens, unless the address names a path itself. */
const PATH = '/v1/ws'

/**
 * The address to dial. Anything that would be logged on the way (a query, a fragment) is left out; credentials are
 * refused by `normalizeAuthority`.
 */
export function socketUrl(address: string): string {
  const url = new URL(address)
  const scheme = url.protocol === 'https:' || url.protocol === 'wss:' ? 'wss:' : 'ws:'
  return `${scheme}//${url.host}${url.pathname === '/' ? PATH : url.pathname}`
}

export interface DialOptions {
  readonly url: string
  readonly form: Form
  readonly webSocket: WebSocketConstructor
  /** From the dial to the last answer. */
  readonly withinMs: Millis
}

export class Dial {
  readonly #socket: WebSocketLike
  readonly #form: Form
  readonly #timer: ReturnType<typeof setTimeout>
  readonly #frames: ServerFrame[] = []
  readonly #failure = Promise.withResolvers<never>()
  #news = Promise.withResolvers<void>()

  constructor({ url, form, webSocket: WebSocket, withinMs }: DialOptions) {
    const subprotocol = Object.entries(SUBPROTOCOLS).find(([, its]) => its === form)![0]
    this.#form = form
    this.#failure.promise.catch(() => undefined) // it may fail when nobody waits any more
    this.#timer = setTimeout(() => this.#fail(lost()), withinMs)
    this.#socket = new WebSocket(url, [subprotocol])
    this.#socket.binaryType = 'arraybuffer'
    this.#socket.onmessage = ({ data: wire }) => this.#heard(wire)
    this.#socket.onclose = ({ code }) => this.#closed(code)
    this.#socket.onerror = (event: unknown) => {
      const trouble = certificateErrorCode(event)
      if (trouble !== null) this.#fail(certificateUntrusted(trouble)) // else `close` says what there is to say
    }
  }

  send(frame: Parameters<typeof encode>[1]): void {
    this.#socket.send(encode(this.#form, frame))
  }

  /** @throws SealpostError what the broker refused with, `frame_unexpected` for another frame, or `connection_lost` */
  async next<Type extends ServerFrame['type']>(...types: Type[]): Promise<FrameOf<Type>> {
    while (this.#frames.length === 0) await Promise.race([this.#news.promise, this.#failure.promise])
    const frame = this.#frames.shift()!
    if (frame.type === 'refused') throw refusedBy(frame.code)
    if (!(types as string[]).includes(frame.type)) throw refusedBy('frame_unexpected')
    return frame as FrameOf<Type>
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#socket.onmessage = null
    this.#socket.onclose = null
    this.#socket.close(1000)
  }

  #heard(wire: unknown): void {
    const bytes = wire instanceof ArrayBuffer ? new Uint8Array(wire) : wire
    const isWire = typeof bytes === 'string' || bytes instanceof Uint8Array
    const decoded = isWire ? decodeServerFrame(this.#form, bytes) : null
    if (!decoded?.ok) return this.#fail(refusedBy('frame_malformed'))
    this.#frames.push(decoded.frame)
    this.#news.resolve()
    this.#news = Promise.withResolvers()
  }

  #closed(closeNumber: number): void {
    const code = codeOfClose(closeNumber)
    this.#fail(code ? refusedBy(code) : lost())
  }

  #fail(error: SealpostError): void {
    this.#failure.reject(error)
  }
}

function lost(): SealpostError {
  return new SealpostError(
    'connection_lost',
    'The broker was not reached, or the connection ended before its answer.',
    {
      isRetryable: true,
    },
  )
}
