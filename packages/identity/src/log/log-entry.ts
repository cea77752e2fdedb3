/**
 * Defines the entries of a mesh's log: a byte for the kind of the statement, then the statement. The numbers are also in
 * `packages/schema/migrations/0007_transparent_log.sql`.
 */
import { fromHex, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, FieldReader, lengthPrefixed, u32, u64 } from '../byte-fields.ts'
import { checkKeyBinding, type KeyBinding, readIdentityRotation } from '../keys/key-binding.ts'
import { SIGNATURE_BYTES } from '../keys/keys.ts'
import { readAdmission } from '../members/admission.ts'
import { readCertificate, readEndorsement, readRevocation } from '../members/certificate.ts'
import { readDevice, readRemoval } from '../members/enrolment.ts'
import { readGroup, readPool } from '../members/group.ts'
import { readHeirs, readRecovery } from '../members/recovery.ts'
import { leafHash } from './merkle-tree.ts'

export const ENTRY_KINDS = {
  binding: 1,
  device: 2,
  removal: 3,
  succession: 4,
  group: 5,
  pool: 6,
  certificate: 7,
  endorsement: 8,
  revocation: 9,
  root: 10,
  admission: 11,
  heirs: 12,
  recovery: 13,
} as const

export type EntryKind = keyof typeof ENTRY_KINDS

export interface LogEntry {
  readonly kind: EntryKind
  readonly statement: Uint8Array
}

const NAMES = new Map(Object.entries(ENTRY_KINDS).map(([name, number]) => [number as number, name as EntryKind]))

/** Returns the kind with this number, or null if this version knows none. */
export const entryKindOf = (number: number): EntryKind | null => NAMES.get(number) ?? null

/** Returns the hash of an entry as a leaf of the tree. A kind that this version does not know is its number, as text. */
export const entryLeaf = ({ kind, statement }: { kind: string; statement: Uint8Array }): Uint8Array =>
  leafHash(concatBytes([Uint8Array.of(ENTRY_KINDS[kind as EntryKind] ?? Number(kind)), statement]))

/**
 * Returns a key binding as the log contains it: lp(mesh id), lp(peer key), lp(box key), u32 epoch, u64 notAfterMs, then
 * the signature.
 */
export function keyBindingStatement({
  meshId,
  peerKey,
  boxKey,
  boxEpoch,
  notAfterMs,
  signature,
}: KeyBinding): Uint8Array {
  const fields = [fromHex(meshId), fromHex(peerKey), boxKey].map(lengthPrefixed)
  return concatBytes([...fields, u32(boxEpoch), u64(notAfterMs), signature])
}

/** Reads a key binding. Returns null unless its peer signed it; it may have expired. Never throws. */
export function readKeyBindingStatement(bytes: Uint8Array): KeyBinding | null {
  const reader = new FieldReader(bytes)
  const binding: KeyBinding = {
    meshId: toHex(reader.prefixed()) as MeshId,
    peerKey: toHex(reader.prefixed()) as PeerKey,
    boxKey: reader.prefixed(),
    boxEpoch: reader.u32(),
    notAfterMs: reader.u64(),
    signature: reader.take(SIGNATURE_BYTES),
  }
  const { meshId, peerKey } = binding
  if (!reader.isAtEnd) return null
  return checkKeyBinding(binding, { meshId, peerKey, nowMs: 0 }) === 'ok' ? binding : null
}

const ROOT_BYTES = 32
const READERS: Readonly<Record<Exclude<EntryKind, 'root'>, (bytes: Uint8Array) => { readonly meshId: MeshId } | null>> =
  {
    binding: readKeyBindingStatement,
    device: readDevice,
    removal: readRemoval,
    succession: readIdentityRotation,
    group: readGroup,
    pool: readPool,
    certificate: readCertificate,
    endorsement: readEndorsement,
    revocation: readRevocation,
    admission: readAdmission,
    heirs: readHeirs,
    recovery: readRecovery,
  }

/** Returns whether the statement is one of this mesh, and has every signature that its kind needs. Never throws. */
export function isEntrySigned({ kind, statement }: LogEntry, meshId: MeshId): boolean {
  if (kind === 'root') return statement.length === ROOT_BYTES // has no signature
  return READERS[kind](statement)?.meshId === meshId
}
