/**
 * Runs a peer: the real SDK, with every event in the ledger. A custom WebSocket records pushes and settles, because the
 * SDK hides duplicates.
 */
import { boxKeysFromSecret, signingKeysFromSeed } from '@sealpost/identity'
import { decodeClientFrame, decodeServerFrame } from '@sealpost/protocol'
import {
  clockMs,
  connect,
  type Message,
  type Peer,
  type PeerEvent,
  SealpostError,
  type WebSocketConstructor,
} from '@sealpost/sdk'
import { fromHex, type PeerKey } from '@sealpost/std'
import type { Kind, LedgerWriter, PushedItem } from '../judgement/ledger.ts'
import type { PeerSetup, Role } from './population.ts'

interface ActorContext extends Omit<PeerSetup, 'roles' | 'ledgerFile' | 'seed'> {
  readonly ledger: LedgerWriter
  readonly numberOf: (key: PeerKey) => number | undefined
  readonly tally: { sent: number; acked: number; got: number }
}

const BRIEF_SECONDS = 2
const WAITING_MAX = 128

export class Actor {
  readonly no: number
  /** How long the application works on each message. */
  dawdleMs = 0
  readonly #role: Role
  readonly #around: ActorContext
  readonly #counts = new Map<number, number>()
  #peer: Peer | null = null
  #life = 0
  #sessions = 0

  constructor(role: Role, around: ActorContext) {
    this.no = role.no
    this.#role = role
    this.#around = around
  }

  get isOnline(): boolean {
    return this.#peer?.isOnline ?? false
  }
  get hasJoined(): boolean {
    return this.#peer !== null
  }
  get pending(): number {
    return this.#peer?.pendingCount ?? 0
  }
  /** Whether the peer may write, which it does not while many sends are pending. */
  get mayWrite(): boolean {
    return this.#peer !== null && this.pending < WAITING_MAX
  }

  /** Connects with the same keys and an empty inbox and outbox, like a restarted program. */
  async join(): Promise<void> {
    if (this.#peer) return
    const { ledger, url, brokerKey, numberOf } = this.#around
    const { no, meshId, secret } = this.#role
    this.#life += 1
    const life = this.#life
    const webSocket = recordingSocket({ ledger, numberOf, peer: no, nextSession: () => ++this.#sessions })
    const identity = {
      signing: signingKeysFromSeed(fromHex(secret.signing)),
      box: boxKeysFromSecret(fromHex(secret.box), 1),
    }
    const onEvent = (event: PeerEvent) => this.#note(event)
    this.#peer = await connect({ url, brokerKey, meshId, identity, webSocket, onEvent })
    this.#peer.onMessage((message) => this.#got(message, life))
  }

  async leave(): Promise<void> {
    const peer = this.#peer
    this.#peer = null
    await peer?.close()
  }

  write(to: number, kind: Kind): void {
    const { ledger, keys, bodyBytes, tally } = this.#around
    const n = this.#counts.get(to) ?? 0
    this.#counts.set(to, n + 1)
    const numbered = { from: this.no, to, n }
    const body = bodyOf({ ...numbered, kind }, bodyBytes)
    ledger.write({ atMs: clockMs(), e: 'sent', ...numbered, kind })
    tally.sent += 1
    this.#peer!.send(keys[to]!, body, kind === 'brief' ? { ttlSeconds: BRIEF_SECONDS } : {}).then(
      ({ envelopeId, ackedAtMs }) => {
        tally.acked += 1
        ledger.write({ atMs: ackedAtMs, e: 'acked', ...numbered, envelopeId })
      },
      (error) => {
        const code = error instanceof SealpostError ? error.code : String(error)
        ledger.write({ atMs: clockMs(), e: 'refused', ...numbered, code })
      },
    )
  }

  #got(message: Message, life: number): Promise<void> | undefined {
    const { ledger, numberOf, tally } = this.#around
    const { envelopeId, sender, body } = message
    const from = numberOf(sender) ?? STRANGER
    const said = saidIn(body)
    const { to, n, kind } = said ?? { to: this.no, n: -1, kind: 'plain' as const }
    const isWhole = said !== null && said.from === from && to === this.no
    const numbered = { from, to, n }
    ledger.write({ atMs: clockMs(), e: 'got', peer: this.no, life, envelopeId, ...numbered, kind, isWhole })
    if (message.attempt === 1) tally.got += 1
    if (kind !== 'poison') return this.dawdleMs > 0 ? Bun.sleep(this.dawdleMs) : undefined
    ledger.write({ atMs: clockMs(), e: 'put off', peer: this.no, envelopeId })
    throw new Error('poison')
  }

  #note(event: PeerEvent): void {
    const { ledger } = this.#around
    if (event.type === 'tamper')
      ledger.write({ atMs: clockMs(), e: 'alarm', peer: this.no, what: event.reason, envelopeId: event.envelopeId })
    if (event.type === 'closed' && event.error)
      ledger.write({ atMs: clockMs(), e: 'alarm', peer: this.no, what: event.error.code, envelopeId: '' })
  }
}

