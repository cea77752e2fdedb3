/** Reads the content of a message. A text over the limit of a message becomes a file, with a preview as the message. */
import { open } from 'node:fs/promises'
import { basename } from 'node:path'
import { BODY_BYTES_MAX } from '@sealpost/protocol'
import { safeFileName } from '@sealpost/sdk/attachment-files'
import { OperatingError } from '@sealpost/std'
import type { Shell } from '../shell.ts'
import { type FileReaders, type SentFile, uploadBytes, uploadFile } from './files.ts'

/** The source of a message body: an argument, a file, or stdin. */
export interface BodySource {
  readonly text: string | undefined
  /** `-` is stdin. */
  readonly file: string | undefined
}

/** Reads a message's body. @throws OperatingError `usage`, `file_missing`, `file_unreadable`, `body_too_large` */
export async function readBody(source: BodySource, stdin = process.stdin): Promise<Uint8Array> {
  return await readBytes(source, { stdin, max: BODY_BYTES_MAX })
}

export interface ContentSource extends BodySource {
  /** The path of a file to attach. Without a text, the message is then empty. */
  readonly attach?: string | undefined
}

export interface Content {
  readonly body: Uint8Array
  /** The size of the whole text, of which `body` may be a preview. */
  readonly bytes: number
  /** Uploads the file, if there is one, for these readers. @throws the errors of `uploadFile` */
  upload(shell: Shell, to: FileReaders): Promise<SentFile | null>
}

/** Returns the body as the calls between commands carry it. */
export const base64Of = ({ body }: Pick<Content, 'body'>): string => Buffer.from(body).toString('base64')

/** The maximum size of a text, which is in memory until it is uploaded. */
export const TEXT_BYTES_MAX = 64 * 1024 * 1024

/** Reads a text that may exceed the limit of a message. @throws the errors of `readBody` */
export const readLongText = (source: BodySource, stdin = process.stdin): Promise<Uint8Array> =>
  readBytes(source, { stdin, max: TEXT_BYTES_MAX })

/** Reads a message's content. @throws the errors of `readBody` */
export async function readContent({ text, file, attach }: ContentSource, stdin = process.stdin): Promise<Content> {
  const isEmpty = attach !== undefined && text === undefined && file === undefined
  const bytes = await readBytes({ text: isEmpty ? '' : text, file }, { stdin, max: TEXT_BYTES_MAX })
  if (attach === undefined)
    return contentOf(bytes, file === undefined || file === '-' ? undefined : safeFileName(basename(file)))
  if (bytes.length > BODY_BYTES_MAX) throw tooLarge(BODY_BYTES_MAX)
  return { body: bytes, bytes: bytes.length, upload: (shell, to) => uploadFile(shell, attach, to) }
}

/** Returns a content that has a file if the bytes exceed the limit of a message. `name`: the name of this file. */
export function contentOf(bytes: Uint8Array, name?: string): Content {
  if (bytes.length <= BODY_BYTES_MAX) return { body: bytes, bytes: bytes.length, upload: async () => null }
  const preview = previewOf(bytes)
  const type = preview === null ? 'application/octet-stream' : 'text/plain; charset=utf-8'
  const named = { bytes, type, name: name ?? (preview === null ? 'message.bin' : 'message.txt') }
  return {
    body: new TextEncoder().encode(preview ?? ''),
    bytes: bytes.length,
    upload: (shell, to) => uploadBytes(shell, named, to),
  }
}

const PREVIEW_CHARACTERS = 1_000

/** Returns the beginning of a text; null if the bytes are not UTF-8. */
function previewOf(bytes: Uint8Array): string | null {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    const beginning = [...text.slice(0, 2 * PREVIEW_CHARACTERS)].slice(0, PREVIEW_CHARACTERS).join('').trimEnd()
    return `${beginning}\n[…] The attached file contains the complete text of ${bytes.length} bytes.`
  } catch {
    return null // the bytes are not UTF-8
  }
}

interface Reading {
  readonly stdin: AsyncIterable<Uint8Array | string>
  readonly max: number
}

async function readBytes({ text, file }: BodySource, reading: Reading): Promise<Uint8Array> {
  if (text !== undefined && file !== undefined)
    throw new OperatingError('usage', 'Give either TEXT or --file, not both.')
  if (text !== undefined) return bounded(new TextEncoder().encode(text), reading)
  if (file !== undefined && file !== '-') return readWhole(file, reading)
  return collect(reading.stdin, reading)
}

/** Reads the stream up to the limit. */
async function collect(stream: AsyncIterable<Uint8Array | string>, { max }: Reading): Promise<Uint8Array> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of stream) {
    chunks.push(Buffer.from(chunk as Uint8Array))
    size += chunks.at(-1)!.length
    if (size > max) throw tooLarge(max)
  }
  return Buffer.concat(chunks)
}

async function readWhole(path: string, reading: Reading): Promise<Uint8Array> {
  const file = await open(path, 'r').catch((cause) => {
    throw (cause as { code?: string }).code === 'ENOENT'
      ? new OperatingError('file_missing', `There is no file at ${path}.`)
      : new OperatingError('file_unreadable', `Can't read the file ${path}.`, { cause })
  })
  try {
    if ((await file.stat()).isDirectory()) throw new OperatingError('file_unreadable', `${path} is a folder.`)
    return await collect(file.createReadStream({ autoClose: false }), reading)
  } finally {
    await file.close()
  }
}

function bounded(body: Uint8Array, { max }: Reading): Uint8Array {
  if (body.length > max) throw tooLarge(max)
  return body
}

export function tooLarge(max: number): OperatingError {
  const rule =
    max === BODY_BYTES_MAX
      ? `A message can have at most ${max} bytes.`
      : `A text can have at most ${max} bytes. Attach a longer one as a file.`
  return new OperatingError('body_too_large', rule)
}
