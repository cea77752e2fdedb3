/**
 * Runs a peer with a file store, as a separate program that end-to-end tests can kill. It reports events as lines of
 * JSON (`Told`).
 *     bun peer-process.ts post KEY-FILE STORE RECIPIENT TEXT…
 *     bun peer-process.ts receive KEY-FILE STORE [STUCK-TEXT]
 *
 * With `--secrecy`, which comes first, the peer has forward secrecy. With `--kill before:N` or `--kill after:N`, which comes
 * next, the process kills itself before or after it writes the batch N.
 *
 * `post` posts the texts, ten at a time. `receive` handles messages. If STUCK-TEXT is given, the handler of the message
 * with this text never ends, and settles do not reach the broker.
 */
import { writeSync } from 'node:fs'
import { readKeyFile } from '@sealpost/identity/key-file'
import { decodeClientFrame } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import { openPeer } from '../client.ts'
import { forwardSecrecy } from '../forward/forward-secrecy.ts'
import type { ConnectOptions, Peer } from '../peer.ts'
import type { PeerEvent } from '../ports.ts'
import { openFileStore } from '../stores/file/file-store.ts'
import type { PeerStore, StoreChange } from '../stores/store.ts'

export type Told =
  | { readonly kept: string }
  /** The broker has stored the message. */
  | { readonly sent: string }
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

const args = process.argv.slice(2)
const isSecret = args[0] === '--secrecy' && args.shift() !== undefined
const killAt = args[0] === '--kill' ? args.splice(0, 2)[1] : undefined
const [mode, keyFile, storeFile, ...words] = args as [string, string, string, ...string[]]
if (mode === 'post') await post(words[0] as PeerKey, words.slice(1))
else await receive(words[0])

async function place(): Promise<ConnectOptions> {
  const { contents } = await readKeyFile(keyFile)
  if (contents.kind !== 'peer' || !contents.enrolment) throw new Error('a key file of an enrolled peer is needed')
  const { authority, ...enrolment } = contents.enrolment
  const onEvent = ({ type }: PeerEvent) => tell({ event: type })
  const store = narrated(await openFileStore(storeFile))
  const secrecy = isSecret ? { secrecy: forwardSecrecy() } : {}
  return { url: `ws://${authority}`, identity: contents.identity, ...enrolment, store, onEvent, ...secrecy }
}

function narrated(store: PeerStore): PeerStore {
  let writes = 0
  const write = async (changes: readonly StoreChange[]) => {
    writes += 1
    const write = writes
    tell({ writing: write })
    if (killAt === `before:${write}`) process.kill(process.pid, 'SIGKILL')
    await store.write(changes)
    if (killAt === `after:${write}`) process.kill(process.pid, 'SIGKILL')
    tell({ written: write })
  }
  return { load: () => store.load(), write, close: () => store.close() }
}

async function post(to: PeerKey, texts: string[]): Promise<void> {
  const peer = await openPeer(await place())
  for (let i = 0; i < texts.length; i += 10)
    await Promise.all(texts.slice(i, i + 10).map((text) => postOne(peer, to, text)))
}

async function postOne(peer: Peer, to: PeerKey, text: string): Promise<void> {
  const { receipt } = await peer.enqueue(to, text)
  tell({ kept: text })
  void receipt.then(() => tell({ sent: text }))
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
