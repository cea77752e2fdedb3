/**
 * Sends or fetches one file in a program that may be killed at any time. Writes a line about each step in advance. Its
 * argument is a JSON object. `AttachmentPeer` starts it and reads its lines.
 */
import { writeSync } from 'node:fs'
import { type BrokerAddress, identityOf, type SecretKeys } from '@sealpost/harness/members/mesh'
import { JsonLinesProgram } from '@sealpost/harness/programs/child'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { ready } from '@sealpost/identity'
import { FileUploadLog, fileSource, saveAttachment } from '@sealpost/sdk/attachment-files'
import {
  Attachments,
  attachmentText,
  type HttpOptions,
  readAttachment,
  type TransferProgress,
} from '@sealpost/sdk/attachments'
import { type MeshId, OperatingError, type PeerKey } from '@sealpost/std'

export interface FileOrder extends BrokerAddress {
  readonly meshId: MeshId
  readonly keys: SecretKeys
  readonly task:
    | { readonly way: 'up'; readonly path: string; readonly log: string; readonly to: PeerKey }
    | { readonly way: 'down'; readonly text: string; readonly folder: string }
}

/** `rssMb`: the peak so far; `baseMb`: after the first chunk. */
type FileLine =
  | { readonly type: 'progress'; readonly bytes: number; readonly rssMb: number; readonly baseMb: number }
  /** `chunk`: sent or requested. `refused`: will be repeated. */
  | { readonly type: 'chunk' | 'refused' }
  | { readonly type: 'done'; readonly result: string }

export class AttachmentPeer {
  /** The number of transferred chunks. */
  chunks = 0
  /** The growth of the peer's memory since the first chunk. */
  grownMb = 0
  readonly #program: JsonLinesProgram<FileLine>
  readonly #watchers = new Set<() => void>()
  #bytes = 0
  #result: string | null = null
  #isOver = false

  constructor(order: FileOrder, teardown: Teardown) {
    const args = [import.meta.filename, JSON.stringify(order)]
    this.#program = new JsonLinesProgram(args, (line: FileLine) => this.#take(line))
    teardown.addProgram({ stop: () => this.kill(), kill: () => this.kill() })
    void this.#program.ended.finally(() => {
      this.#isOver = true
      this.#notify()
    })
  }

  /** Resolves with the result at its exit. @throws OperatingError `attachment_peer_failed` */
  async done(): Promise<string> {
    await this.#program.ended
    if (this.#result !== null) return this.#result
    throw new OperatingError('attachment_peer_failed', 'A program that sends or fetches a file failed.')
  }

  /** Resolves at this many bytes, or at the exit. */
  async reached(bytes: number): Promise<void> {
    while (this.#bytes < bytes && !this.#isOver) await new Promise<void>((resolve) => this.#watchers.add(resolve))
  }

  kill(): Promise<void> {
    return this.#program.kill()
  }

  #take(line: FileLine): void {
    if (line.type === 'chunk') this.chunks += 1
    if (line.type === 'refused') this.chunks -= 1
    if (line.type === 'done') this.#result = line.result
    if (line.type === 'progress') {
      this.#bytes = line.bytes
      this.grownMb = Math.max(this.grownMb, line.rssMb - line.baseMb)
    }
    this.#notify()
  }

  #notify(): void {
    for (const watcher of this.#watchers) watcher()
    this.#watchers.clear()
  }
}

const rssMb = (): number => process.memoryUsage.rss() / 2 ** 20
const write = (line: FileLine): void => void writeSync(1, `${JSON.stringify(line)}\n`)

async function transfer({ task, keys, ...address }: FileOrder): Promise<string> {
  const files = new Attachments({ ...address, identity: identityOf(keys) }, { fetch: countedFetch })
  const onProgress = progressWriter()
  try {
    if (task.way === 'down') {
      const attachment = readAttachment(task.text)!
      return await saveAttachment(files, attachment, { folder: task.folder, onProgress })
    }
    const options = { to: task.to, name: 'file', resume: new FileUploadLog(task.log), onProgress }
    return attachmentText(await files.upload(await fileSource(task.path), options))
  } finally {
    await files.close()
  }
}

/** Returns a function that writes the progress, after the first chunk has loaded everything. */
function progressWriter(): (progress: TransferProgress) => void {
  let baseMb: number | undefined
  let peakMb = 0
  return ({ bytes }) => {
    baseMb ??= rssMb()
    peakMb = Math.max(peakMb, rssMb())
    write({ type: 'progress', bytes, rssMb: peakMb, baseMb })
  }
}

const countedFetch: NonNullable<HttpOptions['fetch']> = async (url, init) => {
  if (!url.includes('/chunks/')) return fetch(url, init)
  write({ type: 'chunk' })
  // Without a response, a download transferred nothing, but an upload may have.
  const response = await fetch(url, init).catch((error) => {
    if (init.method === 'GET') write({ type: 'refused' })
    throw error
  })
  if (!response.ok) write({ type: 'refused' })
  return response
}

if (import.meta.main) {
  await ready()
  write({ type: 'done', result: await transfer(JSON.parse(process.argv[2]!) as FileOrder) })
}
