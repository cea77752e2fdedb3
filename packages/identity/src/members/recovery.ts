/**
 * Signs and reads the two statements with which a device certifies a successor of a lost identity key (docs/adr/0016).
 *
 * A user's *heir statement* names the devices that may do so. Bytes: lp(mesh id), lp(user), u32 epoch, u16 count, then
 * lp(device key) and lp(label) of each heir, then the user's signature over the context `sealpost-heirs/1` and these fields.
 *
 * A *recovery* names the successor. Bytes: lp(heir statement), lp(heir), lp(successor), u64 atMs, then the signatures of the
 * heir and of the successor over the context `sealpost-recovery/1` and these fields. It contains the whole heir statement, so
 * it can be verified alone. Vector: packages/protocol/vectors/recovery.json.
 */
import { assert, fromHex, isHex, type MeshId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u32, u64, utf8 } from '../byte-fields.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'
import { isDeviceLabel } from './enrolment.ts'

export interface Heir {
  readonly device: PeerKey
  /** 1 to 32 characters of printable ASCII, no `/`. */
  readonly label: string
}

export interface HeirStatement {
  readonly meshId: MeshId
  readonly user: PeerKey
  /** Only increases. The statement with the highest epoch counts. */
  readonly epoch: number
  /** At most `HEIRS_MAX` devices of the user; empty if none may certify a successor. */
  readonly heirs: readonly Heir[]
}

export interface Recovery extends Pick<HeirStatement, 'meshId' | 'epoch'> {
  /** The lost identity key. */
  readonly former: PeerKey
  readonly successor: PeerKey
  readonly heir: Heir
  /** When the heir signed, by its clock. */
  readonly atMs: Millis
  /** The bytes of the heir statement that the recovery contains. */
  readonly heirs: Uint8Array
}

export const HEIRS_MAX = 4
/** The maximum size of a recovery. */
export const RECOVERY_BYTES_MAX = 1024

const HEIRS = 'sealpost-heirs/1'
const RECOVERY = 'sealpost-recovery/1'

/** @throws AssertionError unless the statement is valid */
export function signHeirs(user: SigningKeys, statement: Omit<HeirStatement, 'user'>): Uint8Array {
  const claim = { ...statement, user: user.publicKey }
  assert(isHeirStatement(claim), 'an heir statement has a mesh, an epoch and up to four devices of the user')
  const fields = heirFields(claim)
  return concatBytes([fields, sign(user, concatBytes([context(HEIRS), fields]))])
}

/** Reads an heir statement. Returns null unless its user signed it. Never throws. */
export function readHeirs(bytes: Uint8Array): HeirStatement | null {
  const reader = new FieldReader(bytes)
  const head = {
    meshId: toHex(reader.prefixed()) as MeshId,
    user: toHex(reader.prefixed()) as PeerKey,
    epoch: reader.u32(),
  }
  const count = reader.u16()
  if (count > HEIRS_MAX) return null
  const heirs = Array.from({ length: count }, () => ({
    device: toHex(reader.prefixed()) as PeerKey,
    label: String.fromCharCode(...reader.prefixed().subarray(0, LABEL_BYTES_READ)),
  }))
  const signature = reader.take(SIGNATURE_BYTES)
  const statement = { ...head, heirs }
  if (!reader.isAtEnd || !isHeirStatement(statement)) return null
  const signed = concatBytes([context(HEIRS), heirFields(statement)])
  return verify(statement.user, signed, signature) ? statement : null
}

/** Longer than a label, so that a longer one is refused and not cut. */
const LABEL_BYTES_READ = 64

/**
 * Certifies a successor, as an heir.
 * @throws AssertionError unless `heirs` is a statement that names the heir
 */
export function signRecovery(
  { heir, successor }: { heir: SigningKeys; successor: SigningKeys },
  { heirs, atMs }: { heirs: Uint8Array; atMs: Millis },
): Uint8Array {
  const fields = concatBytes([
    ...[heirs, fromHex(heir.publicKey), fromHex(successor.publicKey)].map(lengthPrefixed),
    u64(atMs),
  ])
  const text = concatBytes([context(RECOVERY), fields])
  const bytes = concatBytes([fields, sign(heir, text), sign(successor, text)])
  assert(readRecovery(bytes), 'an heir certifies a new key for the user that named the heir')
  return bytes
}

/**
 * Reads a recovery. Returns null unless the user named the heir, and the heir and the successor signed. The caller checks
 * that no newer heir statement is known. Never throws.
 */
export function readRecovery(bytes: Uint8Array): Recovery | null {
  if (bytes.length > RECOVERY_BYTES_MAX) return null
  const reader = new FieldReader(bytes)
  const heirBytes = reader.prefixed()
  const heirs = readHeirs(heirBytes)
  const device = toHex(reader.prefixed()) as PeerKey
  const successor = toHex(reader.prefixed()) as PeerKey
  const atMs = reader.u64()
  const [byHeir, bySuccessor] = [reader.take(SIGNATURE_BYTES), reader.take(SIGNATURE_BYTES)]
  const heir = heirs?.heirs.find((each) => each.device === device)
  if (!reader.isAtEnd || !heirs || !heir || !isHex(successor, 32)) return null
  if (!isUnsigned(atMs, Number.MAX_SAFE_INTEGER) || successor === heirs.user || successor === device) return null
  const text = concatBytes([context(RECOVERY), bytes.subarray(0, bytes.length - 2 * SIGNATURE_BYTES)])
  if (!verify(device, text, byHeir) || !verify(successor, text, bySuccessor)) return null
  return {
    meshId: heirs.meshId,
    epoch: heirs.epoch,
    former: heirs.user,
    successor,
    heir,
    atMs,
    heirs: heirBytes.slice(),
  }
}

function isHeirStatement({ meshId, user, epoch, heirs }: HeirStatement): boolean {
  const keys = new Set(heirs.map(({ device }) => device))
  if (!isHex(meshId, 16) || !isHex(user, 32) || !isUnsigned(epoch, 0x7fffffff) || epoch === 0) return false
  if (keys.size < heirs.length || heirs.length > HEIRS_MAX || keys.has(user)) return false
  return heirs.every(({ device, label }) => isHex(device, 32) && isDeviceLabel(label))
}

function heirFields({ meshId, user, epoch, heirs }: HeirStatement): Uint8Array {
  return concatBytes([
    ...[fromHex(meshId), fromHex(user)].map(lengthPrefixed),
    u32(epoch),
    u16(heirs.length),
    ...heirs.flatMap(({ device, label }) => [fromHex(device), utf8(label)]).map(lengthPrefixed),
  ])
}
