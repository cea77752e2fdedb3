/**
 * Keeps the keys of a session in its folder, and the certificate: the statement that the session belongs to its member.
 * Enrols new keys, and renews the certificate before it expires (docs/adr/0013-sessions.md, rule 2).
 */
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  createDeviceInvite,
  type DeviceStatement,
  generateIdentity,
  type Identity,
  normalizeAuthority,
  readDevice,
  readDeviceInvite,
} from '@sealpost/identity'
import { type PeerKeyFile, readKeyFile, replaceKeyFile } from '@sealpost/identity/key-file'
import { asciiName, type Millis, OperatingError, type PeerKey } from '@sealpost/std'
import { joinAsDevice } from '../connection/join.ts'
import { clockMs } from '../driver.ts'
import { SealpostError } from '../errors.ts'
import { type ConnectOptions, type Peer, portsOf } from '../peer.ts'
import { deleteFileStore } from '../stores/file/file-store.ts'

/** Where a session is enrolled, and the member that vouches for it. */
export interface CertifyOptions extends Pick<ConnectOptions, 'url' | 'brokerKey' | 'meshId' | 'webSocket'> {
  readonly member: { readonly identity: Identity; readonly formerKeys?: readonly PeerKey[] }
  readonly passphrase?: string | undefined
}

interface KeyPlace {
  readonly folder: string
  readonly label: string
}

/** The keys of a session, and the certificate in its folder: null if an earlier version enrolled the keys. */
export interface CertifiedKeys {
  readonly keys: PeerKeyFile
  readonly certificate: DeviceStatement | null
}

/** A certificate that expires within this time is renewed at the next start. */
const RENEW_BEFORE_MS: Millis = 30 * 24 * 3600_000

/** Returns the path of the session's own mail. */
export const storeOf = ({ folder }: Pick<KeyPlace, 'folder'>): string => join(folder, 'messages')

const keyFileOf = ({ folder }: Pick<KeyPlace, 'folder'>): string => join(folder, 'key.json')

const certificateFileOf = ({ folder }: Pick<KeyPlace, 'folder'>): string => join(folder, 'certificate')

/**
 * Deletes the mail and the keys of a session that has been ended, so that its label can be enrolled again. The keys are
 * deleted last: new keys could not open the mail, and a crash in between leaves keys that the broker refuses again.
 */
export async function clearSlot(place: Pick<KeyPlace, 'folder'>): Promise<void> {
  await deleteFileStore(storeOf(place))
  for (const path of [certificateFileOf(place), keyFileOf(place)]) await rm(path, { force: true })
}

/**
 * Returns the keys of the session. Generates and enrols them if necessary, and renews a certificate that expires soon.
 * @throws SealpostError `session_foreign`, `certificate_expired`, and the errors of `joinAsDevice`
 */
export async function certifiedKeys(place: KeyPlace, options: CertifyOptions): Promise<CertifiedKeys> {
  const known = await existingKeys(place, options)
  const keys: PeerKeyFile = known ?? {
    ...{ kind: 'peer', identity: generateIdentity(), formerBoxKeys: [], enrolment: null },
  }
  // The keys are stored before the enrolment, so that a crash does not lose enrolled keys.
  if (!known) await writeKeys(place, keys, options) // a crash leaves no incomplete file
  if (!keys.enrolment) return enrolledKeys(place, keys, options)
  return { keys, certificate: await validCertificate(place, keys, options) }
}

/**
 * Returns the certificate of enrolled keys; null if an earlier version enrolled them. Renews one that expires soon.
 * @throws SealpostError `session_foreign`, `certificate_expired`, and the errors of `joinAsDevice`
 */
export async function validCertificate(
  place: KeyPlace,
  keys: PeerKeyFile,
  options: CertifyOptions,
): Promise<DeviceStatement | null> {
  const certificate = await ownCertificate(place, keys.identity, options)
  if (!certificate || !expiresBefore(certificate, RENEW_BEFORE_MS)) return certificate
  return renewed(place, { keys, certificate }, options)
}

