/** Tests confirmations against a broker and peers that lie, and across crashes of both sides. */
import { contentHash, generateIdentity, type Identity, type Note, ready, signConfirmation } from '@sealpost/identity'
import type { ReceiptEvent } from '@sealpost/protocol'
import type { EnvelopeId, PeerKey, PoolId } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { connect, openPeer } from '../client.ts'
import { bytesOf, type Message } from '../inbox/message.ts'
import { postTermsOf } from '../outbox/lane.ts'
import { type ConnectOptions, type Peer, portsOf } from '../peer.ts'
import type { PeerEvent } from '../ports.ts'
import { confirmationsOf } from '../sent/confirmations.ts'
import { sentLogOf } from '../sent/sent-log.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import type { StoreChange } from '../stores/store.ts'
import { TestingBroker } from './broker.ts'

beforeAll(() => ready())

class RecordingStore extends MemoryStore {
  readonly batches: (readonly StoreChange[])[] = []

  override write(changes: readonly StoreChange[]): Promise<void> {
    this.batches.push(changes)
    return super.write(changes)
  }
}

class Scene implements AsyncDisposable {
  readonly broker = new TestingBroker()
  readonly alice = this.enrol()
  readonly bob = this.enrol()
  readonly to: PeerKey = this.bob.signing.publicKey
  readonly events: PeerEvent[] = []
  readonly #peers: Peer[] = []

  enrol(): Identity {
    const identity = generateIdentity()
    this.broker.enrol(identity)
    return identity
  }

  async open(identity: Identity, more: Partial<ConnectOptions> = {}): Promise<Peer> {
    const { url, meshId, webSocket, keys } = this.broker
    const onEvent = (event: PeerEvent) => this.events.push(event)
    const peer = await connect({ url, brokerKey: keys.publicKey, meshId, webSocket, identity, onEvent, ...more })
    this.#peers.push(peer)
    return peer
  }

  /** Opens Bob, who confirms and settles everything. */
  async openBob(more: Partial<ConnectOptions> = {}): Promise<{ bob: Peer; heard: Message[] }> {
    const bob = await this.open(this.bob, more)
    confirmationsOf(bob)
    const heard: Message[] = []
    bob.onMessage((message) => void heard.push(message))
    return { bob, heard }
  }

  /** Lets the broker report a receipt to Alice. */
  forgeReceipt(envelopeId: EnvelopeId, event: ReceiptEvent): void {
    const socket = [...this.broker.sockets].find(({ peer }) => peer === this.alice.signing.publicKey)!
    socket.say({ type: 'receipts', items: [{ id: 900 as never, envelopeId, recipient: this.to, event, atMs: 5 }] })
  }

  tampered(): string[] {
    return this.events.flatMap((event) => (event.type === 'tamper' ? [event.reason] : []))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#peers.map((peer) => peer.close()))
  }
}

/** Sends a body with any note, as only a changed SDK could. */
function sendRaw(peer: Peer, to: PeerKey, { note, body }: { note: Note; body: Uint8Array }): Promise<unknown> {
  return new Promise((accepted, refused) =>
    portsOf(peer).tell((engine) => engine.enqueue({ ...postTermsOf(to, {}, note), body, accepted, refused })),
  )
}

test('a broker that reports a settle falsely produces no confirmation', async () => {
  await using scene = new Scene()
  const alice = await scene.open(scene.alice)
  const sent = sentLogOf(alice)
  const { envelopeId } = await sent.send(scene.to, 'pay 5', { receipts: 'end', confirm: 'end' })
  scene.forgeReceipt(envelopeId!, 'settled')
  expect(await sent.wait(envelopeId!, 'settled')).toMatchObject({ state: 'settled', isSigned: false, signer: null })
  await expect(sent.wait(envelopeId!, 'confirmed', { timeoutMs: 1 })).rejects.toMatchObject({ code: 'timeout' })
})

test('a broker that reports an expiry falsely is refuted by the confirmation', async () => {
  await using scene = new Scene()
  const alice = await scene.open(scene.alice)
  const sent = sentLogOf(alice)
  const { envelopeId } = await sent.send(scene.to, 'pay 5', { receipts: 'end', confirm: 'end' })
  scene.forgeReceipt(envelopeId!, 'expired')
  await expect(sent.wait(envelopeId!, 'settled')).rejects.toMatchObject({ code: 'message_expired' })
  await scene.openBob()
  await expect
    .poll(() => sent.find(envelopeId!))
    .toMatchObject({ state: 'confirmed', isSigned: true, signer: scene.to })
})

