/**
 * Records as bytes: for each change its length and that of its bytes (u32, big-endian), then the key and the fields as
 * JSON, then the bytes as they are. Fields that later versions add are read by earlier ones without harm.
 */
import type { StoreChange, StoreRecord } from '../../store.ts'

const HEAD_BYTES = 8
const NO_BYTES = new Uint8Array(0)
const encoder = new TextEncoder()
const decoder = new TextDecoder()

export function encodeChange({ key, record }: StoreChange): Uint8Array {
  const { bytes = NO_BYTES, ...fields } = (record ?? {}) as { bytes?: Uint8Array }
  const text = encoder.encode(JSON.stringify({ key, fields: record ? fields : null }))
  const whole = new Uint8Array(HEAD_BYTES + text.length + bytes.length)
  const view = new DataView(whole.buffer)
  view.setUint32(0, text.length)
  view.setUint32(4, bytes.length)
  whole.set(text, HEAD_BYTES)
  whole.set(bytes, HEAD_BYTES + text.length)
  return whole
}

/** Reads what `encodeChange` wrote, one after the other; its checksum was checked before. */
export function decodeChanges(batch: Uint8Array): StoreChange[] {
  const view = new DataView(batch.buffer, batch.byteOffset, batch.length)
  const changes: StoreChange[] = []
  for (let at = 0; at < batch.length; ) {
    const bytesAt = at + HEAD_BYTES + view.getUint32(at)
    const end = bytesAt + view.getUint32(at + 4)
    const { key, fields } = JSON.parse(decoder.decode(batch.subarray(at + HEAD_BYTES, bytesAt)))
    // A copy: otherwise one small body would hold the whole file in memory.
    const record = end > bytesAt ? { ...fields, bytes: batch.slice(bytesAt, end) } : fields
    changes.push({ key, record: isEmptyBody(record) ? { ...record, bytes: NO_BYTES } : record })
    at = end
  }
  return changes
}

function isEmptyBody(record: StoreRecord | null): boolean {
  return record?.kind === 'waiting' && !record.bytes
}
