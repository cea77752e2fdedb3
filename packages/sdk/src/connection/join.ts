/**
 * Joins a mesh with an invite, as a member or as a device of a member (`@sealpost/sdk/join`). Each call uses its own
 * connection. Call `connect` afterwards.
 */
import {
  type AdmissionSecret,
  bindBoxKey,
  checkShardCertificate,
  type DeviceInvite,
  type Identity,
  type Invite,
  normalizeAuthority,
  readAnyInvite,
  readDeviceInvite,
  ready,
  signAdmission,
  signEnrolment,
  type Transcript,
  verifyBroker,
} from '@sealpost/identity'
import {
  BINDING_MS,
  binaryForm,
  type ClientForm,
  type ClientFrame,
  type FrameOf,
  PROTOCOL_VERSIONS,
  type ServerFrame,
} from '@sealpost/protocol'
import {
  asciiName,
  isChosenName,
  type MeshId,
  type Millis,
  NAME_RULE,
  OperatingError,
  type PeerKey,
  tidyName,
  toBase64url,
  unicodeName,
  withResolvers,
} from '@sealpost/std'
import { refusedBy, SealpostError } from '../errors.ts'
import { HttpAccess, type PeerCredentials } from '../http/access.ts'
import { platformWebSocket, type WebSocketConstructor, type WebSocketLike } from '../ports.ts'
import { judgeKey, ShardAddresses, socketUrl } from './addresses.ts'
import { certificateErrorCode, certificateUntrusted } from './certificate-errors.ts'
import { codeOfClose, wrongBroker } from './connection.ts'

export interface JoinOptions {
  readonly invite: string
  readonly identity: Identity
  /** The display name: at most 64 characters in its ASCII form. Default: `peer-` and 8 digits of the peer's key. */
  readonly name?: string
  readonly webSocket?: WebSocketConstructor
  /** Default: the binary form. @internal */
  readonly form?: ClientForm
}

/** Everything that `connect` needs in addition to the identity. */
export interface Membership {
  /** The URL of the invite, or the home to which the broker redirected. */
  readonly url: string
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly name: string
  /** The root of the mesh, if the invite names it. Pass it to `openMemberProofs`. */
  readonly root?: PeerKey
  /** How many revocations the mesh had when the invite was created. Pass it to `openMemberProofs`. */
  readonly revocations?: number
}

const JOIN_WITHIN_MS = 20_000

/**
 * Joins the mesh. If the reply is lost, call again with the same identity; that repeats the same enrolment.
 * @throws SealpostError `invite_malformed`, `name_malformed`, `wrong_broker`; from the broker `invite_refused`
 * (expired, revoked, used up, or for another broker: one code for all), `already_member`, `name_taken`, `revoked`; from
 * this machine `certificate_untrusted`; retryable `connection_lost`, `try_later`, `restarting`, `moved`
 * @example const membership = await join({ invite, identity, name: 'ada' })
 */
export async function join(options: JoinOptions): Promise<Membership> {
  await ready()
  const { identity, form = binaryForm, webSocket = platformWebSocket() } = options
  const { invite, root, revocations, admission } = parsed(options.invite, readAnyInvite)
  const name = chosenName(options.name ?? `peer-${identity.signing.publicKey.slice(0, 8)}`)
  const enrolled = await enrolAt(invite, { identity, form, webSocket }, (transcript) =>
    enrolFrame(invite, identity, { transcript, name }),
  )
  const { brokerKey, meshId } = invite
  const membership = { url: enrolled.url, brokerKey, meshId, name: enrolled.name }
  if (admission) await publishAdmission({ ...membership, identity }, admission)
  return root === null ? membership : { ...membership, root, revocations }
}

const PROOF_PATIENCE_MS = 20_000

/** Proves a membership by an invite of several uses. A broker of an earlier version stores no such proof. */
async function publishAdmission(
  place: PeerCredentials & Pick<Membership, 'name'>,
  secret: AdmissionSecret,
): Promise<void> {
  const terms = { name: asciiName(place.name), atMs: Date.now() }
  const admission = toBase64url(signAdmission(place.identity.signing, secret, terms))
  const access = new HttpAccess(place, { patienceMs: PROOF_PATIENCE_MS })
  try {
    await access.ask({ method: 'PUT', path: '/v1/proofs', json: { admission } })
  } catch (error) {
    if (!(error instanceof SealpostError && UNSUPPORTED.includes(error.code))) throw error
  } finally {
    await access.close()
  }
}

