/** Provides tests with a client on a bare TCP socket, which can send what no honest client would, and stop reading. */
import { connect as dial, type Socket } from 'node:net'
import { type Identity, signAsClient, type Transcript } from '@sealpost/identity'
import {
  type ClientFrame,
  decodeServerFrame,
  encode,
  type Form,
  type FrameOf,
  type ServerFrame,
  SUBPROTOCOLS,
} from '@sealpost/protocol'
import { type EnvelopeId, type MeshId, type PeerKey, toHex } from '@sealpost/std'

const PATIENCE_MS = 60_000

/** The place of a peer, for the SDK's `connect` and the wire client. */
export interface Place {
  readonly url: string
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly identity: Identity
}

export interface HttpAnswer {
  readonly status: number
  readonly headers: ReadonlyMap<string, string>
  readonly body: string
}

export interface Closing {
  /** 1006 without a close frame. */
  readonly code: number
  readonly reason: string
}

export async function rawHttp(port: number, request: string): Promise<HttpAnswer> {
  const socket = dial(port, '127.0.0.1')
  const arrived = new Arrived(socket)
  socket.write(request)
  try {
    const head = await arrived.take('an HTTP answer', (bytes) => endOfHead(bytes))
    const answer = parseHead(head.toString('latin1'))
    const length = Number(answer.headers.get('content-length') ?? 0)
    const body = await arrived.take('an HTTP body', (bytes) => (bytes.length >= length ? length : undefined))
    return { ...answer, body: body.toString() }
  } finally {
    socket.destroy()
  }
}

export const upgradeRequest = (
  authority: string,
  headers: readonly string[] = [],
  line = 'GET /v1/ws HTTP/1.1',
): string =>
  [
    line,
    ...(headers.some((header) => /^host:/i.test(header)) ? [] : [`Host: ${authority}`]),
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
    ...(headers.some((header) => /^sec-websocket-protocol:/i.test(header))
      ? []
      : ['Sec-WebSocket-Protocol: sealpost.v1']),
    ...headers.filter((header) => !header.endsWith(': -')),
    '\r\n',
  ].join('\r\n')

export class WireClient {
  readonly closed: Promise<Closing>
  readonly form: Form
  answersPings = true
  /** The received frames that no call has consumed. */
  readonly frames: ServerFrame[] = []
  readonly pongs: string[] = []
  private readonly socket: Socket
  private readonly waiters = new Set<() => void>()
  private closing: Closing | undefined

  private constructor(socket: Socket, arrived: Arrived, form: Form) {
    this.socket = socket
    this.form = form
    this.closed = this.read(arrived).then((closing) => {
      this.closing = closing
      this.socket.destroy()
      this.wake()
      return closing
    })
  }

  /** Connects and upgrades. The greeting is the first of `frames`. `from`: the local address. */
  static async open(url: string, form: Form = 'binary', from = '127.0.0.1'): Promise<WireClient> {
    const { port, host } = new URL(url)
    const socket = dial({ port: Number(port), host: '127.0.0.1', localAddress: from })
    const arrived = new Arrived(socket)
    const protocol = Object.entries(SUBPROTOCOLS).find(([, its]) => its === form)![0]
    socket.write(upgradeRequest(host, [`Sec-WebSocket-Protocol: ${protocol}`]))
    const head = await arrived.take('the answer to an upgrade', (bytes) => endOfHead(bytes))
    const { status, headers } = parseHead(head.toString('latin1'))
    if (status !== 101 || headers.get('sec-websocket-protocol') !== protocol) {
      socket.destroy()
      throw new Error(`upgrade: ${status}`)
    }
    return new WireClient(socket, arrived, form)
  }

  static async enter(place: Place, options: { form?: Form; credit?: number; from?: string } = {}): Promise<WireClient> {
    const client = await WireClient.open(place.url, options.form, options.from)
    const hello = await client.next('hello')
    client.send(authFrame(place, hello, { credit: options.credit ?? 256 }))
    await client.next('welcome')
    return client
  }

  send(frame: ClientFrame): void {
    this.sendWire(encode(this.form, frame))
  }

  /** Sends the frames in one write, so that no reply arrives in between. */
  sendTogether(...frames: ClientFrame[]): void {
    const wires = frames.map((frame) => encode(this.form, frame))
    const messages = wires.map((wire) => maskedFrame(typeof wire === 'string' ? 1 : 2, Buffer.from(wire as Uint8Array)))
    this.socket.write(Buffer.concat(messages))
  }