test('a confirmation counts only with the signature of the recipient over this very message', async () => {
  await using scene = new Scene()
  const [alice, eve, bob] = [
    await scene.open(scene.alice),
    await scene.open(scene.enrol()),
    await scene.open(scene.bob),
  ]
  const sent = sentLogOf(alice)
  const { envelopeId } = await sent.send(scene.to, 'pay 5', { confirm: 'end' })
  const truth = {
    ...{ meshId: scene.broker.meshId, sender: alice.key, recipient: bob.key, envelopeId: envelopeId! },
    ...{ contentHash: contentHash(bytesOf('pay 5'), null), outcome: 'settled' as const, reason: '', atMs: 7 },
  }
  const note = { inReplyTo: envelopeId!, isConfirmation: true }
  const [ofBob, ofEve] = [scene.bob.signing, portsOf(eve).signing]
  const lies: readonly (readonly [from: Peer, body: Uint8Array])[] = [
    [bob, bytesOf('nonsense')],
    [bob, signConfirmation(ofBob, { ...truth, contentHash: contentHash(bytesOf('pay 9'), null) })],
    [bob, signConfirmation(ofBob, { ...truth, sender: eve.key })],
    [bob, signConfirmation(ofBob, { ...truth, meshId: '0e'.repeat(16) as never })],
    [eve, signConfirmation(ofEve, { ...truth, recipient: eve.key })],
    [eve, signConfirmation(ofBob, truth)], // Bob's own words, passed on by another
  ]
  for (const [from, body] of lies) await sendRaw(from, alice.key, { note, body })
  await expect.poll(() => scene.tampered()).toEqual(['confirmation_forged', ...Array(5).fill('confirmation_foreign')])
  expect(sent.find(envelopeId!)).toMatchObject({ state: 'stored' })
  await sendRaw(bob, alice.key, { note, body: signConfirmation(ofBob, truth) })
  expect(await sent.wait(envelopeId!, 'confirmed')).toMatchObject({ state: 'confirmed', atMs: 7 })
})

test('peers that confirm each other exchange one confirmation for each message', async () => {
  await using scene = new Scene()
  const alice = await scene.open(scene.alice)
  confirmationsOf(alice)
  const sent = sentLogOf(alice)
  const { bob, heard } = await scene.openBob()
  await sent.send(bob.key, 'one', { wait: 'confirmed' })
  const both = { confirm: 'all', isConfirmation: true, inReplyTo: 'ab'.repeat(16) as EnvelopeId }
  await sendRaw(bob, alice.key, { note: both, body: bytesOf('a confirmation that asks for one') })
  await sent.send(bob.key, 'two', { wait: 'confirmed' })
  const count = scene.broker.heard.filter(({ type }) => type === 'send' || type === 'sendWith').length
  expect(count).toBe(5) // two messages, two confirmations, and the malformed one
  expect(heard.map((message) => message.text())).toEqual(['one', 'two'])
})

test('a settle and its confirmation are stored in one write, and the next process sends what a crash has stopped', async () => {
  await using scene = new Scene()
  const alice = await scene.open(scene.alice)
  const sent = sentLogOf(alice)
  const before = new RecordingStore()
  scene.broker.intercept = (socket, { type }) => type === 'send' && socket.peer === scene.to
  const { bob, heard } = await scene.openBob({ store: before })
  const { envelopeId } = await sent.send(scene.to, 'pay 5', { confirm: 'end' })
  await expect.poll(() => heard.length).toBe(1)
  await expect.poll(() => [...before.records.values()].some(({ kind }) => kind === 'sealed')).toBe(true)
  const batch = before.batches.find((changes) => changes.some(({ record }) => record?.kind === 'mark'))!
  expect(batch.map(({ record }) => record?.kind).sort()).toEqual(['mark', 'sealed'])
  const left = new MemoryStore(before.records) // what a killed process leaves
  await bob.close()
  scene.broker.intercept = undefined
  expect(sent.find(envelopeId!)).toMatchObject({ state: 'stored' })
  await scene.openBob({ store: left })
  expect(await sent.wait(envelopeId!, 'confirmed')).toMatchObject({ isSigned: true })
})

test('a message that is pushed again after its settle is confirmed again, in case the first confirmation was lost', async () => {
  await using scene = new Scene()
  const sent = sentLogOf(await scene.open(scene.alice))
  const bob = await scene.open(scene.bob)
  bob.onMessage(() => undefined)
  scene.broker.intercept = (_, { type }) => type === 'settle'
  const { envelopeId } = await sent.send(scene.to, 'pay 5', { confirm: 'end' })
  await expect.poll(() => bob.counters.settled).toBe(1)
  confirmationsOf(bob) // until now, this peer sent no confirmations
  scene.broker.pushAll([...scene.broker.sockets].find(({ peer }) => peer === bob.key)!, 2)
  expect(await sent.wait(envelopeId!, 'confirmed')).toMatchObject({ isSigned: true })
  expect(bob.counters).toMatchObject({ received: 1, duplicates: 1 })
})

