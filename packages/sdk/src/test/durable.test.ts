/** Tests what a client stores, and how the next process resumes. */
import { generateIdentity, type Identity, ready } from '@sealpost/identity'
import type { ClientFrame } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import { beforeAll, describe, expect, test } from 'vitest'
import { connect, openPeer } from '../client.ts'
import type { ConnectOptions, Peer } from '../peer.ts'
import type { PeerEvent, WebSocketConstructor } from '../ports.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import type { StoreRecord } from '../stores/records.ts'
import type { PeerStore, StoreChange } from '../stores/store.ts'
import { TestingBroker } from './broker.ts'

beforeAll(() => ready())

/** A store whose replies the test controls, and whose records it can see. */
class HeldStore implements PeerStore {
  readonly memory: MemoryStore
  readonly batches: (readonly StoreChange[])[] = []
  readonly closed = Promise.withResolvers<void>()
  gate: Promise<void> = Promise.resolve()

  constructor(former?: HeldStore) {
    this.memory = new MemoryStore(former?.memory.records)
  }

  get records(): StoreRecord[] {
    return [...this.memory.records.values()].filter((record) => record.kind !== 'owner')
  }

  load(): Promise<StoreRecord[]> {
    return this.memory.load()
  }

  async write(changes: readonly StoreChange[]): Promise<void> {
    this.batches.push(changes)
    await this.gate
    await this.memory.write(changes)
  }

  async close(): Promise<void> {
    this.closed.resolve()
  }
}

const nowhere = class {
  binaryType = ''
  readonly protocol = ''
  onopen = null
  onmessage = null
  onclose: ((event: { code: number }) => void) | null = null
  onerror = null
  send(): void {}
  close(): void {
    queueMicrotask(() => this.onclose?.({ code: 1006 }))
  }
} as WebSocketConstructor

class World {
  readonly broker = new TestingBroker()
  readonly alice = this.identity()
  readonly bob = this.identity()
  readonly bobKey: PeerKey = this.bob.signing.publicKey

  identity(): Identity {
    const identity = generateIdentity()
    this.broker.enrol(identity)
    return identity
  }

  options(identity: Identity, more: Partial<ConnectOptions> = {}): ConnectOptions {
    const { url, meshId, webSocket, keys } = this.broker
    return { url, brokerKey: keys.publicKey, meshId, webSocket, identity, ...more }
  }

  async textsForBob(count: number): Promise<string[]> {
    const bob = await connect(this.options(this.bob))
    const texts: string[] = []
    for await (const message of bob) {
      texts.push(message.text())
      message.settle()
      if (texts.length === count) break
    }
    await bob.close()
    return texts
  }

  heard(type: ClientFrame['type']): ClientFrame[] {
    return this.broker.heard.filter((frame) => frame.type === type)
  }
}

function events(count: number): { seen: PeerEvent[]; onEvent: (event: PeerEvent) => void; all: Promise<void> } {
  const seen: PeerEvent[] = []
  const all = Promise.withResolvers<void>()
  const onEvent = (event: PeerEvent) => {
    if (event.type === 'sent' || event.type === 'send_failed') seen.push(event)
    if (seen.length === count) all.resolve()
  }
  return { seen, onEvent, all: all.promise }
}

async function offline(world: World, store: PeerStore): Promise<Peer> {
  return openPeer(world.options(world.alice, { store, webSocket: nowhere }))
}

