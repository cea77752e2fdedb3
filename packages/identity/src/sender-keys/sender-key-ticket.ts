/**
 * Encodes what each recipient of a message under a sender key gets in its envelope (docs/adr/0025-sender-keys.md).
 * Big-endian:
 *     ticket:        version u8 (1), chain id 32, number u32, body id 32, [distribution]
 *     distribution:  a ratcheted message, whose text is "sealpost-sender-key/1" || 0, mesh id 16, lp(audience),
 *                    priority u16, chain id 32, number u32, chain key 32
 *
 * The ticket contains no key. The key of the body is in the chain of the sender.
 */
import { fromHex, type GroupId, holdsBytes, type MeshId, type PoolId, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, lengthPrefixed, u16, u32 } from '../byte-fields.ts'
import { KEY_BYTES } from '../ratchet/ratchet-crypto.ts'
import { CHAIN_MAX } from '../ratchet/receiving-chains.ts'

/** The messages that share sender keys. */
export interface SenderKeyScope {
  readonly meshId: MeshId
  readonly audience: GroupId | PoolId
  readonly priority: number
}

/** Names a message of one sender. */
export interface SenderKeyPlace {
  /** 64 hex digits. */
  readonly chainId: string
  /** The number of the message in its chain, from 0. */
  readonly number: number
}

export interface SenderKeyTicket extends SenderKeyPlace {
  readonly bodyId: Uint8Array
  /** A ratcheted message. Null if the recipient has confirmed that it has the chain. */
  readonly distribution: Uint8Array | null
}

/** The key of a chain from this number on. */
export interface SenderKeyDistribution extends SenderKeyPlace {
  readonly key: Uint8Array
}

const VERSION = 1
const LABEL = context('sealpost-sender-key/1')
const TICKET_BYTES = 1 + KEY_BYTES + 4 + 32

export function encodeTicket({ chainId, number, bodyId, distribution }: SenderKeyTicket): Uint8Array {
  const rest = distribution ? [distribution] : []
  return concatBytes([Uint8Array.of(VERSION), fromHex(chainId), u32(number), bodyId, ...rest])
}

/** Returns null unless the bytes have the form of a ticket. */
export function readTicket(bytes: Uint8Array): SenderKeyTicket | null {
  if (bytes.length < TICKET_BYTES || bytes[0] !== VERSION) return null
  const fields = new FieldReader(bytes.subarray(1))
  const ticket = { chainId: toHex(fields.take(KEY_BYTES)), number: fields.u32(), bodyId: fields.take(32) }
  if (ticket.number >= CHAIN_MAX) return null
  return { ...ticket, distribution: fields.isAtEnd ? null : bytes.subarray(TICKET_BYTES) }
}

export function encodeDistribution(scope: SenderKeyScope, { chainId, number, key }: SenderKeyDistribution): Uint8Array {
  return concatBytes([...scopeFields(scope), fromHex(chainId), u32(number), key])
}

/** Returns null unless the bytes distribute a key for this scope. */
export function readDistribution(bytes: Uint8Array, scope: SenderKeyScope): SenderKeyDistribution | null {
  const head = concatBytes(scopeFields(scope))
  if (bytes.length !== head.length + 2 * KEY_BYTES + 4 || !holdsBytes(bytes, 0, head)) return null
  const fields = new FieldReader(bytes.subarray(head.length))
  return { chainId: toHex(fields.take(KEY_BYTES)), number: fields.u32(), key: fields.take(KEY_BYTES).slice() }
}

function scopeFields({ meshId, audience, priority }: SenderKeyScope): Uint8Array[] {
  return [LABEL, fromHex(meshId), lengthPrefixed(fromHex(audience)), u16(priority)]
}