const UNSUPPORTED: readonly string[] = ['not_found', 'body_malformed']

export interface DeviceMembership extends Membership {
  readonly user: PeerKey
  readonly label: string
}

/**
 * Joins as a device of a user, with the user's invite and the device's own keys. If the reply is lost, call again with
 * the same identity; that repeats the same enrolment.
 * @throws SealpostError `invite_malformed`, `wrong_broker`; from the broker `invite_refused` (expired, used, from a
 * user that is not a member, or for another broker: one code for all), `too_many_devices`, `already_member`,
 * `name_taken`, `revoked`; retryable `connection_lost`, `try_later`, `restarting`, `moved`
 * @example const { user, label } = await joinAsDevice({ invite, identity })
 */
export async function joinAsDevice(options: Omit<JoinOptions, 'name'>): Promise<DeviceMembership> {
  await ready()
  const { identity, form = binaryForm, webSocket = platformWebSocket() } = options
  const invite = parsed(options.invite, readDeviceInvite)
  const { url, brokerKey, voucher, root, revocations } = invite
  const { meshId, user, label } = voucher
  const enrolled = await enrolAt({ url, brokerKey, meshId }, { identity, form, webSocket }, (transcript) =>
    enrolDeviceFrame(invite, identity, transcript),
  )
  const membership = { url: enrolled.url, brokerKey, meshId, name: enrolled.name, user, label: unicodeName(label) }
  return root === null ? membership : { ...membership, root, revocations }
}

type Door = Pick<Invite, 'meshId' | 'brokerKey' | 'url'>

/**
 * Enrols at this broker, or at the home that it redirects to.
 * @throws SealpostError `wrong_broker`, `moved` if the redirect can't be followed, and the broker's refusals
 * @internal
 */
export async function enrolAt(
  door: Door,
  { identity, form, webSocket }: Required<Pick<JoinOptions, 'identity' | 'form' | 'webSocket'>>,
  frameFor: (transcript: Transcript) => FrameOf<'enrol' | 'enrolDevice'>,
): Promise<Pick<Membership, 'url' | 'name'>> {
  const addresses = new ShardAddresses([door.url])
  for (;;) {
    const { url } = addresses.current
    const dial = new Dial({ url: socketUrl(url), form, webSocket, withinMs: JOIN_WITHIN_MS })
    try {
      const transcript = await greetingOf(dial, { ...door, url }, identity)
      const frame = frameFor(transcript)
      dial.send(frame)
      const answer = await dial.next('enrolled', 'moved')
      if (!verifyBroker(transcript, frame.signature, answer.proof)) throw wrongBroker()
      if (answer.type === 'enrolled') return { url, name: unicodeName(answer.name) }
      if (!addresses.follow(answer, Date.now())) throw refusedBy('moved')
    } finally {
      dial.close()
    }
  }
}

/** Reads an invite. @throws SealpostError `invite_malformed` */
function parsed<T>(text: string, read: (text: string) => T): T {
  try {
    return read(text)
  } catch (error) {
    if (!(error instanceof OperatingError)) throw error
    throw new SealpostError('invite_malformed', error.message)
  }
}

function chosenName(text: string): string {
  const name = tidyName(text)
  if (isChosenName(name)) return asciiName(name)
  throw new SealpostError('name_malformed', `A name must be ${NAME_RULE}.`)
}

interface Greeting {
  readonly hello: FrameOf<'hello'>
  readonly certificate: Uint8Array | null
}

/**
 * Verifies a greeting and returns the transcript to sign. @throws SealpostError `wrong_broker`, `version_unsupported`,
 * and the errors of `Dial.next`
 */
async function greetingOf(dial: Dial, door: Door, identity: Identity): Promise<Transcript> {
  const first = await dial.next('hello', 'certificate')
  if (first.type === 'hello') return transcriptOf(door, identity, { hello: first, certificate: null })
  return transcriptOf(door, identity, { hello: await dial.next('hello'), certificate: first.certificate })
}

