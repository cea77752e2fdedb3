/**
 * Handles WebSocket connections. Every callback is guarded, because an error in one of Bun's handlers ends the process.
 */
import { type SendOutcome, type SocketId, TokenBucket } from '@sealpost/core'
import type { Connection, Driver } from '@sealpost/driver'
import {
  type CloseCode,
  closeNumber,
  type Form,
  FRAME_BYTES_MAX,
  type FrameOf,
  PROTOCOL_VERSIONS,
  type ServerForm,
  type ServerFrame,
  serverForms,
} from '@sealpost/protocol'
import type { Millis, PeerKey } from '@sealpost/std'
import type { ServerWebSocket, WebSocketHandler } from 'bun'
import { errorFields, type Log } from '../telemetry/log.ts'
import type { AdmissionControl, Evictable } from './admission.ts'
import { type Intake, type Intakes, PARSE_COST_MIN } from './intake.ts'

export interface SocketOptions {
  readonly brokerKey: PeerKey
  /** The cluster key's certificate for the broker key. */
  readonly certificate: Uint8Array | null
  readonly authWithinMs: Millis
  readonly backpressureBytes: number
  /** Limits the bytes parsed per member; null for no limit. */
  readonly intakes: Intakes | null
}

export interface SocketPorts {
  readonly driver: Driver
  readonly log: Log
  /** Called when a session opens or is refused. `tookMs`: the time since `hello`. */
  readonly handshake: (tookMs: Millis, refused: CloseCode | null) => void
}

export interface SocketState extends Evictable {
  readonly form: ServerForm
  readonly authority: string
  readonly clientAddress: string
  socket: SocketId
  connection: BunConnection | null
  isProven: boolean
  /** Null before authentication, or without limits. */
  intake: Intake | null
  readonly startedAtMs: Millis
  readonly controls: TokenBucket
}
export type Socket = ServerWebSocket<SocketState>

/** The rate of a client's pings and pongs, beyond which it counts as a flood. */
const CONTROLS = { perSecond: 10, burst: 50 }

export function socketState(form: Form, authority: string, clientAddress: string): SocketState {
  const nowMs = performance.now()
  const data: SocketState = {
    ...{ form: serverForms[form], authority, clientAddress },
    socket: 0,
    connection: null,
    isProven: false,
    intake: null,
    startedAtMs: nowMs,
    controls: new TokenBucket(CONTROLS, nowMs),
    evict: () => data.connection?.evict(),
  }
  return data
}

export function socketHandlers(
  { driver, log, handshake }: SocketPorts,
  options: SocketOptions,
  admission: AdmissionControl,
) {
  const fault = (socket: Socket, error: unknown): void => {
    log.error('socket.fault', { ...errorFields(error), socket: socket.data.socket })
    driver.refuse(socket.data.socket, 'internal')
  }
  const guard = (socket: Socket, act: () => void): void => {
    try {
      act()
    } catch (error) {
      fault(socket, error)
    }
  }

  const admits = ({ data }: Socket, byteCount: number): boolean => {
    admission.heard(data)
    return admission.chargeUnproven(data.clientAddress, byteCount) === 0
  }

  const receive = (socket: Socket, wire: string | Uint8Array): void => {
    const { data } = socket
    const cost = Math.max(PARSE_COST_MIN, wire.length)
    const owedMs = data.intake ? data.intake.bucket.charge(performance.now(), cost) : 0
    if (owedMs > 0) data.connection?.holdBack(owedMs)
    if (!data.isProven && !admits(socket, wire.length)) return driver.refuse(data.socket, 'rate_exceeded')
    const decoded = data.form.decode(wire, data.isProven ? 'proven' : 'unproven')
    if (decoded.ok) return driver.received(data.socket, decoded.frame)
    data.intake?.refuse(wire.length)
    driver.refuse(data.socket, decoded.code)
  }

  return {
    ...endpointSettings(options.backpressureBytes),
    open: (socket) =>
      guard(socket, () => {
        socket.binaryType = 'uint8array'
        const connection = new BunConnection(socket, { admission, handshake, driver, intakes: options.intakes })
        socket.data.connection = connection
        if (options.certificate) connection.send([{ type: 'certificate', certificate: options.certificate }])
        socket.data.socket = driver.connected(connection, helloOf(options))
      }),
    message: (socket, wire) => {
      try {
        receive(socket, wire)
      } catch (error) {
        fault(socket, error)
      }
    },
    ping: (socket) => guard(socket, () => countControl(socket, driver)),
    pong: (socket) => {
      guard(socket, () => {
        driver.step(() => driver.engine.ponged(socket.data.socket))
        countControl(socket, driver)
      })
    },
    drain: (socket) => guard(socket, () => driver.step(() => driver.engine.drained(socket.data.socket))),
    close: (socket, code) => {
      admission.left(socket.data.clientAddress, socket.data, socket.data.isProven)
      socket.data.connection?.over()
      guard(socket, () => driver.disconnected(socket.data.socket, code === NORMAL_CLOSURE ? 'normal' : 'broken'))
    },
  } satisfies WebSocketHandler<SocketState>
}

