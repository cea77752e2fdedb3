/** Tests that a message is sent once per key, whichever write the process survives. */
import { generateIdentity, ready } from '@sealpost/identity'
import { beforeAll, expect, test } from 'vitest'
import { connect, openPeer } from '../client.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import type { StoreRecord } from '../stores/records.ts'
import type { PeerStore, StoreChange } from '../stores/store.ts'
import { TestingBroker } from '../test/broker.ts'
import { OnceStore, sendOnce } from './once.ts'

beforeAll(() => ready())

/** A store that remembers its contents after each write. */
class Recorder extends MemoryStore {
  readonly states: ReadonlyMap<string, StoreRecord>[] = []

  override async write(changes: readonly StoreChange[]): Promise<void> {
    await super.write(changes)
    this.states.push(new Map(this.records))
  }
}

async function couple() {
  const broker = new TestingBroker()
  const [alice, bob] = [generateIdentity(), generateIdentity()]
  broker.enrol(alice)
  broker.enrol(bob)
  const { url, meshId, webSocket, keys } = broker
  const place = { url, brokerKey: keys.publicKey, meshId, webSocket }
  const received: string[] = []
  const recipient = await connect({ ...place, identity: bob })
  recipient.onMessage((message) => void received.push(message.text()))
  const open = async (store: PeerStore, now?: () => number) => {
    const once = new OnceStore(store, now)
    const peer = await openPeer({ ...place, identity: alice, store: once })
    const send = (key: string, text: string, fingerprint = '') =>
      sendOnce(peer, once, recipient.key, text, { key, fingerprint })
    return { peer, send }
  }
  return { open, received, recipient }
}

test('after any write, the next process sends the message exactly once', async () => {
  const { open, received, recipient } = await couple()
  const recorder = new Recorder()
  const first = await open(recorder)
  await (await first.send('k', 'once')).receipt
  await first.peer.close()
  await recipient.lookupKey(recipient.key) // follows all deliveries
  expect(recorder.states.length).toBeGreaterThan(2)
  for (const records of [new Map<string, StoreRecord>(), ...recorder.states]) {
    const before = received.length
    const next = await open(new MemoryStore(records))
    const kinds = new Set([...records.values()].map(({ kind }) => kind))
    const hadKey = kinds.has('sendKey')
    const outcome = await next.send('k', 'once')
    expect(outcome.isRepeated).toBe(hadKey)
    await outcome.receipt
    await next.peer.lookupKey(recipient.key) // follows all sends
    await next.peer.close()
    await recipient.lookupKey(recipient.key) // follows all deliveries
    // A message that was only waiting had not been sent, and a sealed one is recognized if it was sent before.
    expect(received.length - before).toBe(hadKey && !kinds.has('waiting') ? 0 : 1)
    if (kinds.has('waiting') || kinds.has('sealed')) expect(hadKey).toBe(true)
  }
})

test('a repeated key returns the first outcome, and a different request is refused', async () => {
  const { open } = await couple()
  const { peer, send } = await open(new MemoryStore())
  const [first, second] = await Promise.all([send('k', 'a', 'a'), send('k', 'a', 'a')])
  expect([first.isRepeated, second.isRepeated, second.outboxNo]).toEqual([false, true, first.outboxNo])
  expect((await second.receipt)!.envelopeId).toBe((await first.receipt)!.envelopeId)
  expect((await send('k', 'a', 'a')).envelopeId).toBe((await first.receipt)!.envelopeId)
  await expect(send('k', 'b', 'b')).rejects.toMatchObject({ code: 'key_reused' })
  await peer.close()
})

test('a key whose message was refused before it was stored can be used again', async () => {
  const { open } = await couple()
  const { peer, send } = await open(new MemoryStore())
  await expect(send('k', 'x'.repeat(70_000))).rejects.toMatchObject({ code: 'body_too_large' })
  expect((await send('k', 'short')).isRepeated).toBe(false)
  await peer.close()
})

test('keys are forgotten after a day', async () => {
  const { open } = await couple()
  let nowMs = 1_000
  const { peer, send } = await open(new MemoryStore(), () => nowMs)
  await send('old', 'a')
  nowMs += 25 * 3_600_000
  await send('new', 'b')
  expect((await send('old', 'a')).isRepeated).toBe(false)
  expect((await send('new', 'b')).isRepeated).toBe(true)
  await peer.close()
})
