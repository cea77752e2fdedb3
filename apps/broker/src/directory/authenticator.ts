/**
 * Proof of a key: looks the peer up and checks its signature over the transcript of this handshake. An unknown peer
 * costs the same and gets the same reply as a known one with an invalid signature.
 *
 * A check and its reply take a tenth of a millisecond, so checks run one after the other with pauses for the event
 * loop; above a limit new connections get `try_later`. Disconnected and long-waiting peers are skipped: 2,000 peers
 * that returned to a busy machine were checked, for minutes, only after they had given up.
 */
import type { Authentication } from '@sealpost/core'
import type { Prover } from '@sealpost/driver'
import { type SigningKeys, signAsBroker, type Transcript, verifyClient, verifyTokenRequest } from '@sealpost/identity'
import { NativeSignatures } from '@sealpost/identity/native-signatures'
import type { FrameOf } from '@sealpost/protocol'
import type { Queue } from '@sealpost/queue'
import type { Millis } from '@sealpost/std'
import type { Cells } from '../shards/cells.ts'

const WAITING_MAX = 500
const BREATH_EVERY = 8
/** Half of the time that a connection has for its proof: the rest is for opening the session. */
const PATIENCE_MS: Millis = 5_000

export class Authenticator {
  private readonly queue: Queue
  private readonly keys: SigningKeys
  private readonly cells: Cells
  private readonly signatures = new NativeSignatures()
  private waiting = 0
  private turn: Promise<void> = Promise.resolve()
  private done = 0

  constructor(queue: Queue, keys: SigningKeys, cells: Cells) {
    this.queue = queue
    this.keys = keys
    this.cells = cells
  }

  /** `null`: too many wait, or it took too long. @throws OperatingError if the database does not respond */
  authenticate(prover: Prover, hello: FrameOf<'hello'>, auth: FrameOf<'auth'>): Promise<Authentication | null> {
    return this.prove(prover, hello, auth, (transcript) => verifyClient(transcript, auth.signature, this.signatures))
  }

  authenticateForToken(
    authority: string,
    hello: FrameOf<'hello'>,
    auth: FrameOf<'auth'>,
    ttlSeconds: number,
  ): Promise<Authentication | null> {
    return this.prove({ authority, isThere: () => true }, hello, auth, (transcript) =>
      verifyTokenRequest(transcript, ttlSeconds, auth.signature, this.signatures),
    )
  }

  private async prove(
    prover: Prover,
    hello: FrameOf<'hello'>,
    auth: FrameOf<'auth'>,
    isSignedBy: (transcript: Transcript) => boolean,
  ): Promise<Authentication | null> {
    const found = await this.check(prover, hello, auth, isSignedBy)
    // Only after a valid signature: the response time must not reveal whether another peer's key is known.
    const mayBeAway = found?.isSignatureGood && (found.member?.sessionEpoch ?? -1) < 0
    if (!mayBeAway) return found
    const cell = await this.cells.find(auth.meshId)
    if (cell) return { ...found, cell }
    const [member] = await this.queue.findMembers(auth.meshId, [auth.peerKey]) // the mesh may have arrived meanwhile
    return { ...found, member: member ?? null }
  }

  private async check(
    { authority, isThere }: Prover,
    hello: FrameOf<'hello'>,
    auth: FrameOf<'auth'>,
    isSignedBy: (transcript: Transcript) => boolean,
  ): Promise<Authentication | null> {
    if (this.waiting >= WAITING_MAX) return null
    this.waiting += 1
    const sinceMs = performance.now()
    try {
      const [member] = await this.queue.findMembers(auth.meshId, [auth.peerKey])
      await this.takeTurn()
      if (!isThere() || performance.now() - sinceMs > PATIENCE_MS) return null
      const transcript = transcriptOf(authority, hello, auth)
      const isSignatureGood = isSignedBy(transcript)
      const proof = isSignatureGood ? this.answer(transcript, auth.signature) : new Uint8Array(64)
      return { member: member ?? null, isSignatureGood, proof, cell: null }
    } finally {
      this.waiting -= 1
    }
  }

  /** Checks other signatures in the same queue. `null`: too many wait. */
  async inTurn<T>(check: () => T): Promise<T | null> {
    if (this.waiting >= WAITING_MAX) return null
    this.waiting += 1
    try {
      await this.takeTurn()
      return check()
    } finally {
      this.waiting -= 1
    }
  }

  private answer(transcript: Transcript, signature: Uint8Array): Uint8Array {
    return signAsBroker(this.keys, transcript, signature, this.signatures)
  }

  private takeTurn(): Promise<void> {
    this.turn = this.turn.then(() => {
      this.done += 1
      return this.done % BREATH_EVERY === 0 ? new Promise((resolve) => setImmediate(resolve)) : undefined
    })
    return this.turn
  }
}

export function transcriptOf(
  authority: string,
  hello: FrameOf<'hello'>,
  auth: Pick<FrameOf<'auth'>, 'version' | 'meshId' | 'peerKey' | 'clientNonce' | 'capabilities'>,
): Transcript {
  return {
    version: auth.version,
    versionsOffered: hello.versions,
    authority,
    brokerKey: hello.brokerKey,
    meshId: auth.meshId,
    peerKey: auth.peerKey,
    serverNonce: hello.nonce,
    clientNonce: auth.clientNonce,
    connectionId: hello.connectionId,
    issuedAtMs: hello.issuedAtMs,
    capabilities: auth.capabilities,
  }
}