describe('the outbox', () => {
  test('stores the options of a message, and resends them in the next process', async () => {
    const world = new World()
    const first = new HeldStore()
    const before = await offline(world, first)
    const thread = 'c0'.repeat(16)
    await before.enqueue(world.bobKey, 'x', { thread, hops: 2, receipts: 'end', notBefore: 4_000_000_000_000 })
    await before.close()
    const { onEvent, all } = events(1)
    const after = await connect(world.options(world.alice, { store: new HeldStore(first), onEvent }))
    await all
    await after.close()
    const [frame] = world.broker.heard.filter((heard) => heard.type === 'sendWith')
    const terms = { thread, hops: 2, receipts: 'end', notBeforeMs: 4_000_000_000_000, ifOnline: false }
    expect(frame!.envelopes[0]!.terms).toMatchObject(terms)
    const bob = await connect(world.options(world.bob))
    for await (const message of bob) {
      expect([message.thread, message.hops, message.stream]).toEqual([thread, 2, null])
      message.settle()
      break
    }
    await bob.close()
  })

  test('stores a rejection before it is sent, like a settle', async () => {
    const world = new World()
    const bob = new HeldStore()
    const gate = Promise.withResolvers<void>()
    const [sender, recipient] = [
      await connect(world.options(world.alice)),
      await connect(world.options(world.bob, { store: bob })),
    ]
    bob.gate = gate.promise
    const rejected = Promise.withResolvers<void>()
    recipient.onMessage((message) => {
      message.reject('no')
      rejected.resolve()
    })
    await sender.send(world.bobKey, 'x')
    await rejected.promise
    await sender.send(world.bobKey, 'y') // a round trip, after which earlier frames have arrived
    expect(world.heard('reject')).toEqual([])
    gate.resolve()
    await expect.poll(() => world.heard('reject').length).toBeGreaterThan(0)
    await Promise.all([sender.close(), recipient.close()])
    expect(bob.records.map(({ kind }) => kind).sort()).toEqual(['mark', 'rejected', 'rejected'])
  })

  test('stores posts without a broker; the next process sends them once, in order, and reports them', async () => {
    const world = new World()
    const first = new HeldStore()
    const before = await offline(world, first)
    const posts = await Promise.all([1, 2, 3].map((n) => before.enqueue(world.bobKey, `train ${n}`)))
    await before.close()
    for (const { receipt } of posts) await expect(receipt).rejects.toMatchObject({ code: 'kept_for_later' })
    expect(first.records).toHaveLength(3)

    const { seen, onEvent, all } = events(3)
    const second = new HeldStore(first)
    const after = await connect(world.options(world.alice, { store: second, onEvent }))
    await all
    expect(seen).toMatchObject(posts.map(({ outboxNo }) => ({ type: 'sent', outboxNo, to: world.bobKey })))
    await after.close()
    expect(second.records).toEqual([])
    expect(await world.textsForBob(3)).toEqual(['train 1', 'train 2', 'train 3'])
  })

  test('sends nothing to the broker before it is stored', async () => {
    const world = new World()
    const store = new HeldStore()
    const alice = await connect(world.options(world.alice, { store }))
    await alice.lookupKey(world.bobKey)
    const gate = Promise.withResolvers<void>()
    store.gate = gate.promise
    const sent = alice.send(world.bobKey, 'patience')
    await alice.lookupKey(world.alice.signing.publicKey) // the reply follows all earlier frames
    expect(store.batches.at(-1)).toMatchObject([{ record: { kind: 'sealed' } }])
    expect(world.heard('send')).toEqual([])
    gate.resolve()
    await sent
    expect(world.heard('send')).toHaveLength(1)
    await alice.close()
  })

  test('stores the sends of one loop in one write, sealed, without any body in clear', async () => {
    const world = new World()
    const store = new HeldStore()
    const alice = await connect(world.options(world.alice, { store }))
    await alice.lookupKey(world.bobKey)
    const before = store.batches.length
    await Promise.all(Array.from({ length: 64 }, () => alice.send(world.bobKey, 'x')))
    await alice.close()
    expect(store.batches.slice(before).map((batch) => batch.length)).toEqual([64, 64])
    expect(store.batches[before]!.every(({ record }) => record?.kind === 'sealed')).toBe(true)
  })

  test('resends in-flight messages byte for byte after another crash', async () => {
    const world = new World()
    const said: string[] = []
    const cut = Promise.withResolvers<void>()
    world.broker.intercept = (_, frame) => {
      if (frame.type !== 'send') return false
      for (const { envelopeId, envelope } of frame.envelopes) said.push(`${envelopeId} ${envelope}`)
      cut.resolve()
      return said.length === 1
    }
    const first = new HeldStore()
    const before = await connect(world.options(world.alice, { store: first }))
    const { receipt } = await before.enqueue(world.bobKey, 'stubborn')
    await cut.promise
    const asItDied = new HeldStore(first)
    await before.close()
    await expect(receipt).rejects.toMatchObject({ code: 'kept_for_later' })

    const { seen, onEvent, all } = events(1)
    const after = await connect(world.options(world.alice, { store: asItDied, onEvent }))
    await all
    expect(seen[0]!.type).toBe('sent')
    expect([said.length, new Set(said).size]).toEqual([2, 1])
    await after.close()
  })

  test('does not resend messages older than the resend limit, and reports them', async () => {
    const world = new World()
    const first = new HeldStore()
    world.broker.intercept = (_, frame) => frame.type === 'send'
    const before = await connect(world.options(world.alice, { store: first }))
    await before.lookupKey(world.bobKey)
    await Promise.all(['old', 'as old'].map((text) => before.enqueue(world.bobKey, text)))
    await before.close()
    for (const [key, record] of [...first.memory.records])
      if (record.kind === 'sealed')
        await first.memory.write([{ key, record: { ...record, admittedAtMs: record.admittedAtMs - 13 * 3_600_000 } }])
    world.broker.heard.length = 0
    world.broker.intercept = undefined

    const { seen, onEvent, all } = events(2)
    const second = new HeldStore(first)
    const after = await connect(world.options(world.alice, { store: second, onEvent }))
    await all
    expect(seen).toMatchObject([1, 2].map(() => ({ type: 'send_failed', error: { code: 'maybe_sent' } })))
    await after.send(world.bobKey, 'new')
    await after.close()
    expect(second.records).toEqual([])
    expect(await world.textsForBob(1)).toEqual(['new'])
  })

  test('reports a final refusal, and deletes the message', async () => {
    const world = new World()
    const first = new HeldStore()
    const before = await offline(world, first)
    const stranger = generateIdentity().signing.publicKey
    const { outboxNo } = await before.enqueue(stranger, 'nobody is there')
    await before.close()
    const { seen, onEvent, all } = events(1)
    const second = new HeldStore(first)
    const after = await connect(world.options(world.alice, { store: second, onEvent }))
    await all
    expect(seen).toMatchObject([{ type: 'send_failed', outboxNo, error: { code: 'unknown_recipient' } }])
    await after.close()
    expect(second.records).toEqual([])
  })

  test('without a store accepts a post at once, without a number', async () => {
    const world = new World()
    const alice = await connect(world.options(world.alice))
    const { outboxNo, receipt } = await alice.enqueue(world.bobKey, 'light')
    expect([outboxNo, (await receipt).isDuplicate]).toEqual([0, false])
    await expect(alice.enqueue('no key' as PeerKey, 'x')).rejects.toMatchObject({ code: 'unknown_recipient' })
    await alice.close()
  })
})

