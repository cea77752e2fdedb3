/** Tests that a reply and the end of its message are one write, so that no crash separates them. */
import { generateIdentity, type Identity, ready } from '@sealpost/identity'
import { beforeAll, describe, expect, test } from 'vitest'
import { connect } from '../client.ts'
import type { ConnectOptions, Peer } from '../peer.ts'
import type { PeerEvent } from '../ports.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import type { StoreRecord } from '../stores/records.ts'
import type { PeerStore, StoreChange } from '../stores/store.ts'
import { TestingBroker } from '../test/broker.ts'
import type { Message } from './message.ts'
import { rejectWithReply, settleWithReply } from './replies.ts'

beforeAll(() => ready())

/** Records every write, so that a test can continue after any of them. */
class RecordingStore implements PeerStore {
  readonly memory: MemoryStore
  readonly batches: (readonly StoreChange[])[] = []

  constructor(records?: ReadonlyMap<string, StoreRecord>) {
    this.memory = new MemoryStore(records)
  }

  load(): Promise<StoreRecord[]> {
    return this.memory.load()
  }

  async write(changes: readonly StoreChange[]): Promise<void> {
    this.batches.push(changes)
    await this.memory.write(changes)
  }

  async close(): Promise<void> {}

  /** Returns the records after each write, as a crash would leave them. */
  get crashes(): Map<string, StoreRecord>[] {
    const records = new Map<string, StoreRecord>()
    return this.batches.map((batch) => {
      for (const { key, record } of batch) {
        if (record) records.set(key, record)
        else records.delete(key)
      }
      return new Map(records)
    })
  }
}

class Couple {
  readonly broker = new TestingBroker()
  readonly alice = this.#identity()
  readonly bob = this.#identity()
  readonly store = new RecordingStore()

  #identity(): Identity {
    const identity = generateIdentity()
    this.broker.enrol(identity)
    return identity
  }

  options(identity: Identity, store?: PeerStore): ConnectOptions {
    const { url, meshId, webSocket, keys } = this.broker
    return { url, brokerKey: keys.publicKey, meshId, webSocket, identity, ...(store && { store }) }
  }

  /** Passes one message from Alice to `use`. The broker then never receives what Bob sends. */
  async receive(use: (bob: Peer, message: Message) => Promise<unknown>, options = {}): Promise<void> {
    const alice = await connect(this.options(this.alice))
    await alice.send(this.bob.signing.publicKey, 'question', options)
    const bob = await connect(this.options(this.bob, this.store))
    await bob.lookupKey(alice.key)
    const ENDS = ['settle', 'reject', 'send', 'sendWith']
    this.broker.intercept = (_, { type }) => ENDS.includes(type)
    for await (const message of bob) {
      await use(bob, message)
      break
    }
    await Promise.all([alice.close(), bob.close()])
    this.broker.intercept = undefined
  }

  async repliesForAlice(count: number): Promise<string[]> {
    const alice = await connect(this.options(this.alice))
    await alice.lookupKey(this.bob.signing.publicKey) // the reply follows all pushed messages
    const replies: string[] = []
    const all = Promise.withResolvers<void>()
    alice.onMessage((message) => {
      replies.push(message.text())
      if (replies.length === count) all.resolve()
    })
    if (count > 0) await all.promise
    await alice.close()
    return replies
  }
}

const kindsOf = (records: ReadonlyMap<string, StoreRecord>) => new Set([...records.values()].map(({ kind }) => kind))

describe('settleWithReply', () => {
  test('stores the reply and the settlement in one write', async () => {
    const couple = new Couple()
    await couple.receive((bob, message) => settleWithReply(bob, message, 'answer'))
    const { crashes } = couple.store
    const replies = crashes.map((records) => kindsOf(records).has('sealed') || kindsOf(records).has('waiting'))
    expect(replies).toContain(true)
    expect(crashes.map((records) => kindsOf(records).has('mark'))).toEqual(replies)
  })

  test('after a crash between any two writes, the next process either replies or has the message again', async () => {
    for (let writes = 1; ; writes++) {
      const couple = new Couple()
      await couple.receive((bob, message) => settleWithReply(bob, message, 'answer'))
      const records = couple.store.crashes[writes - 1]
      if (!records) return expect(writes).toBeGreaterThan(2)
      const sent = Promise.withResolvers<void>()
      const onEvent = ({ type }: PeerEvent) => void (type === 'sent' && sent.resolve())
      const next = await connect({ ...couple.options(couple.bob, new RecordingStore(records)), onEvent })
      const again: string[] = []
      next.onMessage((message) => again.push(message.text()))
      await next.lookupKey(couple.alice.signing.publicKey) // the reply follows all earlier frames
      const isReplied = kindsOf(records).has('mark')
      if (isReplied) await sent.promise
      await next.close()
      expect(again).toEqual(isReplied ? [] : ['question'])
      expect(await couple.repliesForAlice(isReplied ? 1 : 0)).toEqual(isReplied ? ['answer'] : [])
    }
  })

  test('keeps the message open if the reply is refused', async () => {
    const couple = new Couple()
    await couple.receive(
      async (bob, message) => {
        const tooLarge = settleWithReply(bob, message, new Uint8Array(2 ** 20))
        await expect(tooLarge).rejects.toMatchObject({ code: 'body_too_large' })
        const automatic = settleWithReply(bob, message, 'x', { isAutomatic: true })
        await expect(automatic).rejects.toMatchObject({ code: 'no_auto_reply' })
        expect(message.state).toBe('open')
      },
      { noAutoReply: true },
    )
  })

  test('refuses to reply to a message that has been ended', async () => {
    const couple = new Couple()
    await couple.receive(async (bob, message) => {
      message.settle()
      await expect(settleWithReply(bob, message, 'late')).rejects.toMatchObject({ code: 'message_ended' })
    })
    expect(couple.store.crashes.some((records) => kindsOf(records).has('sealed'))).toBe(false)
  })
})

describe('rejectWithReply', () => {
  test('stores the error reply and the rejection in one write', async () => {
    const couple = new Couple()
    await couple.receive((bob, message) => rejectWithReply(bob, message, 'no_such_file', 'There is no such file.'))
    const { crashes } = couple.store
    const rejected = crashes.map((records) => kindsOf(records).has('rejected'))
    expect(rejected).toContain(true)
    expect(crashes.map((records) => kindsOf(records).has('sealed'))).toEqual(rejected)
  })
})
