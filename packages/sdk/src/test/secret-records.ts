/** Makes secret records, and reads the versions of them that a thief finds in the files of a store. */
import { createDecipheriv } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { type EnvelopeId, type PeerKey, toHex } from '@sealpost/std'
import { decodeChanges } from '../stores/file/journal.ts'
import type { EncryptedRecord } from '../stores/file/secret-segments.ts'
import { type PeerStore, SECRET_PREFIX, type StoreChange } from '../stores/store.ts'

const JOURNAL_HEAD_BYTES = 36
const FRAME_HEAD_BYTES = 8
const BLOCK_BYTES = 4096
const BOB = 'b'.repeat(64) as PeerKey

/** A secret record. All its bytes are the version. */
export function secret(name: string, version: number, byteCount = 20): StoreChange {
  return put(`${SECRET_PREFIX}${name}`, version, byteCount)
}

/** A record that is secret if its key has the prefix. */
export function put(key: string, version: number, byteCount = 20): StoreChange {
  const envelopeId = '7'.repeat(32) as EnvelopeId
  return { key, record: { kind: 'sealed', envelopeId, admittedAtMs: 0, ...outgoing(version, byteCount) } }
}

export function unsealed(key: string, version: number, byteCount = 20): StoreChange {
  return { key, record: { kind: 'waiting', ...outgoing(version, byteCount) } }
}

function outgoing(version: number, byteCount: number) {
  const terms = { to: BOB, priority: 'next', ttlSeconds: 0 } as const
  return { outboxNo: version, terms, bytes: new Uint8Array(byteCount).fill(version) }
}

export function gone(name: string): StoreChange {
  return { key: `${SECRET_PREFIX}${name}`, record: null }
}

export const versionOf = ({ record }: Pick<StoreChange, 'record'>) => (record as { outboxNo: number }).outboxNo

/** Returns the versions of all records, in ascending order. */
export async function versionsIn(store: Pick<PeerStore, 'load'>): Promise<number[]> {
  return (await store.load()).map((record) => versionOf({ record })).sort((a, b) => a - b)
}

/** Returns the versions of secret records that a thief of these files can read, in ascending order. */
export function stolenFrom(files: readonly Uint8Array[]): number[] {
  const stolen = stolenVersions(files).filter(({ key, record }) => key.startsWith(SECRET_PREFIX) && record)
  return [...new Set(stolen.map(versionOf))].sort((a, b) => a - b)
}

/** Returns every version of every record that can be read. `files` contains journals and files of keys, in any order. */
export function stolenVersions(files: readonly Uint8Array[]): StoreChange[] {
  const keys = new Map(files.flatMap(keysIn))
  return files.flatMap(batchesIn).flatMap((batch) =>
    decodeChanges(batch).flatMap(({ key, record }) => {
      if (record?.kind !== 'secret') return [{ key, record }]
      const cipherKey = keys.get(record.segment)
      return cipherKey ? (decodeChanges(decrypted(record, cipherKey)) as StoreChange[]) : []
    }),
  )
}

function keysIn(file: Uint8Array): [id: string, cipherKey: Uint8Array][] {
  const entries: Uint8Array[] = []
  for (let at = 0; at + 44 <= file.length; at += BLOCK_BYTES) entries.push(file.slice(at, at + 44))
  const whole = entries.filter((entry) => new DataView(entry.buffer).getUint32(40) === crc32(entry.subarray(0, 40)))
  return whole.map((entry) => [toHex(entry.subarray(0, 8)), entry.slice(8, 40)])
}

function batchesIn(file: Uint8Array): Uint8Array[] {
  const batches: Uint8Array[] = []
  if (new TextDecoder().decode(file.subarray(0, 16)) !== 'sealpost store 1') return []
  const view = new DataView(file.buffer, file.byteOffset, file.length)
  for (let at = JOURNAL_HEAD_BYTES; at + FRAME_HEAD_BYTES < file.length; ) {
    const end = at + FRAME_HEAD_BYTES + view.getUint32(at)
    const batch = file.subarray(at + FRAME_HEAD_BYTES, end)
    if (end > file.length || crc32(batch, crc32(placeOf(at), crc32(file.subarray(16, 32)))) !== view.getUint32(at + 4))
      break
    batches.push(batch)
    at = end
  }
  return batches
}

function placeOf(at: number): Uint8Array {
  const place = new Uint8Array(8)
  new DataView(place.buffer).setFloat64(0, at)
  return place
}

function decrypted({ bytes }: EncryptedRecord, cipherKey: Uint8Array): Uint8Array {
  const decipher = createDecipheriv('aes-256-gcm', cipherKey, bytes.subarray(0, 12))
  decipher.setAuthTag(bytes.subarray(bytes.length - 16))
  return new Uint8Array(Buffer.concat([decipher.update(bytes.subarray(12, -16)), decipher.final()]))
}
