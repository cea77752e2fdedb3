/** What a file is called where it is saved. Its sender chose the name, so nothing of it may be taken for more than a name. */

const NAME_BYTES_MAX = 200
/** Separators, what a shell or Windows takes for more than a letter, controls, and marks that turn the direction of reading. */
const UNSAFE = /[/\\:*?"<>|]|[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu
/** Devices of Windows, whatever stands behind the dot. */
const DEVICE = /^(con|prn|aux|nul|com\d|lpt\d)(\.|$)/i

/** One name of at most 200 bytes, never hidden, never a path, never empty. */
export function safeFileName(given: string): string {
  const cleaned = given
    .normalize('NFC')
    .replace(UNSAFE, '_')
    .replace(/^[.\s-]+/, '')
    .replace(/[.\s]+$/, '')
  const named = cleaned === '' || DEVICE.test(cleaned) ? `file_${cleaned}`.replace(/_$/, '') : cleaned
  return shortened(named)
}

/** `report.pdf`, `report (2).pdf`, … */
export function* fileNames(given: string): Generator<string> {
  const name = safeFileName(given)
  yield name
  const [stem, ending] = parts(name)
  for (let n = 2; ; n++) yield `${stem} (${n})${ending}`
}

/** Keeps a short ending. */
function shortened(name: string): string {
  const [stem, ending] = parts(name)
  let kept = [...stem]
  while (Buffer.byteLength(kept.join('') + ending) > NAME_BYTES_MAX) kept = kept.slice(0, -1)
  return kept.join('') + ending
}

function parts(name: string): [stem: string, ending: string] {
  const dot = name.lastIndexOf('.')
  return dot > 0 && name.length - dot <= 12 ? [name.slice(0, dot), name.slice(dot)] : [name, '']
}
