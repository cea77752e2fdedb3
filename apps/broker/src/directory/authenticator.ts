/**
 * Verifies that a peer holds its key: looks the peer up and checks its signature over the transcript of this handshake.
 * An unknown peer costs as much, and receives the same reply, as a known peer with an invalid signature.
 *
 * A check takes 0.1 ms, so checks queue and yield to the event loop. Above a limit, connections are refused with
 * `try_later`. The queue skips peers that have given up; otherwise, a busy machine checked 2,000 returning peers for
 * minutes.
 */

import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Authentication, Enrolment, Replies, Requester, RevokeReply } from '@sealpost/core'
import type { Prover } from '@sealpost/driver'
import {
  certificateOf,
  checkKeyBinding,
  generateSigningKeys,
  hash256,
  type Invite,
  type KeyBinding,
  normalizeAuthority,
  parseInvite,
  readShardCertificateText,
  type ShardCertificate,
  type SigningKeys,
  signAsBroker,
  type Transcript,
  verifyClient,
  verifyEnrolment,
  verifyTokenRequest,
} from '@sealpost/identity'
import { readKeyFile, writeKeyFile } from '@sealpost/identity/key-file'
import { NativeSignatures } from '@sealpost/identity/native-signatures'
import type { Database } from '@sealpost/pg'
import { type FrameOf, MEMBER_PAGE_MAX } from '@sealpost/protocol'
import type { Queue } from '@sealpost/queue'
import {
  asciiName,
  isChosenName,
  type MeshId,
  type Millis,
  OperatingError,
  type PeerKey,
  tidyName,
  unicodeName,
} from '@sealpost/std'
import { enrolByInvite, listMembers, revokeMembers, type VerifiedInvite } from '@sealpost/store'
import type { Config } from '../config/config.ts'
import type { Cells } from '../shards/cells.ts'
import type { Log } from '../telemetry/log.ts'

const WAITING_MAX = 500
const BREATH_EVERY = 8
/** How long a check may wait: half of the time for a handshake, before the session is opened. */
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

  /**
   * Returns `null` if too many checks wait or the check took too long.
   * @throws OperatingError if the database does not respond
   */
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
    // Only after a valid signature, because the response time must not reveal whether a key is known.
    const mayBeAway = found?.isSignatureGood && (found.member?.sessionEpoch ?? -1) < 0
    if (!mayBeAway) return found
    const cell = await this.cells.find(auth.meshId)
    if (cell) return { ...found, cell }
    const [member] = await this.queue.findMembers(auth.meshId, [auth.peerKey]) // the mesh may have moved since the lookup
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

  /** Runs another check in the same queue. Returns `null` if too many wait. */
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

const DEFAULT_KEY_FILE = '.sealpost/broker.json'

/** The broker's own key, and its certificate from the cluster's key, if any. */
export interface BrokerKeys extends SigningKeys {
  /** The pinned key: the broker's own, or the one that signed its certificate. */
  readonly clusterKey: PeerKey
  readonly certificate: ShardCertificate | null
}

type Settings = Pick<Config, 'BROKER_KEY_FILE' | 'BROKER_CERTIFICATE_FILE' | 'PUBLIC_URL'>

/**
 * Reads the broker's keys. Creates the default key file, but not a configured one.
 * @throws OperatingError `key_file_missing`, `key_file_unreadable`, `key_file_malformed`, `key_file_wrong_kind`,
 * `key_file_unwritable`, `certificate_unreadable`, `certificate_malformed`, `certificate_foreign`,
 * `certificate_expired`
 */
export async function readBrokerKeys(settings: Settings, log: Log): Promise<BrokerKeys> {
  const signing = await readSigningKeys(settings.BROKER_KEY_FILE, log)
  const certificate = readCertificate(settings, signing.publicKey)
  return { ...signing, clusterKey: certificate?.clusterKey ?? signing.publicKey, certificate }
}

async function readSigningKeys(path: string, log: Log): Promise<SigningKeys> {
  if (path === '' && !existsSync(DEFAULT_KEY_FILE)) await makeKeyFile(DEFAULT_KEY_FILE)
  const { contents, warning } = await readKeyFile(path || DEFAULT_KEY_FILE)
  if (contents.kind !== 'broker')
    throw new OperatingError(
      'key_file_wrong_kind',
      `The file ${path || DEFAULT_KEY_FILE} is not the key file of a broker.`,
    )
  if (warning) log.warn('key_file.exposed', { message: warning.message })
  return contents.signing
}

/** Reads the certificate. Refuses one that no peer would accept. */
function readCertificate(settings: Settings, shardKey: PeerKey): ShardCertificate | null {
  const { BROKER_CERTIFICATE_FILE: path, PUBLIC_URL } = settings
  if (path === '') return null
  const certificate = readShardCertificateText(textOf(path))
  const refuse = (code: string, what: string): never => {
    throw new OperatingError(`certificate_${code}`, `The certificate ${path} ${what}.`)
  }
  if (!certificate) return refuse('malformed', 'is malformed or has an invalid signature')
  if (certificate.shardKey !== shardKey) return refuse('foreign', "certifies a different key than this broker's")
  if (PUBLIC_URL !== '' && !certificate.authorities.includes(normalizeAuthority(PUBLIC_URL)))
    return refuse('foreign', 'does not contain the PUBLIC_URL of this broker')
  if (Date.now() > certificate.notAfterMs) return refuse('expired', 'has expired')
  return certificate
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (cause) {
    throw new OperatingError('certificate_unreadable', `Can't read the certificate ${path}.`, { cause })
  }
}