/** The close code of a client that has finished. */
const NORMAL_CLOSURE = 1000

/** Counts pings and pongs, because Bun answers pings itself. */
function countControl({ data }: Socket, driver: Driver): void {
  if (data.controls.take(performance.now()) > 0) driver.refuse(data.socket, 'rate_exceeded')
}

interface ConnectionParts extends Pick<SocketPorts, 'handshake' | 'driver'>, Pick<SocketOptions, 'intakes'> {
  readonly admission: AdmissionControl
}

class BunConnection implements Connection {
  readonly authority: string
  private readonly socket: Socket
  private readonly parts: ConnectionParts
  /** The name of the member's limits; undefined before authentication. */
  private member: string | undefined
  private isPaused = false
  private heldBack: ReturnType<typeof setTimeout> | undefined

  constructor(socket: Socket, parts: ConnectionParts) {
    this.socket = socket
    this.parts = parts
    this.authority = socket.data.authority
  }

  send(frames: readonly ServerFrame[]): SendOutcome {
    const { data } = this.socket
    if (!data.isProven && frames.some(({ type }) => type === 'welcome')) this.proven()
    if (frames.length === 1) {
      const status = this.socket.send(data.form.encode(frames[0]!))
      return status === 0 ? 'dropped' : status === -1 ? 'buffered' : 'sent'
    }
    let outcome: SendOutcome = 'sent'
    this.socket.cork(() => {
      for (const frame of frames) {
        const status = this.socket.send(data.form.encode(frame))
        if (status === 0) outcome = 'dropped'
        else if (status === -1 && outcome === 'sent') outcome = 'buffered'
      }
    })
    return outcome
  }

  close(code: CloseCode, retryAfterMs: Millis): void {
    const refused = { type: 'refused', code, retryAfterMs: Math.ceil(retryAfterMs), reason: '' } as const
    const { isProven, startedAtMs, form } = this.socket.data
    if (!isProven) this.parts.handshake(performance.now() - startedAtMs, code)
    this.socket.send(form.encode(refused))
    this.socket.close(closeNumber(code), code)
  }

  hangUp(): void {
    this.socket.close(1000)
  }

  ping(): void {
    this.socket.ping()
  }
  pause(): void {
    this.isPaused = true
    this.socket.pause()
  }
  resume(): void {
    this.isPaused = false
    if (!this.heldBack) this.socket.resume()
  }

  /** Disconnects this client to make room. */
  evict(): void {
    this.parts.driver.refuse(this.socket.data.socket, 'try_later')
  }

  over(): void {
    clearTimeout(this.heldBack)
    if (this.member !== undefined) this.parts.intakes?.leave(this.member)
  }

