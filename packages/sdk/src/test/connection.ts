/** Provides tests with a connection without a socket. The test acts as its broker and its clock. */
import type { FrameOf, RefusalCode } from '@sealpost/protocol'
import { type MeshId, type Millis, type PeerKey, seededRandom } from '@sealpost/std'
import type { KnownAddresses } from '../connection/addresses.ts'
import { BrokerConnection } from '../connection/connection.ts'
import type { SealpostError } from '../errors.ts'
import type { ConnectionTarget } from '../ports.ts'
import { fakeCrypto, fakeProof } from './fake-crypto.ts'

export const place: ConnectionTarget = {
  urls: ['wss://broker.example'],
  brokerKey: 'b'.repeat(64) as PeerKey,
  meshId: '1'.repeat(32) as MeshId,
  peerKey: 'a'.repeat(64) as PeerKey,
}
export const HELLO: FrameOf<'hello'> = {
  type: 'hello',
  versions: [1],
  brokerKey: place.brokerKey,
  connectionId: new Uint8Array(16).fill(3),
  nonce: new Uint8Array(32).fill(4),
  issuedAtMs: 1_700_000_000_000,
  authWithinMs: 10_000,
}
export const HEARTBEAT_MS = 15_000

export class World {
  readonly random: () => number
  readonly log: string[] = []
  readonly urls: string[] = []
  error: SealpostError | null | undefined
  auth: FrameOf<'auth'> | undefined
  retryInMs: Millis = -1
  isOwed = false
  readonly known: KnownAddresses[] = []
  readonly connection: BrokerConnection

  constructor(random = seededRandom(7).next, urls = place.urls) {
    this.random = random
    const { log } = this
    this.connection = new BrokerConnection(
      {
        effects: {
          dial: (dialNo, url) => {
            log.push(`dial ${dialNo}`)
            this.urls.push(url)
          },
          closeSocket: (dialNo, code) => log.push(`${code === 1000 ? 'close' : 'hang up'} ${dialNo}`),
          transmit: (frame) => {
            log.push(frame.type)
            if (frame.type === 'auth') this.auth = frame
          },
          emit: (event) => log.push(event.type),
        },
        crypto: fakeCrypto({ ...place, boxKey: new Uint8Array(32), random: this.random }),
        random: this.random,
        isOwed: () => this.isOwed,
        live: () => log.push('live'),
        learned: (known) => this.known.push(known),
        lost: (code, retryInMs) => {
          this.retryInMs = retryInMs
          log.push(`lost ${code}`)
        },
        ended: (error) => {
          this.error = error
          log.push('ended')
        },
      },
      { ...place, urls },
      512,
    )
  }

  transcript(overrides: Partial<ConnectionTarget & { authority: string }> = {}) {
    const { version, clientNonce, capabilities } = this.auth!
    return {
      version,
      versionsOffered: HELLO.versions,
      authority: 'broker.example:443',
      brokerKey: place.brokerKey,
      meshId: place.meshId,
      peerKey: place.peerKey,
      ...overrides,
      serverNonce: HELLO.nonce,
      clientNonce,
      connectionId: HELLO.connectionId,
      issuedAtMs: HELLO.issuedAtMs,
      capabilities,
    }
  }

  welcome(proof: Uint8Array = fakeProof(this.transcript(), this.auth!.signature)): FrameOf<'welcome'> {
    return {
      type: 'welcome',
      proof,
      epoch: 1,
      incarnation: '00'.repeat(16),
      durability: 'fsync',
      heartbeatMs: HEARTBEAT_MS,
      leaseMs: 30_000,
      dedupeSeconds: 86_400,
      creditMax: 1024,
      envelopeBytesMax: 70_000,
      ttlSecondsMax: 1000,
      inFlightMax: 1024,
    }
  }

  greet(nowMs = 0): void {
    const { connection } = this
    connection.start(nowMs)
    connection.opened(connection.dialNo)
    connection.received(connection.dialNo, HELLO, nowMs)
  }

  goLive(nowMs = 0): void {
    this.greet(nowMs)
    this.connection.received(this.connection.dialNo, this.welcome(), nowMs)
  }

  refuse(code: RefusalCode, retryAfterMs = 0, nowMs = 0): void {
    const frame = { type: 'refused', code, retryAfterMs, reason: '' } as const
    this.connection.received(this.connection.dialNo, frame, nowMs)
  }
}
