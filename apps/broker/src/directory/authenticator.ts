/**
 * Proof of a key: looks the peer up and checks its signature over the transcript of this very handshake. An unknown
 * peer costs and answers the same as a known one with a bad signature.
 *
 * A check and its answer take a tenth of a millisecond of this process, so they are done one after the other with a breath in
 * between; past a bound newcomers are told to come later. Who has left the line, or has stood in it for long, costs
 * nothing any more: 2,000 peers that came back to a busy machine were checked only after they had given up, for minutes.
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
/** Half of what a connection has for its proof: the rest is for the session to be opened. */
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

  /** `null`: too many wait, or it took too long. @throws OperatingError when the database does not answer */
  authenticate(prover: Prover, hello: FrameOf<'hello'>, auth: FrameOf<'auth'>): Promise<Authentication | null> {
    return this.prove(prover, hello, auth, (transcript) => verifyClient(transcript, auth.signature, this.signatures))
  }

  /** The same for a peer that asks for a token. */
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
    // Behind a good signature: how long an answer takes must not tell whether the key of somebody else is known.
    const mayBeAway = found?.isSignatureGood && (found.member?.sessionEpoch ?? -1) < 0
    if (!mayBeAway) return found
    const cell = await this.cells.find(auth.meshId)
    if (cell) return { ...found, cell }
    const [member] = await this.queue.findMembers(auth.meshId, [auth.peerKey]) // it may have come while it was waited for
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

  /** Other signatures, checked in turn with these. `null`: too many wait. */
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

/** What is signed on the connection of this greeting. */
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