/** Returns the keys of the session; null if it has none yet. */
export async function existingKeys(
  place: Pick<KeyPlace, 'folder'>,
  { passphrase }: Pick<CertifyOptions, 'passphrase'>,
): Promise<PeerKeyFile | null> {
  const path = keyFileOf(place)
  try {
    const { contents } = await readKeyFile(path, passphrase === undefined ? undefined : () => passphrase)
    if (contents.kind === 'peer') return contents
    throw new OperatingError('key_file_wrong_kind', `The file ${path} is not the key file of a session.`)
  } catch (error) {
    if (error instanceof OperatingError && error.code === 'key_file_missing') return null
    throw error
  }
}

/**
 * Stores the certificate of a session that an earlier version enrolled. Returns an error if the certificate names
 * another member. Waits until the peer is online.
 */
export async function fetchCertificate(
  place: KeyPlace,
  peer: Peer,
  options: Pick<CertifyOptions, 'member'>,
): Promise<SealpostError | null> {
  const { statements } = await portsOf(peer).ask({ type: 'devices', peers: [peer.key] })
  const certificate = statements.map(readDevice).find((statement) => statement?.device === peer.key)
  if (!certificate) return null
  if (!isOf(certificate, options)) return foreign(place)
  await writeCertificate(place, certificate.bytes)
  return null
}

/**
 * Leaves the folder so that the next start works, after the broker has ended the session. The broker reports an expired
 * certificate as `revoked`, so this tries to renew it. Returns the error to report.
 */
export async function endedByBroker(
  { keys, ...place }: KeyPlace & Pick<CertifiedKeys, 'keys'>,
  error: SealpostError,
  options: CertifyOptions,
): Promise<SealpostError> {
  // The broker does not know the session, for example because its database was restored.
  if (error.code === 'auth_failed') await writeKeys(place, { ...keys, enrolment: null }, options)
  if (error.code !== 'revoked') return error
  const failure = await enrol(place, keys.identity, options).then(
    () => null,
    (reason: unknown) => (reason instanceof SealpostError ? reason : error),
  )
  if (failure?.code === 'revoked') await clearSlot(place)
  return failure === null || isUnrenewable(failure) ? expired(place.label, failure) : error
}

async function enrolledKeys(place: KeyPlace, keys: PeerKeyFile, options: CertifyOptions): Promise<CertifiedKeys> {
  const { enrolment, certificate } = await enrol(place, keys.identity, options).catch(alreadyEnrolled(options))
  const certified = { ...keys, enrolment }
  await writeKeys(place, certified, options)
  return { keys: certified, certificate }
}

/** An earlier process has enrolled these keys, and ended before it noted that. */
const alreadyEnrolled =
  (options: CertifyOptions) =>
  (error: unknown): Enrolled => {
    if (!(error instanceof SealpostError && error.code === 'already_member')) throw error
    return { enrolment: enrolmentAt(urlsOf(options)[0]!, options), certificate: null }
  }

async function renewed(
  place: KeyPlace,
  { keys, certificate }: { readonly keys: PeerKeyFile; readonly certificate: DeviceStatement },
  options: CertifyOptions,
): Promise<DeviceStatement | null> {
  try {
    return (await enrol(place, keys.identity, options)).certificate
  } catch (error) {
    if (!expiresBefore(certificate, 0)) return certificate // the next start tries again
    throw error instanceof SealpostError && isUnrenewable(error) ? expired(place.label, error) : error
  }
}

/** An earlier version of the broker renews no certificates and replies `already_member`. */
const isUnrenewable = ({ code }: SealpostError): boolean => code === 'already_member' || code === 'too_many_devices'

interface Enrolled {
  readonly enrolment: PeerKeyFile['enrolment']
  readonly certificate: DeviceStatement | null
}

