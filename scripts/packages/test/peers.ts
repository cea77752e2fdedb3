/**
 * Contains the tests of the packed SDK. Each runtime runs them like an application, so they import only the package and
 * `node:` modules.
 */

import {
  type ConnectOptions,
  connect,
  fingerprint,
  generateIdentity,
  type Message,
  openPeer,
  type Peer,
  type PeerEvent,
  ready,
  SealpostError,
} from '@sealpost/sdk'
import { Attachments, attachmentOf, attachmentText } from '@sealpost/sdk/attachments'
import { groupsOf } from '@sealpost/sdk/groups'
import { join } from '@sealpost/sdk/join'
import { openKeyEpochs } from '@sealpost/sdk/key-epochs'
import { MemoryStore } from '@sealpost/sdk/memory-store'
import { poolsOf } from '@sealpost/sdk/pools'
import { openReactions, openState, setSpace } from '@sealpost/sdk/state'

export interface Surroundings {
  /** An invite that admits any number of members. */
  readonly invite: string
  /** An empty folder, on servers only. */
  readonly folder?: string
  readonly webSocket?: ConnectOptions['webSocket']
}

export interface Outcome {
  readonly name: string
  /** Null if the test passed. */
  readonly failure: string | null
}

type Place = Omit<ConnectOptions, 'onEvent'>
type Test = (given: Surroundings) => Promise<void>

const COMMON: Readonly<Record<string, Test>> = {
  'text and bytes arrive in order': async (given) => {
    const [ada, ben] = await peers(given)
    const bytes = Uint8Array.from({ length: 3000 }, (_, i) => i)
    await Promise.all([ada.send(ben.key, 'first'), ada.send(ben.key, bytes, { thread: 'ab'.repeat(16) })])
    const heard: Message[] = []
    for await (const message of ben) {
      heard.push(message)
      if (heard.length < 2) continue
      message.settle()
      break
    }
    equal(heard[0]!.text(), 'first')
    equal(String(heard[1]!.body), String(bytes))
    equal(heard[1]!.thread, 'ab'.repeat(16))
    equal(fingerprint(heard[1]!.sender), fingerprint(ada.key))
    await close(ada, ben)
  },

  'a request gets its reply': async (given) => {
    const [ada, ben] = await peers(given)
    ben.onMessage((message) => message.reply(message.text().toUpperCase()))
    equal((await ada.request(ben.key, 'a question')).text(), 'A QUESTION')
    await close(ada, ben)
  },

  'a refusal is an error with a code': async (given) => {
    const [ada, ben] = await peers(given)
    const error = await ada.send(generateIdentity().signing.publicKey, 'hello').catch((refusal: unknown) => refusal)
    equal(error instanceof SealpostError && error.code, 'unknown_recipient')
    await close(ada, ben)
  },

  'receipts report the push and the settlement': async (given) => {
    const [mine, theirs] = [await member(given), await member(given)]
    const ben = await connect(theirs)
    ben.onMessage((message) => message.settle())
    const events: string[] = []
    let ada: Peer | undefined
    await new Promise<void>((resolve, reject) => {
      const onEvent = (event: PeerEvent) => {
        if (event.type === 'receipt' && events.push(event.event) === 2) resolve()
      }
      connect({ ...mine, onEvent })
        .then((peer) => {
          ada = peer
          return peer.send(ben.key, 'report on this', { receipts: 'all' })
        })
        .catch(reject)
    })
    equal(events.sort().join(), 'pushed,settled')
    await close(ada!, ben)
  },

  'groups and pools deliver': async (given) => {
    const [ada, ben] = await peers(given)
    const heard = taken(ben, 2)
    const crew = await groupsOf(ada).create(`crew ${Math.random()}`, [ben.key])
    equal((await (await crew.send('to the group')).stored).length, 1)
    const workers = await poolsOf(ada).create(`workers ${Math.random()}`, [ben.key])
    await (await poolsOf(ben).find(workers.id)).join({ credit: 1 })
    await workers.send('to the pool')
    equal((await heard).sort().join(), 'to the group,to the pool')
    await close(ada, ben)
  },

  'presence and ephemeral messages arrive': async (given) => {
    const [ada, ben] = await peers(given)
    const seen = new Promise<string>((resolve) => {
      ada.watchPresence(({ peer, summary }) => peer === ben.key && summary !== '' && resolve(summary))
    })
    ben.setStatus({ availability: 'working', summary: 'reading' })
    equal(await seen, 'reading')
    const heard = new Promise<string>((resolve) => {
      ben.onEphemeral(({ body }) => resolve(new TextDecoder().decode(body)))
    })
    ada.sendEphemeral(ben.key, 'half done')
    equal(await heard, 'half done')
    await close(ada, ben)
  },

  'a store keeps what was not sent': async (given) => {
    const [mine, theirs] = [await member(given), await member(given)]
    const store = new MemoryStore()
    const offline = await openPeer({ ...mine, url: 'ws://127.0.0.1:9', store })
    await offline.enqueue(theirs.identity.signing.publicKey, 'written offline')
    await offline.close()
    const reader = await connect(theirs)
    const heard = taken(reader, 1)
    const online = await connect({ ...mine, store: new MemoryStore(store.records) })
    equal((await heard).join(), 'written offline')
    await close(online, reader)
  },

  'a file is attached': async (given) => {
    const [mine, theirs] = [await member(given), await member(given)]
    const [ada, ben] = [await connect(mine), await connect(theirs)]
    const [own, other] = [new Attachments(mine), new Attachments(theirs)]
    const whole = new Uint8Array(300_000).fill(7)
    const sent = await own.upload(new Blob([whole]), { to: ben.key, name: 'sevens' })
    const received = new Promise<Message>((resolve) => ben.onMessage(resolve))
    await ada.send(ben.key, 'a file', { attachment: attachmentText(sent) })
    let bytes = 0
    for await (const chunk of other.download(attachmentOf(await received)!)) bytes += chunk.length
    equal(bytes, whole.length)
    await Promise.all([own.close(), other.close()])
    await close(ada, ben)
  },

  'members share state and reactions': async (given) => {
    const [mine, theirs] = [await member(given), await member(given)]
    const ada = await connect(mine)
    const epochs = await openKeyEpochs(new MemoryStore(), { meshId: mine.meshId, peerKey: ada.key })
    const { id: group } = await groupsOf(ada).create(`state ${Math.random()}`, [theirs.identity.signing.publicKey])
    await setSpace({ ...mine, group })
    const hers = await openState({ ...mine, group, keyEpochs: epochs })
    const his = await openState({ ...theirs, group })
    await hers.set('topic', { drink: 'tea' })
    equal(JSON.stringify((await his.get('topic'))!.json()), '{"drink":"tea"}')
    const votes = await openReactions(his)
    await votes.add('message 1', '👍')
    equal(votes.of('message 1').get('👍')?.count, 1)
    await votes.close()
    await Promise.all([hers.close(), his.close()])
    await Promise.all([epochs.close(), close(ada)])
  },
}