test('a rejection is signed with its reason, and a reading only if the sender asks for it', async () => {
  await using scene = new Scene()
  const alice = await scene.open(scene.alice)
  const sent = sentLogOf(alice)
  const bob = await scene.open(scene.bob)
  const confirmations = confirmationsOf(bob)
  const held: Message[] = []
  bob.onMessage((message) => {
    held.push(message)
    confirmations.read(message)
    return new Promise(() => undefined)
  })
  const [one, two, plain] = await Promise.all([
    sent.send(bob.key, 'one', { confirm: 'all' }),
    sent.send(bob.key, 'two', { confirm: 'end' }),
    alice.send(bob.key, 'three'),
  ])
  await expect.poll(() => sent.find(one.envelopeId!)).toMatchObject({ state: 'read', isSigned: true })
  for (const message of held) message.reject('not for me')
  await expect(sent.wait(two.envelopeId!, 'settled')).rejects.toMatchObject({
    code: 'message_rejected',
    message: expect.stringContaining('not for me'),
  })
  expect(sent.list().map(({ state, reason, isSigned }) => [state, reason, isSigned])).toEqual([
    ['rejected', 'not for me', true],
    ['rejected', 'not for me', true],
  ])
  await confirmations.stored()
  expect(sent.find(plain.envelopeId)).toBe(null)
})

test('the log outlives the process: a later one seals the message, and learns that it was confirmed', async () => {
  await using scene = new Scene()
  const before = new MemoryStore()
  const { url: _, ...place } = { ...scene.broker, url: '' }
  const { meshId, webSocket, keys } = place
  const offline = await openPeer({
    ...{ url: 'ws://nowhere.example', brokerKey: keys.publicKey, meshId, identity: scene.alice, store: before },
    webSocket: class extends webSocket {
      override send(): void {}
    } as typeof webSocket,
  })
  await sentLogOf(offline).enqueue(scene.to, 'written on a train', { receipts: 'end', confirm: 'end' })
  await expect.poll(() => [...before.records.values()].some((record) => record.kind === 'sent' && record.outboxNo > 0)).toBe(true) // biome-ignore format: one thing
  await offline.close()
  const alice = await scene.open(scene.alice, { store: new MemoryStore(before.records) })
  const sent = sentLogOf(alice)
  await expect.poll(() => sent.list()).toMatchObject([{ state: 'stored', to: scene.to }])
  await scene.openBob()
  await expect.poll(() => sent.list()).toMatchObject([{ state: 'confirmed', isSigned: true }])
})

test('a confirmation of a message to a pool counts only from a member of the pool', async () => {
  await using scene = new Scene()
  const [alice, eve, bob] = [
    await scene.open(scene.alice),
    await scene.open(scene.enrol()),
    await scene.open(scene.bob),
  ]
  const sent = sentLogOf(alice).recordAll()
  const pool = { id: 'b0'.repeat(32) as PoolId, name: 'workers', members: [bob.key] }
  const envelopeId = 'ab'.repeat(16) as EnvelopeId
  const nothing = () => undefined
  const job = {
    poolId: pool.id,
    body: bytesOf('a job'),
    priority: 'next',
    ttlSeconds: 0,
    note: { confirm: 'end' },
  } as const
  portsOf(alice).tell(({ hooks }) => {
    const send = hooks.sendingToPool!(pool, { ...job, accepted: nothing, refused: nothing })
    send.sealed!(envelopeId)
    send.accepted({ envelopeId, isDuplicate: false, admittedAtMs: 1, ackedAtMs: 2 })
  })
  expect(sent.find(envelopeId)).toMatchObject({ state: 'stored', to: pool.id, asksConfirmation: true })
  const note = { inReplyTo: envelopeId, isConfirmation: true }
  const truth = {
    ...{ meshId: scene.broker.meshId, sender: alice.key, envelopeId, contentHash: contentHash(bytesOf('a job'), null) },
    ...{ outcome: 'settled' as const, reason: '', atMs: 7 },
  }
  for (const peer of [eve, bob])
    await sendRaw(peer, alice.key, { note, body: signConfirmation(portsOf(peer).signing, { ...truth, recipient: peer.key }) }) // biome-ignore format: short
  expect(await sent.wait(envelopeId, 'confirmed')).toMatchObject({ signer: bob.key })
  expect(scene.tampered()).toEqual(['confirmation_foreign'])
})

test('a reply counts only from the recipient, and the first one stays', async () => {
  await using scene = new Scene()
  const [alice, eve, bob] = [
    await scene.open(scene.alice),
    await scene.open(scene.enrol()),
    await scene.open(scene.bob),
  ]
  const sent = sentLogOf(alice).recordAll()
  const heard: Message[] = []
  alice.onMessage((message) => void heard.push(message))
  const { envelopeId } = await alice.send(bob.key, 'one')
  for (const [peer, body] of [[eve, 'of Eve'], [bob, 'first'], [bob, 'second']] as const) // biome-ignore format: short
    await sendRaw(peer, alice.key, { note: { inReplyTo: envelopeId }, body: bytesOf(body) })
  await expect.poll(() => heard.length).toBe(3)
  const first = heard.find((message) => message.text() === 'first')!
  expect(sent.find(envelopeId)!.reply).toMatchObject({ envelopeId: first.envelopeId, sender: bob.key, isError: false })
})
