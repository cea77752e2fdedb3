/** Reads macOS programs and libraries that contain versions for several processors ("universal binaries"). */

/** The magic number, big-endian like the header. */
const MAGIC = 0xcafebabe
const PROCESSORS = { x64: 0x01000007, arm64: 0x0100000c } as const
const HEADER_BYTES = 8
const ENTRY_BYTES = 20
/** The maximum number of versions. Java's class files have the same magic number, followed by 45 or more. */
const VERSIONS_MAX = 40

/** Returns the version for one processor, or the contents of any other file. */
export function thinned(contents: Uint8Array, processor: keyof typeof PROCESSORS): Uint8Array {
  const view = new DataView(contents.buffer, contents.byteOffset, contents.byteLength)
  if (contents.length < HEADER_BYTES || view.getUint32(0) !== MAGIC) return contents
  const versions = view.getUint32(4)
  for (
    let at = HEADER_BYTES;
    versions < VERSIONS_MAX && at < HEADER_BYTES + versions * ENTRY_BYTES;
    at += ENTRY_BYTES
  ) {
    if (view.getUint32(at) !== PROCESSORS[processor]) continue
    const start = view.getUint32(at + 8)
    return contents.slice(start, start + view.getUint32(at + 12))
  }
  return contents
}
