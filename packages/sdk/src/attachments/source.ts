/** A file as it is read, in pieces that each become a chunk. */

/** `stream` is called once for each upload, and begins with the first byte. */
export interface AttachmentSource {
  readonly bytes: number
  readonly stream: () => AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>
}

export const sourceOf = (given: Blob | AttachmentSource): AttachmentSource =>
  'stream' in given && 'size' in given ? { bytes: given.size, stream: () => given.stream() } : given

/** Pieces of so many bytes each, but for the last one; an empty one for nothing at all. No byte is read ahead of need. */
export async function* inPieces(
  stream: AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>,
  pieceBytes: number,
): AsyncGenerator<Uint8Array> {
  let piece = new Uint8Array(pieceBytes)
  let filled = 0
  let count = 0
  for await (const read of iterate(stream)) {
    for (let at = 0; at < read.length; ) {
      if (filled === pieceBytes) {
        yield piece
        count += 1
        piece = new Uint8Array(pieceBytes)
        filled = 0
      }
      const part = read.subarray(at, at + pieceBytes - filled)
      piece.set(part, filled)
      filled += part.length
      at += part.length
    }
  }
  if (filled > 0 || count === 0) yield piece.subarray(0, filled)
}

/** Not every browser's streams can be iterated. */
async function* iterate(
  stream: AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>,
): AsyncGenerator<Uint8Array, void, undefined> {
  if (!('getReader' in stream)) return yield* stream
  const reader = stream.getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      yield value
    }
  } finally {
    await reader.cancel().catch(() => undefined) // it failed by itself, or is over
  }
}
