/**
 * Keeps messages unsettled until their files are saved, because settling loses the key. If the page is reopened, they
 * are pushed again.
 */
import type { Message, PeerKey } from '@sealpost/sdk'
import { Attachments, attachmentOf } from '@sealpost/sdk/attachments'
import type { EnvelopeId } from '@sealpost/std'
import type { LineFile } from './chat.ts'

interface Open {
  readonly message: Message
  readonly ended: PromiseWithResolvers<void>
}
interface Named {
  readonly peer: PeerKey
  readonly envelopeId: EnvelopeId
}

/** The maximum number of open messages, above which the broker would push nothing else. */
const OPEN_MAX = 64
const OPEN_BYTES_MAX = 256 * 1024
const ENVELOPE_BYTES = 1024
const AGAIN_AFTER_MS = 300_000
const COMES_WITHIN_MS = 10_000

/** Codes of files that can no longer be saved. */
const LOST: readonly string[] = ['attachment_unknown', 'attachment_changed', 'attachment_truncated', 'chunk_missing']
export const isLost = (code: string): boolean => LOST.includes(code)

/** Matches separators, control characters and marks that change the text direction. */
const UNSAFE = /[/\\\p{Cc}\p{Cf}]/gu

export function lineFileOf(message: Message): LineFile | null {
  if (message.attachment === null) return null
  const file = attachmentOf(message)
  if (!file) return { name: '', bytes: 0, state: 'unreadable' }
  return { name: file.name.replace(UNSAFE, '_'), bytes: file.bytes, state: 'unsaved' }
}

export class OpenFiles {
  readonly #attachments: Attachments
  readonly #open = new Map<string, Open>()
  readonly #awaited = new Map<string, (message: Message) => void>()
  #bytes = 0

  constructor(place: ConstructorParameters<typeof Attachments>[0]) {
    this.#attachments = new Attachments(place)
  }

  /** Resolves when the message was settled or returned. Returns it if too many are open. */
  hold(message: Message): Promise<void> {
    const bytes = message.body.length + ENVELOPE_BYTES
    if (this.#open.size >= OPEN_MAX || this.#bytes + bytes > OPEN_BYTES_MAX) {
      message.retry(AGAIN_AFTER_MS)
      return Promise.resolve()
    }
    const ended = Promise.withResolvers<void>()
    const key = keyOf({ peer: message.sender, envelopeId: message.envelopeId })
    this.#open.set(key, { message, ended })
    this.#bytes += bytes
    this.#awaited.get(key)?.(message)
    return ended.promise
  }

  /**
   * Returns the complete, verified file; null if its message was not pushed again. @throws SealpostError with the codes
   * of `Attachments.download`
   */
  async fetch(line: Named): Promise<Blob | null> {
    const message = await this.#find(line)
    const file = message && attachmentOf(message)
    if (!file) return null
    const parts: BlobPart[] = []
    for await (const bytes of this.#attachments.download(file)) parts.push(new Blob([bytes as Uint8Array<ArrayBuffer>]))
    return new Blob(parts)
  }

  settle(line: Named): void {
    this.#end(line, (message) => message.settle())
  }

  reject(line: Named, reason: string): void {
    this.#end(line, (message) => message.reject(reason))
  }

  /** After a reload, the message is pushed again a moment later. */
  async #find(line: Named): Promise<Message | null> {
    const key = keyOf(line)
    const open = this.#open.get(key)
    if (open) return open.message
    const { promise, resolve } = Promise.withResolvers<Message | null>()
    this.#awaited.set(key, resolve)
    setTimeout(() => resolve(null), COMES_WITHIN_MS)
    return promise.finally(() => this.#awaited.delete(key))
  }

  #end(line: Named, end: (message: Message) => void): void {
    const open = this.#open.get(keyOf(line))
    if (!open) return
    this.#open.delete(keyOf(line))
    this.#bytes -= open.message.body.length + ENVELOPE_BYTES
    end(open.message)
    open.ended.resolve()
  }
}

const keyOf = ({ peer, envelopeId }: Named): string => `${peer} ${envelopeId}`

export function offer(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob)
  const link = Object.assign(document.createElement('a'), { href: url, download: name })
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), REVOKED_AFTER_MS)
}

const REVOKED_AFTER_MS = 60_000