  sendWire(wire: string | Uint8Array): void {
    this.sendMessage(typeof wire === 'string' ? 1 : 2, Buffer.from(wire as Uint8Array))
  }

  sendMessage(opcode: number, payload: Uint8Array): void {
    this.socket.write(maskedFrame(opcode, payload))
  }

  sendBytes(bytes: Uint8Array): void {
    this.socket.write(bytes)
  }

  /** Takes the next frame of these types, and discards earlier ones. */
  async next<Type extends ServerFrame['type']>(...types: Type[]): Promise<FrameOf<Type>> {
    const frame = await this.waitFor(`a frame ${types.join(' or ')}`, () => {
      const place = this.frames.findIndex((came) => (types as string[]).includes(came.type))
      return place < 0 ? undefined : this.frames.splice(0, place + 1).at(-1)
    })
    return frame as FrameOf<Type>
  }

  async deliveries(count: number): Promise<FrameOf<'push'>['deliveries']> {
    const found: FrameOf<'push'>['deliveries'] = []
    while (found.length < count) found.push(...(await this.next('push')).deliveries)
    return found
  }

  /** Waits for a pong, which proves that the session is alive. */
  async echo(): Promise<void> {
    const ref = Math.floor(Math.random() * 0xffffffff)
    this.send({ type: 'ping', ref })
    await this.waitFor('a pong', () => this.frames.find((frame) => frame.type === 'pong' && frame.ref === ref))
  }

  /** Stops reading, so that the broker must buffer. */
  pause(): void {
    this.socket.pause()
  }
  resume(): void {
    this.socket.resume()
  }
  destroy(): void {
    this.socket.destroy()
  }

  private async waitFor<T>(what: string, look: () => T | undefined): Promise<T> {
    const late = Promise.withResolvers<never>()
    const timer = setTimeout(() => late.reject(new Error(`${what} did not come`)), PATIENCE_MS)
    try {
      for (;;) {
        const found = look()
        if (found !== undefined) return found
        if (this.closing) throw new Error(`closed (${this.closing.code} ${this.closing.reason}) before ${what}`)
        await Promise.race([new Promise<void>((resolve) => this.waiters.add(resolve)), late.promise])
      }
    } finally {
      clearTimeout(timer)
    }
  }

  private wake(): void {
    for (const waiter of this.waiters) waiter()
    this.waiters.clear()
  }

  private async read(arrived: Arrived): Promise<Closing> {
    for (;;) {
      const bytes = await arrived.take('a message', endOfMessage, Number.POSITIVE_INFINITY).catch(() => null)
      if (!bytes) return { code: 1006, reason: '' }
      const opcode = bytes[0]! & 0x0f
      const payload = bytes.subarray(startOfPayload(bytes)!)
      if (opcode === 8)
        return { code: payload.length < 2 ? 1005 : payload.readUInt16BE(0), reason: payload.subarray(2).toString() }
      if (opcode === 9 && this.answersPings) this.sendMessage(10, payload)
      if (opcode === 10) this.pongs.push(payload.toString('latin1'))
      if (opcode > 2) continue
      const decoded = decodeServerFrame(this.form, opcode === 1 ? payload.toString() : new Uint8Array(payload))
      if (!decoded.ok) throw new Error(`the broker sent no frame: ${decoded.reason}`)
      this.frames.push(decoded.frame)
      this.wake()
    }
  }
}

export function transcriptOf({ identity, meshId, url, brokerKey }: Place, hello: FrameOf<'hello'>): Transcript {
  return {
    version: 1,
    versionsOffered: hello.versions,
    authority: new URL(url).host,
    brokerKey,
    meshId,
    peerKey: identity.signing.publicKey,
    serverNonce: hello.nonce,
    clientNonce: crypto.getRandomValues(new Uint8Array(32)),
    connectionId: hello.connectionId,
    issuedAtMs: hello.issuedAtMs,
    capabilities: [],
  }
}

/** Returns a valid `auth`, except for changes: `signed` to signed fields, others to sent fields. */
export function authFrame(
  { identity, meshId, url, brokerKey }: Place,
  hello: FrameOf<'hello'>,
  changed: { signed?: Partial<Transcript>; credit?: number } & Partial<FrameOf<'auth'>> = {},
): FrameOf<'auth'> {
  const { signed, ...frame } = changed
  const transcript = { ...transcriptOf({ identity, meshId, url, brokerKey }, hello), ...signed }
  return {
    type: 'auth',
    version: transcript.version,
    meshId,
    peerKey: identity.signing.publicKey,
    clientNonce: transcript.clientNonce,
    capabilities: [],
    signature: signAsClient(identity.signing, transcript),
    credit: 256,
    ...frame,
  }
}