async function makeKeyFile(path: string): Promise<void> {
  const folder = dirname(path)
  try {
    mkdirSync(folder, { recursive: true })
  } catch (cause) {
    throw new OperatingError('key_file_unwritable', `Can't create the folder ${folder} for the broker's key.`, {
      cause,
    })
  }
  await writeKeyFile(path, { kind: 'broker', signing: generateSigningKeys() })
}

interface Checked {
  readonly claim: VerifiedInvite
  /** The signed enrolment, which proves the membership to other members. Null if others could still use its invite. */
  readonly certificate: { readonly bytes: Uint8Array; readonly atMs: Millis } | null
  readonly binding: KeyBinding
  readonly proof: Uint8Array
}

interface RegistrarParts {
  readonly authenticator: Authenticator
  readonly keys: BrokerKeys
  readonly cells: Cells
  readonly membersMax: number
}

export class EnrolmentService {
  private readonly db: Database
  private readonly authenticator: Authenticator
  private readonly keys: BrokerKeys
  private readonly cells: Cells
  private readonly membersMax: number

  constructor(db: Database, { authenticator, keys, cells, membersMax }: RegistrarParts) {
    this.db = db
    this.authenticator = authenticator
    this.keys = keys
    this.cells = cells
    this.membersMax = membersMax
  }

  /** Returns `null` if too many checks wait. @throws OperatingError if the database does not respond */
  async enrol(authority: string, hello: FrameOf<'hello'>, enrol: FrameOf<'enrol'>): Promise<Enrolment | null> {
    const checked = await this.authenticator.inTurn(() => this.check(authority, hello, enrol))
    if (checked === null) return null
    // The reply must not distinguish this from an invite that is used up or revoked.
    if (checked === 'invite_refused') return { status: checked }
    const { claim, binding, proof, certificate } = checked
    const name = unicodeName(tidyName(enrol.name))
    if (!isChosenName(name)) return { status: 'name_malformed' }
    const candidate = { ...binding, name: asciiName(name), ...(certificate && { certificate }) }
    const outcome = await enrolByInvite(this.db, claim, candidate, this.membersMax)
    if (outcome.status === 'invite_refused') return this.cells.sendOn(claim.meshId, proof)
    return outcome.status === 'enrolled' ? { ...outcome, proof } : outcome
  }

  async list(meshId: MeshId, { after }: FrameOf<'members'>): Promise<Replies['members']> {
    const found = await listMembers(this.db, meshId, { after, limit: MEMBER_PAGE_MAX + 1 })
    const members = found.slice(0, MEMBER_PAGE_MAX).map(({ peerKey, name, role }) => ({ peer: peerKey, name, role }))
    return { members, isLast: found.length <= MEMBER_PAGE_MAX }
  }

  async revoke(requester: Requester, { members, invites }: FrameOf<'revoke'>): Promise<RevokeReply> {
    const ended = await revokeMembers(this.db, requester, { members, invites })
    if (!ended) return { outcome: 'not_admin' }
    return { outcome: 'done', ended: ended.map((member) => ({ ...member, meshId: requester.meshId })) }
  }

  private check(authority: string, hello: FrameOf<'hello'>, enrol: FrameOf<'enrol'>): Checked | 'invite_refused' {
    const invite = parseInvite(enrol.invite)
    // Ignore the invite's address: a mesh can move, and the transcript contains the dialled one.
    if (!invite || invite.brokerKey !== this.keys.clusterKey) return 'invite_refused'
    const { meshId } = invite
    const transcript = transcriptOf(authority, hello, { ...enrol, meshId, capabilities: [] })
    if (!verifyEnrolment(transcript, enrol, enrol.signature)) return 'invite_refused'
    const binding = bindingOf(enrol, meshId)
    const expected = { meshId, peerKey: enrol.peerKey, nowMs: Date.now() }
    if (checkKeyBinding(binding, expected) !== 'ok') return 'invite_refused'
    const atMs = hello.issuedAtMs
    const certificate = invite.usesMax === 1 ? { bytes: certificateOf({ ...enrol, transcript }), atMs } : null
    return { claim: claimOf(invite), binding, certificate, proof: signAsBroker(this.keys, transcript, enrol.signature) }
  }
}

function claimOf({ meshId, inviteId, bytes, issuer, usesMax, notAfterMs, role }: Invite): VerifiedInvite {
  return { meshId, inviteId, hash: hash256(bytes), issuer, usesMax, notAfterMs, role }
}

function bindingOf(enrol: FrameOf<'enrol'>, meshId: MeshId): KeyBinding {
  const { peerKey, boxKey, boxEpoch, bindingNotAfterMs, bindingSignature } = enrol
  return { meshId, peerKey, boxKey, boxEpoch, notAfterMs: bindingNotAfterMs, signature: bindingSignature }
}
