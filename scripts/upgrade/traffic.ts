/**
 * Sends and receives numbers with the SDK of one version, for the upgrade tests. Each line of the input is a request, and
 * each line of the output is a reply. A fixture contains this program as it was, so the requests may only be extended.
 */
import process from 'node:process'
import { createInterface } from 'node:readline'
import { connect, generateIdentity, type Membership, openPeer, type Peer, type PeerKey, ready } from '@sealpost/sdk'
import { openFileStore } from '@sealpost/sdk/file-store'
import { join } from '@sealpost/sdk/join'
import { readKeyFile, writeKeyFile } from '@sealpost/sdk/key-file'

export type TrafficRequest =
  /** Adds a member. The reply has its key. */
  | { readonly type: 'join'; readonly invite: string; readonly urls: readonly string[] }
  /** Makes a member send the numbers from 1 until `stop`. */
  | { readonly type: 'send'; readonly from: PeerKey; readonly to: PeerKey }
  /** Leaves a member on disk: its key file and a store with a message that it has not sent. The reply is its membership. */
  | { readonly type: 'leave'; readonly invite: string; readonly folder: string; readonly to: PeerKey }
  /** Connects the member that is on disk. The reply has its key. */
  | { readonly type: 'resume'; readonly membership: Membership; readonly folder: string }
  /** Asks for the state of each member. */
  | { readonly type: 'report' }
  /** Stops all senders. The reply follows when each number is acknowledged. */
  | { readonly type: 'stop' }

export interface MemberReport {
  readonly key: PeerKey
  readonly isOnline: boolean
  readonly sent: number
  readonly acked: number
  /** The received numbers in the order of their arrival. */
  readonly received: readonly number[]
}

/** The pause of each sender between two messages. */
const PAUSE_MS = 50

class Member {
  readonly peer: Peer
  readonly received: number[] = []
  readonly #acks: Promise<unknown>[] = []
  #acked = 0
  #timer: ReturnType<typeof setInterval> | undefined

  constructor(peer: Peer) {
    this.peer = peer
    peer.onMessage((message) => void this.received.push(Number(message.text())))
  }

  send(to: PeerKey): void {
    this.#timer = setInterval(() => {
      const sent = this.peer.send(to, String(this.#acks.length + 1))
      this.#acks.push(sent.then(() => this.#acked++))
    }, PAUSE_MS)
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer)
    await Promise.all(this.#acks)
  }

  get report(): MemberReport {
    const { key, isOnline } = this.peer
    return { key, isOnline, sent: this.#acks.length, acked: this.#acked, received: this.received }
  }
}

const members = new Map<PeerKey, Member>()

async function joinAs(invite: string) {
  const identity = generateIdentity()
  const name = `member ${identity.signing.publicKey.slice(0, 12)}`
  return { identity, membership: await join({ invite, identity, name }) }
}

function add(peer: Peer): { key: PeerKey } {
  members.set(peer.key, new Member(peer))
  return { key: peer.key }
}

const PASSPHRASE = 'correct horse'
const keyFileIn = (folder: string): string => `${folder}/peer.json`
const storeIn = (folder: string) => openFileStore(`${folder}/peer.store`)

async function reply(request: TrafficRequest): Promise<unknown> {
  switch (request.type) {
    case 'join': {
      const { identity, membership } = await joinAs(request.invite)
      return add(await connect({ ...membership, identity, url: request.urls, padding: true }))
    }
    case 'leave': {
      const { folder, to } = request
      const { identity, membership } = await joinAs(request.invite)
      const contents = { kind: 'peer' as const, identity, formerBoxKeys: [], enrolment: null }
      await writeKeyFile(keyFileIn(folder), contents, { passphrase: PASSPHRASE })
      const offline = { url: 'ws://127.0.0.1:9', store: await storeIn(folder) }
      const peer = await openPeer({ ...membership, identity, ...offline })
      await peer.enqueue(to, '1')
      await peer.close()
      return membership
    }
    case 'resume': {
      const { contents } = await readKeyFile(keyFileIn(request.folder), () => PASSPHRASE)
      if (contents.kind !== 'peer') throw new Error('the key file is not that of a peer')
      const { identity } = contents
      return add(
        await connect({ ...request.membership, identity, padding: true, store: await storeIn(request.folder) }),
      )
    }
    case 'send':
      members.get(request.from)!.send(request.to)
      return {}
    case 'report':
      return [...members.values()].map(({ report }) => report)
    case 'stop':
      await Promise.all([...members.values()].map((member) => member.stop()))
      return {}
  }
}

await ready()
for await (const line of createInterface({ input: process.stdin }))
  process.stdout.write(`${JSON.stringify(await reply(JSON.parse(line) as TrafficRequest))}\n`)
await Promise.all([...members.values()].map(({ peer }) => peer.close()))
