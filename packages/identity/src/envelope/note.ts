/**
 * What one program says to the other beside the body: which conversation this belongs to, what it answers. It is sealed
 * with the body, so a broker can neither forge an answer nor give it to another question.
 */
import { assert, type EnvelopeId, type GroupId, isHex, type PeerKey, type PoolId } from '@sealpost/std'
import { holdsBytes } from '../byte-fields.ts'

/** A flag that is not named is false. */
export interface Note {
  /** 32 hex digits. */
  readonly thread?: string
  /** The envelope this one answers. */
  readonly inReplyTo?: EnvelopeId
  /** An answer is waited for. */
  readonly isRequest?: boolean
  /** It answers that what was asked for failed. */
  readonly isError?: boolean
  /** It was sent for the moment: good as a whisper, and as nothing else. */
  readonly isEphemeral?: boolean
  /** It is for this group: the envelope holds no body but the ticket to one. */
  readonly group?: GroupId
  /** Of the group's statement by which it was sealed. */
  readonly groupEpoch?: number
  /** It is for every device of this person: the envelope holds no body but the ticket to one. */
  readonly user?: PeerKey
  /** The same of a pool: it is for whichever member takes it. */
  readonly pool?: PoolId
  readonly poolEpoch?: number
  /** The reference to a file that comes apart from the envelope, as `attachmentText` writes it. */
  readonly attachment?: string
}

const isId = (value: unknown) => typeof value === 'string' && isHex(value, 16)
const isFlag = (value: unknown) => typeof value === 'boolean'
const isEpoch = (value: unknown) => Number.isInteger(value) && (value as number) > 0 && (value as number) < 2 ** 31
const CHECKS: Readonly<Record<keyof Note, (value: unknown) => boolean>> = {
  thread: isId,
  inReplyTo: isId,
  isRequest: isFlag,
  isError: isFlag,
  isEphemeral: isFlag,
  group: isId,
  groupEpoch: isEpoch,
  user: (value) => typeof value === 'string' && isHex(value, 32),
  pool: (value) => typeof value === 'string' && isHex(value, 32),
  poolEpoch: isEpoch,
  attachment: (value) => typeof value === 'string',
}
const KEYS = Object.keys(CHECKS) as (keyof Note)[]
/** Its length stands before it in two bytes. */
const NOTE_BYTES_MAX = 0xffff

const encoder = new TextEncoder()
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

interface Said {
  readonly note: Note | null
  readonly bytes: Uint8Array
}

/** All envelopes of a broadcast go with one note, and those of one group say the same: the last one is remembered. */
let written: Said = { note: null, bytes: new Uint8Array(0) }
let read = written

/** The keys in one order, so that one note has one form. */
export function encodeNote(note: Note): Uint8Array {
  if (note === written.note) return written.bytes
  const bytes = encoder.encode(JSON.stringify(note, KEYS))
  assert(bytes.length <= NOTE_BYTES_MAX, 'a note is short')
  written = { note, bytes }
  return bytes
}

/** Null unless it is an object whose known keys hold what they should; others are of a later version, and passed by. */
export function readNote(bytes: Uint8Array, from = 0, to = bytes.length): Note | null {
  if (to - from === read.bytes.length && holdsBytes(bytes, from, read.bytes)) return read.note
  const said = bytes.slice(from, to)
  read = { note: parseNote(said), bytes: said }
  return read.note
}

function parseNote(bytes: Uint8Array): Note | null {
  try {
    const said: unknown = JSON.parse(decoder.decode(bytes))
    if (typeof said !== 'object' || said === null || Array.isArray(said)) return null
    const named = KEYS.filter((key) => key in said).map((key) => [key, (said as Note)[key]] as const)
    if (!named.every(([key, value]) => CHECKS[key](value))) return null
    const note: Note = Object.fromEntries(named)
    if (note.group !== undefined && note.user !== undefined) return null
    const isWhole = (id: unknown, epoch: unknown) => (id === undefined) === (epoch === undefined)
    return isWhole(note.group, note.groupEpoch) && isWhole(note.pool, note.poolEpoch) ? note : null
  } catch {
    return null // no UTF-8 or no JSON
  }
}
