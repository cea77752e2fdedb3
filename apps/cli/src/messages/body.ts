/** The body of a message to be sent: a word of the command line, a file, or stdin. */
import { open } from 'node:fs/promises'
import { BODY_BYTES_MAX } from '@sealpost/protocol'
import { OperatingError } from '@sealpost/std'

export interface BodySource {
  readonly text: string | undefined
  /** `-` is stdin. */
  readonly file: string | undefined
}

/** @throws OperatingError `usage`, `file_missing`, `file_unreadable`, `body_too_large` */
export async function readBody({ text, file }: BodySource, stdin = process.stdin): Promise<Uint8Array> {
  if (text !== undefined && file !== undefined)
    throw new OperatingError('usage', 'The message is either TEXT or --file, not both.')
  if (text !== undefined) return bounded(new TextEncoder().encode(text))
  if (file !== undefined && file !== '-') return readWhole(file)
  return collect(stdin)
}

/** The rest of what is too long is never read. */
async function collect(stream: AsyncIterable<Uint8Array | string>): Promise<Uint8Array> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of stream) {
    chunks.push(Buffer.from(chunk as Uint8Array))
    size += chunks.at(-1)!.length
    if (size > BODY_BYTES_MAX) throw tooLarge()
  }
  return Buffer.concat(chunks)
}

async function readWhole(path: string): Promise<Uint8Array> {
  const file = await open(path, 'r').catch((cause) => {
    throw (cause as { code?: string }).code === 'ENOENT'
      ? new OperatingError('file_missing', `There is no file at ${path}.`)
      : new OperatingError('file_unreadable', `The file at ${path} can't be read.`, { cause })
  })
  try {
    if ((await file.stat()).isDirectory()) throw new OperatingError('file_unreadable', `${path} is a folder.`)
    return await collect(file.createReadStream({ autoClose: false }))
  } finally {
    await file.close()
  }
}

function bounded(body: Uint8Array): Uint8Array {
  if (body.length > BODY_BYTES_MAX) throw tooLarge()
  return body
}

function tooLarge(): OperatingError {
  return new OperatingError('body_too_large', `A message has at most ${BODY_BYTES_MAX} bytes.`)
}