function transcriptOf({ meshId, brokerKey: pinned, url }: Door, identity: Identity, { hello, certificate }: Greeting) {
  const { brokerKey } = hello
  const authority = normalizeAuthority(url)
  const expected = { pinned, brokerKey, authority, certificate, nowMs: Date.now() }
  if (judgeKey(expected, checkShardCertificate) !== 'ok') throw wrongBroker()
  const version = PROTOCOL_VERSIONS.find((own) => hello.versions.includes(own))
  if (version === undefined) throw refusedBy('version_unsupported')
  return {
    version,
    versionsOffered: hello.versions,
    authority,
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

function enrolFrame(
  { bytes }: Invite,
  identity: Identity,
  { transcript, name }: { transcript: Transcript; name: string },
): FrameOf<'enrol'> {
  const { peerKey } = transcript
  return { type: 'enrol', peerKey, invite: bytes, name, ...enrolment({ invite: bytes, name }, identity, transcript) }
}

function enrolDeviceFrame(invite: DeviceInvite, identity: Identity, transcript: Transcript): FrameOf<'enrolDevice'> {
  const statement = invite.statement(identity.signing)
  const { label: name } = invite.voucher
  return { type: 'enrolDevice', statement, ...enrolment({ invite: statement, name }, identity, transcript) }
}

/** Returns the fields that both enrolment frames have: the first key binding, and the signature over everything. */
function enrolment(signed: { invite: Uint8Array; name: string }, identity: Identity, transcript: Transcript) {
  const { version, clientNonce, meshId } = transcript
  const { boxKey, boxEpoch, notAfterMs, signature } = bindBoxKey(identity, meshId, Date.now() + BINDING_MS)
  return {
    ...{ version, clientNonce, boxKey, boxEpoch, bindingNotAfterMs: notAfterMs, bindingSignature: signature },
    signature: signEnrolment(identity.signing, transcript, { ...signed, bindingSignature: signature }),
  }
}

/** Configures a connection for a short exchange of frames. The first failure ends it. */
interface DialOptions {
  readonly url: string
  readonly form: ClientForm
  readonly webSocket: WebSocketConstructor
  /** The time limit from the dial to the last reply. */
  readonly withinMs: Millis
}

class Dial {
  readonly #socket: WebSocketLike
  readonly #form: ClientForm
  readonly #timer: ReturnType<typeof setTimeout>
  readonly #frames: ServerFrame[] = []
  readonly #failure = withResolvers<never>()
  #news = withResolvers<void>()

  constructor({ url, form, webSocket: WebSocket, withinMs }: DialOptions) {
    this.#form = form
    this.#failure.promise.catch(() => undefined) // prevents an unhandled rejection while no caller waits
    this.#timer = setTimeout(() => this.#fail(lost()), withinMs)
    this.#socket = new WebSocket(url, [form.subprotocol])
    this.#socket.binaryType = 'arraybuffer'
    this.#socket.onmessage = ({ data: wire }) => this.#frameReceived(wire)
    this.#socket.onclose = ({ code }) => this.#closed(code)
    this.#socket.onerror = (event: unknown) => {
      const trouble = certificateErrorCode(event)
      if (trouble !== null) this.#fail(certificateUntrusted(trouble)) // a certificate error is more specific than the close code
    }
  }

  send(frame: ClientFrame): void {
    this.#socket.send(this.#form.encode(frame))
  }

  /**
   * Returns the next frame, which must have one of these types. @throws SealpostError with the broker's refusal,
   * `frame_unexpected` for another frame, or `connection_lost`
   */
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

  #frameReceived(wire: unknown): void {
    const bytes = wire instanceof ArrayBuffer ? new Uint8Array(wire) : wire
    const isWire = typeof bytes === 'string' || bytes instanceof Uint8Array
    const decoded = isWire ? this.#form.decode(bytes) : null
    if (!decoded?.ok) return this.#fail(refusedBy('frame_malformed'))
    this.#frames.push(decoded.frame)
    this.#news.resolve()
    this.#news = withResolvers()
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
  return new SealpostError('connection_lost', 'The broker is unreachable, or the connection ended before its reply.', {
    isRetryable: true,
  })
}