/** A body's contents, which also determine its padding. */
interface Said {
  readonly from: number
  readonly to: number
  readonly n: number
  readonly kind: Kind
}

const KINDS: readonly Kind[] = ['plain', 'brief', 'poison']
const HEAD_BYTES = 16

export function bodyOf({ from, to, n, kind }: Said, bytes: number): Uint8Array {
  const body = new Uint8Array(Math.max(bytes, HEAD_BYTES))
  const head = new DataView(body.buffer)
  head.setUint32(0, from)
  head.setUint32(4, to)
  head.setUint32(8, n)
  head.setUint32(12, KINDS.indexOf(kind))
  for (let at = HEAD_BYTES; at < body.length; at++) body[at] = fillingAt(at, n + from)
  return body
}

/** Reads a body. @returns null if no actor created it */
function saidIn(body: Uint8Array): Said | null {
  if (body.length < HEAD_BYTES) return null
  const head = new DataView(body.buffer, body.byteOffset, body.length)
  const [from, to, n] = [head.getUint32(0), head.getUint32(4), head.getUint32(8)]
  const kind = KINDS[head.getUint32(12)]
  for (let at = HEAD_BYTES; at < body.length; at++) if (body[at] !== fillingAt(at, n + from)) return null
  return kind === undefined ? null : { from, to, n, kind }
}

const fillingAt = (at: number, seed: number): number => (at * 31 + seed * 7) & 0xff

/** A sender outside the population. */
const STRANGER = -1

interface Recording extends Pick<ActorContext, 'ledger' | 'numberOf'> {
  readonly peer: number
  readonly nextSession: () => number
}

function recordingSocket({ ledger, numberOf, peer, nextSession }: Recording): WebSocketConstructor {
  class RecordingSocket extends WebSocket {
    readonly #session = nextSession()

    constructor(url: string, protocols: string[]) {
      super(url, protocols)
      this.addEventListener('message', ({ data }) => this.#received(data as ArrayBuffer))
    }

    override send(wire: string | Uint8Array<ArrayBuffer>): void {
      const decoded = decodeClientFrame('binary', wire)
      if (decoded.ok && decoded.frame.type === 'settle')
        ledger.write({ atMs: clockMs(), e: 'settled', peer, session: this.#session, ids: decoded.frame.ids })
      super.send(wire)
    }

    override close(code?: number, reason?: string): void {
      if (code === 1000) ledger.write({ atMs: clockMs(), e: 'finished', peer, session: this.#session })
      super.close(code, reason)
    }

    #received(wire: ArrayBuffer): void {
      const decoded = decodeServerFrame('binary', new Uint8Array(wire))
      if (!decoded.ok || decoded.frame.type !== 'push') return
      const items = decoded.frame.deliveries.map(
        ({ id, envelopeId, sender, attempt }): PushedItem => [id, envelopeId, numberOf(sender) ?? STRANGER, attempt],
      )
      ledger.write({ atMs: clockMs(), e: 'pushed', peer, session: this.#session, items })
    }
  }
  return RecordingSocket as unknown as WebSocketConstructor
}
