/** Tests what time changes in conversations with ratchets, with a clock that the test sets. */
import { generateIdentity, type Identity, isRatcheted, ready } from '@sealpost/identity'
import { Prekeys, readPrekeyStatement } from '@sealpost/identity/ratchet'
import type { FrameOf } from '@sealpost/protocol'
import { type DeliveryId, fromBase64url, type Millis } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { connect } from '../client.ts'
import { prepareSend } from '../outbox/prepare.ts'
import { type Peer, portsOf, type Secrecy } from '../peer.ts'
import { claimPrekeys } from '../prekeys/prekeys.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import { TestingBroker } from '../test/broker.ts'
import { events } from '../test/client.ts'
import { PrekeyDirectory } from '../test/prekey-directory.ts'
import { PeerSecrecy } from './peer-secrecy.ts'

beforeAll(ready)

const HOUR_MS: Millis = 3_600_000
const DAY_MS: Millis = 24 * HOUR_MS

/** A broker, its directory, and the clock of all peers. */
class Scene implements AsyncDisposable {
  readonly broker = new TestingBroker()
  readonly directory = new PrekeyDirectory(this.broker.meshId)
  nowMs: Millis = Date.now()
  readonly #peers: Peer[] = []
  readonly #sent = new Map<string, FrameOf<'send'>['envelopes']>()

