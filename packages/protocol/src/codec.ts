/**
 * Encodes and decodes frames. Decoding never throws: it turns hostile input into a refusal that quotes none of the
 * input.
 */
import { Malformed, Reader, Writer } from './cursor.ts'
import { type ClientFrame, clientFrames, type Frame, type FrameKind, type ServerFrame, serverFrames } from './frames.ts'
import { FRAME_BYTES_MAX, type Subprotocol, UNPROVEN_FRAME_BYTES_MAX } from './limits.ts'

export type Wire = Uint8Array | string
export type KeyProof = 'unproven' | 'proven'
export type Decoded<F> = { ok: true; frame: F } | Undecoded
interface Undecoded {
  readonly ok: false
  readonly code: 'frame_malformed' | 'frame_too_large' | 'wrong_form'
  readonly reason: string
}

interface SocketForm<Sent extends Frame, Received extends Frame> {
  readonly subprotocol: Subprotocol
  /**
   * Returns a view that is valid until the next frame is encoded, for sockets that copy it. Another copy cost a tenth
   * of the broker's CPU in a burst. @throws Malformed like `encodeBinary`
   */
  encode(frame: Sent): Wire
  /** Default for `proof`: `proven`. */
  decode(wire: Wire, proof?: KeyProof): Decoded<Received>
}
export type ClientForm = SocketForm<ClientFrame, ServerFrame>
export type ServerForm = SocketForm<ServerFrame, ClientFrame>

const byType = new Map<string, FrameKind>([...serverFrames, ...clientFrames].map((kind) => [kind.type, kind]))
const writer = new Writer()

/** @throws Malformed if the frame could not be decoded again, which is a bug in the caller */
export function encodeBinary(frame: Frame): Uint8Array {
  return writeBinary(frame).slice()
}

function writeBinary(frame: Frame): Uint8Array {
  const kind = kindOf(frame.type)
  try {
    writer.u8(kind.number)
    kind.body.write(writer, frame as unknown as Record<string, unknown>)
    const bytes = writer.finish()
    if (bytes.length > FRAME_BYTES_MAX) throw new Malformed('frame too long')
    return bytes
  } catch (error) {
    writer.abandon()
    throw error
  }
}

/** @throws Malformed */
export function kindOf(type: string): FrameKind {
  const kind = byType.get(type)
  if (!kind) throw new Malformed('unknown frame')
  return kind
}

function binaryDecoder<F extends Frame>(kinds: readonly FrameKind[]) {
  const byNumber = new Map(kinds.map((kind) => [kind.number, kind]))

  const read = (bytes: Uint8Array): F => {
    const reader = new Reader(bytes)
    const kind = byNumber.get(reader.u8())
    if (!kind) throw new Malformed('unknown frame')
    const frame = kind.body.read(reader)
    reader.end()
    frame.type = kind.type
    return frame as F
  }

  return (wire: Wire, proof: KeyProof = 'proven'): Decoded<F> => {
    if (typeof wire === 'string') return WRONG_FORM
    if (isTooLarge(wire, proof)) return TOO_LARGE
    try {
      return { ok: true, frame: read(wire) }
    } catch (error) {
      return undecoded(error)
    }
  }
}

const formOf = <Received extends Frame>(kinds: readonly FrameKind[]): SocketForm<Frame, Received> => ({
  subprotocol: 'sealpost.v1',
  encode: writeBinary,
  decode: binaryDecoder<Received>(kinds),
})

export const binaryForm: ClientForm = formOf(serverFrames)
/** Marked as pure for bundlers, because a client does not use it. */
export const binaryServerForm: ServerForm = /* @__PURE__ */ formOf(clientFrames)

/** In bytes: both forms are equally long, because the text is ASCII. */
export const isTooLarge = (wire: Wire, proof: KeyProof): boolean =>
  wire.length > (proof === 'proven' ? FRAME_BYTES_MAX : UNPROVEN_FRAME_BYTES_MAX)

export const WRONG_FORM: Undecoded = { ok: false, code: 'wrong_form', reason: 'wrong form' }
export const TOO_LARGE: Undecoded = { ok: false, code: 'frame_too_large', reason: 'frame too long' }

export function undecoded(error: unknown): Undecoded {
  if (error instanceof Malformed) return { ok: false, code: 'frame_malformed', reason: error.message }
  throw error
}