describe('the inbox', () => {
  test('settles a message at the broker only once its settle is stored', async () => {
    const world = new World()
    const store = new HeldStore()
    const alice = await connect(world.options(world.alice))
    const bob = await connect(world.options(world.bob, { store }))
    const gate = Promise.withResolvers<void>()
    store.gate = gate.promise
    const handled = Promise.withResolvers<void>()
    bob.onMessage(() => handled.resolve())
    await alice.send(bob.key, 'x')
    await handled.promise
    await bob.lookupKey(bob.key) // the reply follows all earlier frames
    expect(world.heard('settle')).toEqual([])
    gate.resolve()
    await bob.close()
    expect(world.heard('settle')).toHaveLength(1)
    expect(store.records).toMatchObject([{ kind: 'mark', settled: [1, 1] }])
    await alice.close()
  })

  test('after a restart, the inbox hands out all unsettled messages again, but no settled ones', async () => {
    const world = new World()
    const alice = await connect(world.options(world.alice))
    world.broker.intercept = (_, frame) => frame.type === 'settle' // the broker never gets the settle
    const first = new HeldStore()
    const before = await connect(world.options(world.bob, { store: first }))
    await Promise.all(Array.from({ length: 10 }, (_, i) => alice.send(before.key, `${i}`)))
    const half = Promise.withResolvers<void>()
    const settled: string[] = []
    before.onMessage((message) => {
      if (Number(message.text()) % 2 === 1) return new Promise(() => undefined) // never resolves, so the handler still runs when the process dies
      settled.push(message.text())
      if (settled.length === 5) half.resolve()
      return undefined
    })
    await half.promise
    await before.close()

    const after = await connect(world.options(world.bob, { store: new HeldStore(first) }))
    const again: string[] = []
    for await (const message of after) {
      again.push(message.text())
      if (again.length === 5) break
    }
    expect([settled, again]).toEqual([
      ['0', '2', '4', '6', '8'],
      ['1', '3', '5', '7', '9'],
    ])
    expect(after.counters.duplicates).toBe(5)
    await Promise.all([alice.close(), after.close()])
  })
})

describe('a store', () => {
  test('that fails ends the peer: pending messages are refused, and the store is closed', async () => {
    const world = new World()
    const store = new HeldStore()
    const alice = await connect(world.options(world.alice, { store }))
    const rejected = Promise.withResolvers<void>()
    rejected.promise.catch(() => undefined)
    store.gate = rejected.promise
    const sent = alice.send(world.bobKey, 'x').catch((error) => error)
    const posted = alice.enqueue(world.bobKey, 'y').catch((error) => error)
    rejected.reject(new Error('disk full'))
    expect([await sent, await posted]).toMatchObject([{ code: 'store_failed' }, { code: 'store_failed' }])
    expect(await alice.closed).toMatchObject({ code: 'store_failed', cause: { message: 'disk full' } })
    await store.closed.promise
    expect(world.heard('send')).toEqual([])
    await expect(alice.send(world.bobKey, 'z')).rejects.toMatchObject({ code: 'store_failed' })
  })

  test('of another peer is refused and closed', async () => {
    const world = new World()
    const first = new HeldStore()
    await (await connect(world.options(world.alice, { store: first }))).close()
    const second = new HeldStore(first)
    await expect(connect(world.options(world.bob, { store: second }))).rejects.toMatchObject({ code: 'store_foreign' })
    await second.closed.promise
  })

  test('is closed if the broker refuses the peer', async () => {
    const world = new World()
    const store = new HeldStore()
    const stranger = generateIdentity()
    const peer = await openPeer(world.options(stranger, { store }))
    expect(await peer.closed).toMatchObject({ code: 'auth_failed' })
    await store.closed.promise
  })
})
