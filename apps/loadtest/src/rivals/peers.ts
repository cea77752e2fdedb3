/**
 * Runs each server's peers with the same `crypto_box` envelopes: by the SDK for Sealpost, otherwise by `Sealing` with
 * precomputed keys.
 */
import { AckPolicy, jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect as connectNats } from '@nats-io/transport-node'
import { identityOf, type SecretKeys } from '@sealpost/harness/members/mesh'
import { type Correspondent, openEnvelope, Sealer, sealEnvelope } from '@sealpost/identity'
import { connect } from '@sealpost/sdk'
import { assert, type EnvelopeId, fromHex, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { Redis } from 'ioredis'
import type { Share } from '../generators/plan.ts'
import type { ContenderName } from './result.ts'

/** A comparison's peers, numbered from 0, and their server. */
export interface RivalCast {
  readonly server: ContenderName
  readonly port: number
  /** A Sealpost broker's key. */
  readonly brokerKey: PeerKey | null
  readonly meshId: MeshId
  readonly peerKeys: readonly PeerKey[]
  readonly boxKeys: readonly string[]
  readonly window: number
  /** The peers of this program. */
  readonly share: Share
  /** The secrets of these peers. */
  readonly secrets: readonly SecretKeys[]
}

export interface RivalPeer {
  /** Resolves when the server has stored the message. */
  send(recipient: number, body: Uint8Array): Promise<unknown>
  close(): Promise<unknown>
}

/** Opens a peer. @param received - called with each opened body, before the message is settled */
type OpenPeer = (cast: RivalCast, number: number, received: (body: Uint8Array) => void) => Promise<RivalPeer>

export const openRivalPeer: OpenPeer = (cast, number, received) => OPEN[cast.server](cast, number, received)

const openSealpostPeer: OpenPeer = async (cast, number, received) => {
  const { port, brokerKey, meshId, window } = cast
  const url = `ws://127.0.0.1:${port}`
  const peer = await connect({ url, brokerKey: brokerKey!, meshId, identity: identityIn(cast, number), window })
  peer.onMessage((message) => {
    received(message.body)
    message.settle()
  })
  return {
    send: (recipient, body) => peer.send(cast.peerKeys[recipient]!, body),
    close: () => peer.close(),
  }
}

const GROUP = 'peer'
const FIELD = 'm'
const READ_MAX = 512

/** What XREADGROUP returns. */
type StreamEntries = [stream: Buffer, entries: [id: Buffer, fields: Buffer[]][]][]

/** Opens a peer on Redis: a stream per recipient, and connections for commands and for waiting. */
const openRedisPeer: OpenPeer = async (cast, number, received) => {
  const sealing = new Sealing(cast, number)
  const address = { host: '127.0.0.1', port: cast.port, lazyConnect: true, protocol: 2 } as const
  const [commands, waiting] = [address, address].map((each) => new Redis({ ...each, maxRetriesPerRequest: null }))
  await Promise.all([commands!.connect(), waiting!.connect()])
  const own = streamOf(number)
  await commands!.xgroup('CREATE', own, GROUP, '0', 'MKSTREAM')
  let isClosed = false
  const throwUnlessClosed = (error: unknown): void => {
    if (!isClosed) throw error
  }
  const read = async (): Promise<void> => {
    while (!isClosed) {
      const args = ['GROUP', GROUP, 'self', 'COUNT', READ_MAX, 'BLOCK', 0, 'STREAMS', own, '>'] as const
      const reply = (await waiting!.callBuffer('XREADGROUP', ...args)) as StreamEntries | null
      const ids: Buffer[] = []
      for (const [id, fields] of reply?.[0]?.[1] ?? []) {
        received(sealing.open(fields[1]!))
        ids.push(id)
      }
      if (ids.length === 0) continue
      // An acknowledged entry stays until it is deleted.
      const settled = [commands!.xack(own, GROUP, ...ids), commands!.xdel(own, ...ids)]
      Promise.all(settled).catch(throwUnlessClosed)
    }
  }
  read().catch(throwUnlessClosed)
  return {
    send: (recipient, body) => commands!.xadd(streamOf(recipient), '*', FIELD, sealing.seal(recipient, body)),
    close: async () => {
      isClosed = true
      waiting!.disconnect()
      commands!.disconnect()
    },
  }
}

const streamOf = (number: number): string => `mailbox:${number}`

export const NATS_STREAM = 'mailboxes'
export const NATS_SUBJECTS = 'mailbox.*'
const ACK_WITHIN_MS = 60_000

/** Opens a peer on NATS: one work-queue stream, with a durable consumer per recipient. */
const openNatsPeer: OpenPeer = async (cast, number, received) => {
  const sealing = new Sealing(cast, number)
  const connection = await connectNats({ servers: `127.0.0.1:${cast.port}` })
  const manager = await jetstreamManager(connection)
  const name = `peer-${number}`
  await manager.consumers.add(NATS_STREAM, {
    durable_name: name,
    filter_subject: subjectOf(number),
    ack_policy: AckPolicy.Explicit,
    max_ack_pending: 10_000,
  })
  const client = jetstream(connection, { timeout: ACK_WITHIN_MS })
  const consumer = await client.consumers.get(NATS_STREAM, name)
  await consumer.consume({
    max_messages: READ_MAX,
    callback: (message) => {
      received(sealing.open(Buffer.from(message.data)))
      message.ack()
    },
  })
  return {
    send: (recipient, body) => client.publish(subjectOf(recipient), sealing.seal(recipient, body)),
    close: () => connection.close(),
  }
}

const subjectOf = (number: number): string => `mailbox.${number}`

const OPEN: Readonly<Record<ContenderName, OpenPeer>> = {
  sealpost: openSealpostPeer,
  redis: openRedisPeer,
  nats: openNatsPeer,
  'nats-sync': openNatsPeer,
}

const identityIn = ({ secrets, share }: RivalCast, number: number) => identityOf(secrets[number - share.first]!)

const ID_BYTES = 16
const SENDER_BYTES = 2

/** Seals and opens messages: id, sender's number and envelope. */
class Sealing {
  readonly #sealer: Sealer
  readonly #number: number
  readonly #correspondents: Correspondent[]
  #count = 0

  constructor(cast: RivalCast, number: number) {
    this.#number = number
    this.#sealer = new Sealer({ identity: identityIn(cast, number), meshId: cast.meshId })
    this.#correspondents = cast.peerKeys.map((peerKey, i) => ({
      peerKey,
      boxKey: fromHex(cast.boxKeys[i]!),
      boxEpoch: 1,
    }))
    for (const [i, other] of this.#correspondents.entries()) if (i !== number) this.#sealer.prepare(other)
  }

  seal(recipient: number, body: Uint8Array): Buffer {
    const head = Buffer.alloc(ID_BYTES + SENDER_BYTES)
    head.writeUInt32BE(this.#number)
    head.writeUInt32BE(++this.#count, 4)
    head.writeUInt16BE(this.#number, ID_BYTES)
    const to = this.#correspondents[recipient]!
    const draft = { to, envelopeId: idIn(head), stream: null, sentAtMs: Date.now(), body }
    return Buffer.concat([head, sealEnvelope(this.#sealer, draft)])
  }

  open(message: Buffer): Uint8Array {
    const from = this.#correspondents[message.readUInt16BE(ID_BYTES)]!
    const envelope = message.subarray(ID_BYTES + SENDER_BYTES)
    const opened = openEnvelope(this.#sealer, envelope, { from, envelopeId: idIn(message) })
    assert(opened.ok, 'a sealed message opens')
    return opened.body
  }
}

const idIn = (message: Buffer): EnvelopeId => toHex(message.subarray(0, ID_BYTES)) as EnvelopeId
