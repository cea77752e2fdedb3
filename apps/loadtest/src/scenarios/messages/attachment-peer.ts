/**
 * A peer that sends or fetches one file, as a program that may be killed: what it did stands in the lines that it has written
 * by then, each before it does the next thing. Words: an order as JSON.
 */
import { writeSync } from 'node:fs'
import type { BrokerAddress, SecretKeys } from '@sealpost/harness/members/mesh'
import { identityOf } from '@sealpost/harness/members/mesh'
import { ready } from '@sealpost/identity'
import { FileUploadLog, fileSource, saveAttachment } from '@sealpost/sdk/attachment-files'
import {
  Attachments,
  attachmentText,
  type HttpOptions,
  readAttachment,
  type TransferProgress,
} from '@sealpost/sdk/attachments'
import type { MeshId, PeerKey } from '@sealpost/std'

export interface FileOrder extends BrokerAddress {
  readonly meshId: MeshId
  readonly keys: SecretKeys
  readonly task:
    | { readonly way: 'up'; readonly path: string; readonly log: string; readonly to: PeerKey }
    | { readonly way: 'down'; readonly text: string; readonly folder: string }
}

/** A line. `rssMb` is the most so far, `baseMb` what it was before the first chunk. */
export type FileLine =
  | { readonly said: 'progress'; readonly bytes: number; readonly total: number; readonly rssMb: number; readonly baseMb: number } // biome-ignore format: one thing
  /** A chunk leaves, or is asked for; it was refused and will go again. */
  | { readonly said: 'chunk' | 'refused' }
  | { readonly said: 'done'; readonly what: string }

const rssMb = (): number => process.memoryUsage.rss() / 2 ** 20
const say = (line: FileLine): void => void writeSync(1, `${JSON.stringify(line)}\n`)

async function work({ task, keys, ...place }: FileOrder): Promise<string> {
  const files = new Attachments({ ...place, identity: identityOf(keys) }, { fetch: countedFetch })
  const onProgress = watch()
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

/** The first telling comes after the first chunk, when what every transfer needs is loaded. */
function watch(): (progress: TransferProgress) => void {
  let baseMb: number | undefined
  let peakMb = 0
  return ({ bytes, total }) => {
    baseMb ??= rssMb()
    peakMb = Math.max(peakMb, rssMb())
    say({ said: 'progress', bytes, total, rssMb: peakMb, baseMb })
  }
}

const countedFetch: NonNullable<HttpOptions['fetch']> = async (url, init) => {
  if (!url.includes('/chunks/')) return fetch(url, init)
  say({ said: 'chunk' })
  // What was asked for and not answered has not come; what was sent and not answered may have.
  const answer = await fetch(url, init).catch((error) => {
    if (init.method === 'GET') say({ said: 'refused' })
    throw error
  })
  if (!answer.ok) say({ said: 'refused' })
  return answer
}

await ready()
say({ said: 'done', what: await work(JSON.parse(process.argv[2]!) as FileOrder) })