/** Enrols the keys, or renews their certificate. */
async function enrol(place: KeyPlace, identity: Identity, options: CertifyOptions): Promise<Enrolled> {
  let failure: unknown
  for (const url of urlsOf(options)) {
    try {
      const statement = await enrolAt(url, identity, { ...options, label: place.label })
      await writeCertificate(place, statement)
      return { enrolment: enrolmentAt(url, options), certificate: readDevice(statement) }
    } catch (error) {
      failure = error
      if (!(error instanceof SealpostError && error.code === 'connection_lost')) break
    }
  }
  throw failure
}

const urlsOf = ({ url }: CertifyOptions): readonly string[] => (typeof url === 'string' ? [url] : url)

function enrolmentAt(url: string, { brokerKey, meshId }: CertifyOptions): PeerKeyFile['enrolment'] {
  return { meshId, authority: normalizeAuthority(url), brokerKey }
}

/** Returns the statement that the member and the session have signed. */
async function enrolAt(
  url: string,
  identity: Identity,
  { member, meshId, brokerKey, label, webSocket }: CertifyOptions & { readonly label: string },
): Promise<Uint8Array> {
  const invite = createDeviceInvite(member.identity.signing, { meshId, url, brokerKey, label: asciiName(label) })
  try {
    await joinAsDevice({ invite, identity, ...(webSocket && { webSocket }) })
    return readDeviceInvite(invite).statement(identity.signing)
  } catch (error) {
    throw error instanceof SealpostError && error.code === 'invite_refused' ? certificateRefused(error) : error
  }
}

async function writeKeys(
  place: Pick<KeyPlace, 'folder'>,
  keys: PeerKeyFile,
  { passphrase }: Pick<CertifyOptions, 'passphrase'>,
): Promise<void> {
  await replaceKeyFile(keyFileOf(place), keys, passphrase === undefined ? null : { passphrase })
}

/**
 * Returns the certificate in the folder; null if there is none for these keys. @throws SealpostError `session_foreign`
 */
export async function ownCertificate(
  place: KeyPlace,
  identity: Identity,
  options: Pick<CertifyOptions, 'member'>,
): Promise<DeviceStatement | null> {
  const certificate = await readCertificate(place, identity)
  if (certificate && !isOf(certificate, options)) throw foreign(place)
  return certificate
}

async function readCertificate(
  place: Pick<KeyPlace, 'folder'>,
  { signing }: Pick<Identity, 'signing'>,
): Promise<DeviceStatement | null> {
  const bytes = await readFile(certificateFileOf(place)).catch(() => null)
  const certificate = bytes && readDevice(bytes)
  return certificate?.device === signing.publicKey ? certificate : null
}

async function writeCertificate(place: Pick<KeyPlace, 'folder'>, statement: Uint8Array): Promise<void> {
  const path = certificateFileOf(place)
  await writeFile(`${path}.new`, statement, { mode: 0o600 })
  await rename(`${path}.new`, path)
}

const isOf = ({ user }: DeviceStatement, { member }: Pick<CertifyOptions, 'member'>): boolean =>
  user === member.identity.signing.publicKey || (member.formerKeys ?? []).includes(user)

const expiresBefore = ({ notAfterMs }: DeviceStatement, withinMs: Millis): boolean => notAfterMs < clockMs() + withinMs

function foreign({ folder, label }: KeyPlace): SealpostError {
  return new SealpostError(
    'session_foreign',
    `The certificate of the session ${label} names another member. Delete the folder ${folder}, or choose another name.`,
  )
}

function expired(label: string, cause: SealpostError | null): SealpostError {
  const advice = cause
    ? 'This broker could not renew it. Update the broker, or end a session that you no longer need. The mail of the session is kept.'
    : 'It has been renewed. Start the session again.'
  return new SealpostError('certificate_expired', `The certificate of the session ${label} has expired. ${advice}`, {
    cause,
  })
}

function certificateRefused(cause: unknown): SealpostError {
  return new SealpostError(
    'invite_refused',
    'The broker refused the certificate of this session, because the member was revoked, or because the clock of this machine is wrong.',
    { cause },
  )
}