/** Runs the tests in sequence, each with its own members. */
export async function runTests(given: Surroundings, special: Readonly<Record<string, Test>>): Promise<Outcome[]> {
  await ready()
  const outcomes: Outcome[] = []
  for (const [name, test] of Object.entries({ ...COMMON, ...special })) {
    outcomes.push({ name, failure: await failureOf(test(given)) })
  }
  return outcomes
}

/** Only for tests that hang. */
const TIMEOUT_MS = 60_000

async function failureOf(test: Promise<void>): Promise<string | null> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error('timeout')), TIMEOUT_MS)
  })
  try {
    await Promise.race([test, timeout])
    return null
  } catch (error) {
    return String((error as Error).stack ?? error)
  } finally {
    clearTimeout(timer)
  }
}

export async function member({ invite, webSocket }: Surroundings): Promise<Place> {
  const identity = generateIdentity()
  const name = `peer ${identity.signing.publicKey.slice(0, 12)}`
  const port = webSocket && { webSocket }
  return { ...(await join({ invite, identity, name, ...port })), identity, ...port }
}

export async function peers(given: Surroundings, options: Partial<Place> = {}): Promise<[Peer, Peer]> {
  const open = async () => connect({ ...(await member(given)), ...options })
  return Promise.all([open(), open()])
}

export const close = (...all: Pick<Peer, 'close'>[]): Promise<unknown> => Promise.all(all.map((peer) => peer.close()))

/** Settles the next messages. Resolves with their texts. */
export function taken(peer: Peer, count: number): Promise<string[]> {
  const texts: string[] = []
  return new Promise((resolve) => {
    peer.onMessage((message) => {
      texts.push(message.text())
      if (texts.length === count) resolve(texts)
    })
  })
}

export function equal(actual: unknown, expected: unknown): void {
  if (actual !== expected) throw new Error(`expected ${String(expected)}, got ${String(actual)}`)
}