  async open(identity = this.enrol(), store = new MemoryStore()) {
    const { url, meshId, webSocket, keys } = this.broker
    const seen = events()
    const place = { url, brokerKey: keys.publicKey, meshId, webSocket, identity, onEvent: seen.onEvent }
    const peer = await connect({ ...place, store, secrecy: this.#secrecy })
    this.#peers.push(peer)
    return { peer, seen, store, identity, tick: () => portsOf(peer).tell((engine) => engine.tick()) }
  }

  async openPublished(...given: Parameters<Scene['open']>) {
    const opened = await this.open(...given)
    await opened.seen.next('prekeys_published')
    return opened
  }

  enrol(): Identity {
    const identity = generateIdentity()
    this.broker.enrol(identity)
    return identity
  }

  /** The messages that the broker has received from the peer. */
  sentBy(peer: Peer): FrameOf<'send'>['envelopes'] {
    return this.#sent.get(peer.key) ?? []
  }

  /** Resolves when the broker has received this many messages from the peer. */
  hears(peer: Peer, count: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.broker.intercept = (socket, frame) => {
      if (frame.type !== 'send' && frame.type !== 'sendWith') return false
      const envelopes = frame.type === 'send' ? frame.envelopes : frame.envelopes.map(({ send }) => send)
      this.#sent.set(socket.peer!, [...(this.#sent.get(socket.peer!) ?? []), ...envelopes])
      if (this.sentBy(peer).length >= count) resolve()
      return false
    }
    return promise
  }

  /** The id of the peer's signed prekey in the directory. */
  prekeyIdOf({ key: peerKey }: Peer): number {
    const bytes = fromBase64url(this.directory.statementOf(peerKey)!)
    const verdict = readPrekeyStatement(bytes, { meshId: this.broker.meshId, peerKey, nowMs: this.nowMs })
    return verdict.ok ? verdict.statement.id : 0
  }

  readonly #secrecy: Secrecy = (peer, options, records) => {
    const platform = { now: () => this.nowMs, accessTo: () => this.directory.accessOf(peer.key) }
    new PeerSecrecy(portsOf(peer), { options, records: records!, platform }).begin()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#peers.map((peer) => peer.close()))
  }
}

type Opened = Awaited<ReturnType<Scene['open']>>

/** Settles messages. Resolves when this many have come. */
function settles({ peer }: Opened, count: number): Promise<string[]> {
  const texts: string[] = []
  return new Promise((resolve) => {
    peer.onMessage((message) => {
      texts.push(message.text()!)
      if (texts.length === count) resolve(texts)
    })
  })
}

const newsOf = ({ seen }: Opened): string[] => seen.all('ratchet').map(({ news }) => news)

function prekeysOf({ store }: Opened): Prekeys {
  const record = [...store.records.values()].find(({ kind }) => kind === 'prekeys')
  return Prekeys.restore((record as { bytes: Uint8Array }).bytes)
}

test('a peer that only receives sends an empty message after one hour, which its sender does not see', async () => {
  await using scene = new Scene()
  const [alice, bob] = [await scene.openPublished(), await scene.openPublished()]
  const heard = scene.hears(bob.peer, 1)
  const seen: unknown[] = []
  alice.peer.onMessage((message) => void seen.push(message))
  const settled = settles(bob, 1)
  await alice.peer.send(bob.peer.key, 'one')
  await settled
  await bob.peer.lookupKey(alice.peer.key)
  scene.nowMs += HOUR_MS - 1
  bob.tick()
  expect(bob.peer.pendingCount).toBe(0)
  scene.nowMs += 1
  bob.tick()
  expect(bob.peer.pendingCount).toBe(1)
  await heard
  expect(scene.sentBy(bob.peer)).toMatchObject([{ recipient: alice.peer.key }])
  expect(isRatcheted(scene.sentBy(bob.peer)[0]!.envelope)).toBe(true)
  await expect.poll(() => scene.broker.queues.get(alice.peer.key)).toEqual([])
  expect([seen, alice.seen.all('tamper')]).toEqual([[], []])
})

test('a peer that only receives sends an empty message after 1,000 messages', async () => {
  await using scene = new Scene()
  const [alice, bob] = [await scene.openPublished(), await scene.openPublished()]
  const heard = scene.hears(bob.peer, 1)
  const most = settles(bob, 999)
  await Promise.all(Array.from({ length: 999 }, () => alice.peer.send(bob.peer.key, 'text')))
  await most
  expect(scene.sentBy(bob.peer)).toEqual([])
  const last = settles(bob, 1)
  await alice.peer.send(bob.peer.key, 'the last one')
  await Promise.all([last, heard])
  expect(scene.sentBy(bob.peer)).toMatchObject([{ recipient: alice.peer.key }])
})

test('the first signed prekey is published with one-time prekeys in one request, so no agreement is of last resort', async () => {
  await using scene = new Scene()
  await scene.openPublished()
  expect(scene.directory.offered).toEqual([100])
})

test('the signed prekey of a peer that stays connected changes weekly, and is deleted after 60 more days', async () => {
  await using scene = new Scene()
  const bob = await scene.openPublished()
  const first = scene.prekeyIdOf(bob.peer)
  scene.nowMs += 7 * DAY_MS + 1
  bob.tick()
  await bob.seen.next('prekeys_published', 2)
  expect(scene.prekeyIdOf(bob.peer)).not.toBe(first)
  scene.nowMs += 59 * DAY_MS
  bob.tick()
  await bob.seen.next('prekeys_published', 3)
  expect(prekeysOf(bob).signedOf(first)).not.toBe(null)
  scene.nowMs += DAY_MS
  bob.tick()
  await bob.seen.next('prekeys_published', 4)
  expect(prekeysOf(bob).signedOf(first)).toBe(null)
})

test('a one-time prekey that was claimed and never used is deleted 60 days after the others were replaced', async () => {
  await using scene = new Scene()
  const bob = await scene.openPublished()
  const [claim] = await claimPrekeys(scene.directory.accessOf(bob.peer.key), [bob.peer.key])
  if (!claim?.ok) throw new Error('there are prekeys')
  const { id } = claim.oneTime!
  scene.nowMs += 30 * DAY_MS + 1
  bob.tick()
  await bob.seen.next('prekeys_published', 2)
  expect([prekeysOf(bob).oneTimeKey(id) !== null, prekeysOf(bob).oneTimeCount]).toEqual([true, 200])
  const [later] = await claimPrekeys(scene.directory.accessOf(bob.peer.key), [bob.peer.key])
  scene.nowMs += 59 * DAY_MS
  bob.tick()
  await bob.seen.next('prekeys_published', 3)
  expect(prekeysOf(bob).oneTimeKey(id)).not.toBe(null)
  scene.nowMs += DAY_MS
  bob.tick()
  await bob.seen.next('prekeys_published', 4)
  expect(prekeysOf(bob).oneTimeKey(id)).toBe(null)
  expect(prekeysOf(bob).oneTimeKey(later?.ok ? later.oneTime!.id : 0)).not.toBe(null)
})

test('30 days offline with exhausted prekeys: the message is delivered, and both sides report the last resort', async () => {
  await using scene = new Scene()
  const [alice, bob] = [await scene.openPublished(), await scene.openPublished()]
  await bob.peer.close()
  scene.directory.exhaust(bob.peer.key)
  scene.nowMs += 30 * DAY_MS
  await alice.peer.send(bob.peer.key, 'after a month')
  expect(newsOf(alice)).toEqual(['ratchet_agreed', 'ratchet_last_resort'])
  const again = await scene.open(bob.identity, new MemoryStore(bob.store.records))
  expect(await settles(again, 1)).toEqual(['after a month'])
  expect(newsOf(again)).toEqual(['ratchet_agreed', 'ratchet_last_resort'])
})

test('a rejected message opens again when it is redriven; after 60 days, its key is gone', async () => {
  await using scene = new Scene()
  const [alice, bob] = [await scene.openPublished(), await scene.openPublished()]
  const waiters: (() => void)[] = []
  bob.peer.onMessage((message) => {
    message.reject('not now')
    waiters.shift()!()
  })
  const rejected = () => new Promise<void>((resolve) => waiters.push(resolve))
  const first = rejected()
  const stored = scene.hears(alice.peer, 1)
  void alice.peer.send(bob.peer.key, 'keep it')
  await Promise.all([stored, first])
  const [{ envelopeId, envelope, priority }] = scene.sentBy(alice.peer) as [FrameOf<'send'>['envelopes'][number]]
  const redrive = (id: number) => {
    const socket = [...scene.broker.sockets].find(({ peer }) => peer === bob.peer.key)!
    const of = { envelopeId, envelope, priority, sender: alice.peer.key, enqueuedAtMs: 1 }
    socket.push([{ ...of, id: id as DeliveryId, attempt: 2 }])
  }
  scene.nowMs += 59 * DAY_MS
  bob.tick()
  const second = rejected()
  redrive(901)
  await second
  expect(bob.seen.all('tamper')).toEqual([])
  scene.nowMs += DAY_MS + 1
  bob.tick()
  redrive(902)
  expect(await bob.seen.next('tamper')).toMatchObject({ sender: alice.peer.key, reason: 'ratchet_key_gone' })
})

test('a prepared message that waits for prekeys is rejected when its peer is closed', async () => {
  await using scene = new Scene()
  const [alice, bob] = [await scene.openPublished(), await scene.openPublished()]
  const asked = Promise.withResolvers<void>()
  scene.directory.intercept = ({ signal }) => {
    asked.resolve()
    return new Promise((_, reject) => signal!.addEventListener('abort', () => reject(signal!.reason)))
  }
  const prepared = prepareSend(alice.peer, bob.peer.key, 'never sent')
  await asked.promise
  await Promise.all([expect(prepared).rejects.toMatchObject({ code: 'closed' }), alice.peer.close()])
})
