/**
 * Runs a peer with a file store, as a separate program that end-to-end tests can kill. It reports events as lines of
 * JSON (`Told`).
 *     bun peer-process.ts post KEY-FILE STORE RECIPIENT TEXT…
 *     bun peer-process.ts receive KEY-FILE STORE [STUCK-TEXT]
 *
 * `post` posts the texts, ten at a time. `receive` handles messages. If STUCK-TEXT is given, the handler of the message
 * with this text never ends, and settles do not reach the broker.
 */
import { writeSync } from 'node:fs'
import { readKeyFile } from '@sealpost/identity/key-file'
import { decodeClientFrame } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import { openPeer } from '../client.ts'
import type { ConnectOptions } from '../peer.ts'
import type { PeerEvent } from '../ports.ts'
import { openFileStore } from '../stores/file/file-store.ts'
import type { PeerStore, StoreChange } from '../stores/store.ts'

export type Told =
  | { readonly kept: string }
  | { readonly event: PeerEvent['type'] }
  | { readonly begun: string }
  | { readonly ended: string }
  | { readonly mutedSettles: number }
  /** A write to the store began. Writes are numbered. */
  | { readonly writing: number }
  | { readonly written: number }

/** Writes synchronously, because the process may be killed next. */
function tell(told: Told): void {
  writeSync(1, `${JSON.stringify(told)}\n`)
}

const [mode, keyFile, storeFile, ...words] = process.argv.slice(2) as [string, string, string, ...string[]]
if (mode === 'post') await post(words[0] as PeerKey, words.slice(1))
else await receive(words[0])

async function place(): Promise<ConnectOptions> {
  const { contents } = await readKeyFile(keyFile)
  if (contents.kind !== 'peer' || !contents.enrolment) throw new Error('a key file of an enrolled peer is needed')
  const { authority, ...enrolment } = contents.enrolment
  const onEvent = ({ type }: PeerEvent) => tell({ event: type })
  const store = narrated(await openFileStore(storeFile))
  return { url: `ws://${authority}`, identity: contents.identity, ...enrolment, store, onEvent }
}

function narrated(store: PeerStore): PeerStore {
  let writes = 0
  const write = async (changes: readonly StoreChange[]) => {
    writes += 1
    const write = writes
    tell({ writing: write })
    await store.write(changes)
    tell({ written: write })
  }
  return { load: () => store.load(), write, close: () => store.close() }
}

async function post(to: PeerKey, texts: string[]): Promise<void> {
  const peer = await openPeer(await place())
  for (let i = 0; i < texts.length; i += 10)
    await Promise.all(texts.slice(i, i + 10).map((text) => peer.enqueue(to, text).then(() => tell({ kept: text }))))
}

async function receive(stuckText: string | undefined): Promise<void> {
  const options = await place()
  const peer = await openPeer(stuckText === undefined ? options : { ...options, webSocket: muted() })
  peer.onMessage((message) => {
    const text = message.text()
    tell({ begun: text })
    if (text === stuckText) return new Promise(() => undefined)
    tell({ ended: text })
    return undefined
  })
}

function muted(): NonNullable<ConnectOptions['webSocket']> {
  return class extends WebSocket {
    override send(wire: Uint8Array<ArrayBuffer>): void {
      const decoded = decodeClientFrame('binary', wire)
      if (decoded.ok && decoded.frame.type === 'settle') tell({ mutedSettles: decoded.frame.ids.length })
      else super.send(wire)
    }
  } as unknown as NonNullable<ConnectOptions['webSocket']>
}