  private proven(): void {
    const { data } = this.socket
    const { admission, handshake, driver, intakes } = this.parts
    data.isProven = true
    admission.proven(data.clientAddress, data)
    handshake(performance.now() - data.startedAtMs, null)
    this.member = intakes ? driver.engine.limitNameOf(data.socket) : undefined
    if (this.member === undefined) return
    data.intake = intakes!.enter(this.member)
    const owedMs = data.intake.owed()
    if (owedMs > 0) this.holdBack(owedMs)
  }

  /** Stops reading for a while, because of the parse limit. */
  holdBack(ms: Millis): void {
    if (this.heldBack) return
    this.socket.pause()
    this.heldBack = setTimeout(() => {
      this.heldBack = undefined
      const owedMs = this.socket.data.intake!.owed()
      if (owedMs > 0) this.holdBack(owedMs)
      else if (!this.isPaused) this.socket.resume()
    }, ms)
  }
}

export function helloOf(options: Pick<SocketOptions, 'brokerKey' | 'authWithinMs'>): FrameOf<'hello'> {
  return {
    type: 'hello',
    versions: [...PROTOCOL_VERSIONS],
    brokerKey: options.brokerKey,
    connectionId: crypto.getRandomValues(new Uint8Array(16)),
    nonce: crypto.getRandomValues(new Uint8Array(32)),
    issuedAtMs: Date.now(),
    authWithinMs: options.authWithinMs,
  }
}

const IDLE_SECONDS = 120 // a fallback for the engine's heartbeat

/** Returns the settings of Bun's server. `backpressureBytes`: the buffer for a client that does not read. */
export const endpointSettings = (backpressureBytes: number) => ({
  perMessageDeflate: false, // ciphertext doesn't compress, and decompression would allow zip bombs
  maxPayloadLength: FRAME_BYTES_MAX,
  backpressureLimit: backpressureBytes,
  closeOnBackpressureLimit: true,
  idleTimeout: IDLE_SECONDS,
  sendPings: false,
})

/** A minimum rate for clients that hold memory or a slot. */
export interface TransferPace {
  readonly bytesPerSecond: number
  /** How far a client may fall behind. */
  readonly startMs: Millis
}

export class PaceWatch {
  readonly #pace: TransferPace
  readonly #tooSlow: () => void
  #timer: ReturnType<typeof setTimeout> | undefined
  /** When the transfer is too slow, unless more bytes pass. */
  #untilMs: Millis

  constructor(pace: TransferPace, tooSlow: () => void) {
    this.#pace = pace
    this.#tooSlow = tooSlow
    this.#untilMs = performance.now() + pace.startMs
    this.#wait()
  }

  /** Adds `bytes`, which earn time but never more slack than `startMs`. */
  passed(bytes: number): void {
    const nowMs = performance.now()
    const { bytesPerSecond, startMs } = this.#pace
    this.#untilMs = Math.min(this.#untilMs, nowMs + startMs) + (bytes * 1000) / bytesPerSecond
  }

  stop(): void {
    clearTimeout(this.#timer)
  }

  #wait(): void {
    this.#timer = setTimeout(() => {
      if (performance.now() < this.#untilMs) this.#wait()
      else this.#tooSlow()
    }, this.#untilMs - performance.now())
    this.#timer.unref()
  }
}

/** Returns the whole body; null if it arrives too slowly. @throws any error of reading the body */
export async function readAtPace(body: Request, pace: TransferPace): Promise<Uint8Array | null> {
  if (!body.body) return new Uint8Array()
  const reader = body.body.getReader()
  let isLate = false
  const watch = new PaceWatch(pace, () => {
    isLate = true
    void reader.cancel().catch(() => undefined) // the body has already failed
  })
  const pieces: Uint8Array[] = []
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (isLate) return null
      if (done) return pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)
      watch.passed(value.length)
      pieces.push(value)
    }
  } finally {
    watch.stop()
  }
}
