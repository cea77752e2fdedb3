/** Encodes the state of a ratchet session for a store. The bytes are secret and not encrypted. */
import { assert, fromHex, toHex } from '@sealpost/std'
import { concatBytes, type FieldReader, lengthPrefixed, u16, u32, u64, writeU32 } from '../byte-fields.ts'
import { KEY_BYTES } from './ratchet-crypto.ts'
import type { OfferedKey, RatchetSession } from './ratchet-session.ts'
import type { ReceivingChain, ReceivingChains } from './receiving-chains.ts'

const NOTHING = new Uint8Array(0)
/** Stands for null where a length is expected. */
const UNKNOWN = 0xffffffff
const STANDINGS = ['usable', 'doubtful', 'lost'] as const

/** Encodes everything but the sending chain, which no other process may continue. */
export function encodeSession(state: RatchetSession): Uint8Array {
  const { spent, parent } = state
  return concatBytes([
    ...[fromHex(state.sessionId), u64(state.atMs), u16(state.isInitiator ? 1 : 0), state.binding, state.headerKey],
    lengthPrefixed(state.initiation ?? NOTHING),
    ...(spent ? [u16(1), u32(spent.prekeyId), u32(spent.oneTimeId)] : [u16(0)]),
    ...[u32(state.lastChain), u32(state.lastLength), u32(state.highest), u32(state.highestParent)],
    u16(state.isResetHeard ? 1 : 0),
    u16(STANDINGS.indexOf(state.standing)),
    ...(parent ? [u16(1), u32(parent.chain), parent.publicKey, parent.base, u32(parent.nextFork)] : [u16(0)]),
    ...list(state.offers, encodeOffer),
    ...encodeReceiving(state.receiving),
    ...list(state.unseen, ({ length, sinceMs }) => [u32(length ?? UNKNOWN), u64(sinceMs)]),
    ...encodeEnded(state),
  ])
}

export function encodeReceiving(receiving: ReceivingChains['receiving']): Uint8Array[] {
  return list(receiving, encodeChain)
}

/** Encodes the closed chains, and the messages whose keys were deleted early. */
export function encodeEnded({ closed, gone, goneBelow }: ReceivingChains): Uint8Array[] {
  return [
    ...[u32(closed.size), u32s([...closed].flatMap(([chain, { tag, length }]) => [chain, tag, length]))],
    ...[u32(goneBelow), u32(gone.length), u32s(gone.flatMap(({ chain, from, to }) => [chain, from, to]))],
  ]
}

function u32s(values: readonly number[]): Uint8Array {
  const bytes = new Uint8Array(4 * values.length)
  for (const [i, value] of values.entries()) writeU32(bytes, 4 * i, value)
  return bytes
}

export function list<Value>(values: ReadonlyMap<number, Value>, encode: (value: Value) => Uint8Array[]): Uint8Array[] {
  return [u32(values.size), ...[...values].flatMap(([number, value]) => [u32(number), ...encode(value)])]
}

function encodeOffer({ secretKey, base, nextFork, seeds }: OfferedKey): Uint8Array[] {
  return [secretKey, base, u32(nextFork), ...list(seeds, (seed) => [seed])]
}

function encodeChain({ id, key, next, keys, touchedMs }: ReceivingChain): Uint8Array[] {
  const head = [id, lengthPrefixed(key ?? NOTHING), u32(next), u64(touchedMs)]
  return [...head, ...list(keys, (known) => [u16(known.isOpened ? 1 : 0), known.key])]
}

/** Reads what `encodeSession` wrote. Check that the reader is at its end afterwards. */
export function decodeSession(fields: FieldReader): RatchetSession {
  const key = () => fields.take(KEY_BYTES).slice()
  const sessionId = toHex(fields.take(10))
  const head = { sessionId, atMs: fields.u64(), isInitiator: fields.u16() === 1, binding: key(), headerKey: key() }
  const initiation = optional(fields.prefixed())
  const spent = fields.u16() === 1 ? { prekeyId: fields.u32(), oneTimeId: fields.u32(), sessionId } : null
  const numbers = { lastChain: fields.u32(), lastLength: fields.u32(), highest: fields.u32() }
  const highestParent = fields.u32()
  const isResetHeard = fields.u16() === 1
  const standing = STANDINGS[fields.u16()]!
  const hasParent = fields.u16() === 1
  const parent = hasParent ? { chain: fields.u32(), publicKey: key(), base: key(), nextFork: fields.u32() } : null
  const offers = map(fields, () => ({
    ...{ secretKey: key(), base: key(), nextFork: fields.u32() },
    seeds: map(fields, key),
  }))
  const receiving = decodeReceiving(fields)
  const unseen = map(fields, () => {
    const length = fields.u32()
    return { length: length === UNKNOWN ? null : length, sinceMs: fields.u64() }
  })
  const seen = { highestParent, isResetHeard, standing, receiving, unseen, ...decodeEnded(fields) }
  return { ...head, initiation, spent, ...numbers, sending: null, parent, offers, ...seen }
}

export function decodeReceiving(fields: FieldReader): ReceivingChains['receiving'] {
  return map(fields, () => decodeChain(fields))
}

/** Reads what `encodeEnded` wrote. */
export function decodeEnded(fields: FieldReader): Pick<ReceivingChains, 'closed' | 'gone' | 'goneBelow'> {
  const closed = map(fields, () => ({ tag: fields.u32(), length: fields.u32() }))
  const goneBelow = fields.u32()
  const gone = Array.from({ length: fields.u32() }, () => ({
    ...{ chain: fields.u32(), from: fields.u32(), to: fields.u32() },
  }))
  return { closed, gone, goneBelow }
}

function decodeChain(fields: FieldReader): ReceivingChain {
  const key = () => fields.take(KEY_BYTES).slice()
  const id = key()
  const chainKey = optional(fields.prefixed())
  const [next, touchedMs] = [fields.u32(), fields.u64()]
  const keys = map(fields, () => ({ isOpened: fields.u16() === 1, key: key() }))
  return { id, key: chainKey, next, keys, touchedMs }
}

export function map<Value>(fields: FieldReader, decode: () => Value): Map<number, Value> {
  const count = fields.u32()
  const values = new Map<number, Value>()
  for (let i = 0; i < count; i++) {
    const number = fields.u32()
    assert(!values.has(number), 'a number occurs once in a record')
    values.set(number, decode())
  }
  return values
}

function optional(bytes: Uint8Array): Uint8Array | null {
  return bytes.length === 0 ? null : bytes.slice()
}