type SendItem = FrameOf<'send'>['envelopes'][number]

/** Returns an envelope of random bytes, indistinguishable from a sealed one. */
export function envelopeTo(to: { identity: Identity } | PeerKey, changed: Partial<SendItem> = {}): SendItem {
  return {
    envelopeId: randomHex(16) as EnvelopeId,
    recipient: typeof to === 'string' ? to : to.identity.signing.publicKey,
    priority: 'next',
    isHead: false,
    ttlSeconds: 0,
    envelope: crypto.getRandomValues(new Uint8Array(64)),
    ...changed,
  }
}

export const sendFrame = (...envelopes: SendItem[]): FrameOf<'send'> => ({ type: 'send', envelopes })

export const randomHex = (bytes: number): string => toHex(crypto.getRandomValues(new Uint8Array(bytes)))
export const randomMesh = (): MeshId => randomHex(16) as MeshId

/** Returns a message in one client frame, with a zero mask. */
export function maskedFrame(opcode: number, payload: Uint8Array): Buffer {
  const { length } = payload
  const head = Buffer.alloc(length < 126 ? 2 : length < 65_536 ? 4 : 10)
  head[0] = 0x80 | opcode
  head[1] = 0x80 | (length < 126 ? length : length < 65_536 ? 126 : 127)
  if (head.length === 4) head.writeUInt16BE(length, 2)
  if (head.length === 10) head.writeBigUInt64BE(BigInt(length), 2)
  return Buffer.concat([head, new Uint8Array(4), payload])
}

/** Returns the offset of a server frame's payload; undefined if its head is incomplete. */
function startOfPayload(bytes: Buffer): number | undefined {
  if (bytes.length < 2) return undefined
  const length = bytes[1]! & 0x7f
  return length < 126 ? 2 : length === 126 ? 4 : 10
}

function endOfMessage(bytes: Buffer): number | undefined {
  const start = startOfPayload(bytes)
  if (start === undefined || bytes.length < start) return undefined
  const length = start === 2 ? bytes[1]! & 0x7f : start === 4 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2))
  return bytes.length >= start + length ? start + length : undefined
}

function endOfHead(bytes: Buffer): number | undefined {
  const end = bytes.indexOf('\r\n\r\n')
  return end < 0 ? undefined : end + 4
}

function parseHead(head: string): HttpAnswer {
  const [status = '', ...lines] = head.trimEnd().split('\r\n')
  const headers = lines.map(
    (line) => [line.split(':')[0]!.toLowerCase(), line.slice(line.indexOf(':') + 1).trim()] as const,
  )
  return { status: Number(status.split(' ')[1]), headers: new Map(headers), body: '' }
}

/** Received bytes, consumed from the front. */
class Arrived {
  private chunks: Buffer[] = []
  private isOver = false
  private news: (() => void) | undefined

  constructor(socket: Socket) {
    socket.on('data', (bytes) => {
      this.chunks.push(bytes as Buffer)
      this.news?.()
    })
    const over = () => {
      this.isOver = true
      this.news?.()
    }
    socket.on('close', over)
    socket.on('error', over)
  }

  /** Takes bytes. `end` returns how many, or undefined if too few have arrived. */
  async take(what: string, end: (bytes: Buffer) => number | undefined, withinMs = PATIENCE_MS): Promise<Buffer> {
    const late = Promise.withResolvers<never>()
    const timer =
      withinMs === Number.POSITIVE_INFINITY
        ? undefined
        : setTimeout(() => late.reject(new Error(`${what} did not come`)), withinMs)
    try {
      for (;;) {
        const bytes = this.chunks.length === 1 ? this.chunks[0]! : Buffer.concat(this.chunks)
        const length = end(bytes)
        if (length !== undefined) {
          this.chunks = length < bytes.length ? [bytes.subarray(length)] : []
          return bytes.subarray(0, length)
        }
        this.chunks = bytes.length > 0 ? [bytes] : []
        if (this.isOver) throw new Error(`the connection ended before ${what}`)
        await Promise.race([new Promise<void>((resolve) => (this.news = resolve)), late.promise])
      }
    } finally {
      clearTimeout(timer)
    }
  }
}
