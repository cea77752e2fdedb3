import { generateIdentity, ready } from '@sealpost/identity'
import { type ClientFrame, clientForms, type FrameOf } from '@sealpost/protocol'
import { toHex } from '@sealpost/std'
import { beforeAll, describe, expect, test } from 'vitest'
import type { Peer } from './peer.ts'
import { TestingBroker } from './test/broker.ts'
import { events, take, World } from './test/client.ts'

beforeAll(() => ready())

describe.each(['binary', 'json'] as const)('%s', (form) => {
  test('the recipient reads what the sender sent, authenticated and in order', async () => {
    const options = { form: clientForms[form] }
    const world = new World()
    const [alice, bob] = [await world.peer(options), await world.peer(options)]
    const arrived = take(bob, 100)
    const receipts = await Promise.all(Array.from({ length: 100 }, (_, i) => alice.send(bob.key, `hello ${i}`)))
    const messages = await arrived
    expect(messages.map((message) => message.text())).toEqual(receipts.map((_, i) => `hello ${i}`))
    expect(messages.map((message) => message.envelopeId)).toEqual(receipts.map((receipt) => receipt.envelopeId))
    expect(new Set(messages.map((message) => message.sender))).toEqual(new Set([alice.key]))
    for (const { admittedAtMs, ackedAtMs } of receipts) expect(ackedAtMs).toBeGreaterThanOrEqual(admittedAtMs)
    await Promise.all([alice.close(), bob.close()])
    expect(world.broker.queues.get(bob.key)).toEqual([])
  })
})

describe('coalescing', () => {
  test('the sends of one loop share a frame, and so do the settles of one push', async () => {
    const world = new World()
    const [alice, bob] = [await world.peer(), await world.peer()]
    await alice.lookupKey(bob.key)
    const arrived = take(bob, 64)
    await Promise.all(Array.from({ length: 64 }, () => alice.send(bob.key, 'x')))
    await arrived
    await bob.close()
    expect(world.heard('send').map((frame) => frame.envelopes.length)).toEqual([64])
    expect(world.heard('settle').map((frame) => frame.ids.length)).toEqual([64])
    await alice.close()
  })

  test('the next sends of callers that await each send share one frame', async () => {
    const world = new World()
    const [alice, bob] = [await world.peer(), await world.peer()]
    await alice.lookupKey(bob.key)
    const sender = async () => {
      for (let i = 0; i < 3; i++) await alice.send(bob.key, 'x')
    }
    await Promise.all(Array.from({ length: 64 }, sender))
    expect(world.heard('send').map((frame) => frame.envelopes.length)).toEqual([64, 64, 64])
    await Promise.all([alice.close(), bob.close()])
  })

  test('a loop over messages settles the available messages in one frame', async () => {
    const world = new World()
    const [alice, bob] = [await world.peer(), await world.peer()]
    await Promise.all(Array.from({ length: 40 }, () => alice.send(bob.key, 'x')))
    let seen = 0
    for await (const message of bob) {
      seen += 1
      if (seen === 40) {
        message.settle()
        break
      }
    }
    await bob.close()
    expect(world.heard('settle').map((frame) => frame.ids.length)).toEqual([40])
    await alice.close()
  })
})

describe('receiving', () => {
  test('waiting mail is delivered when the recipient connects', async () => {
    const world = new World()
    const alice = await world.peer()
    const identity = world.identity()
    await alice.send(identity.signing.publicKey, 'later')
    const bob = await world.peer({ identity })
    const [message] = await take(bob, 1)
    expect(message!.text()).toBe('later')
    await Promise.all([alice.close(), bob.close()])
  })

  test('a redelivery while the handler runs starts no second run, and is settled when the run ends', async () => {
    const world = new World()
    const [alice, bob] = [await world.peer(), await world.peer()]
    const started = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const finish = Promise.withResolvers<void>()
    let runs = 0
    bob.onMessage((message) => {
      runs += 1
      started[message.text() === 'once' ? 0 : 1]!.resolve()
      return finish.promise
    })
    await alice.send(bob.key, 'once')
    await started[0]!.promise
    world.broker.pushAll(world.socketOf(bob), 2)
    await alice.send(bob.key, 'pushed after the redelivery')
    await started[1]!.promise
    finish.resolve()
    await finish.promise
    await bob.close()
    expect(runs).toBe(2)
    expect(bob.counters).toMatchObject({ received: 2, duplicates: 1, settled: 2 })
    await alice.close()
  })

  test('a message settled in an ended session is settled again when it is pushed again, without being shown', async () => {
    const world = new World()
    const { next, onEvent } = events()
    const [alice, bob] = [await world.peer(), await world.peer({ onEvent })]
    const cut = Promise.withResolvers<void>()
    let runs = 0
    bob.onMessage(() => {
      runs += 1
      world.socketOf(bob).cut(1006) // The broker never reads the settle of this message.
      cut.resolve()
    })
    const settled = Promise.withResolvers<void>()
    world.broker.intercept = (_, frame) => {
      if (frame.type === 'settle') settled.resolve()
      return false
    }
    await alice.send(bob.key, 'once')
    await cut.promise
    await next('disconnected')
    await settled.promise
    expect(runs).toBe(1)
    expect(bob.counters).toMatchObject({ received: 1, duplicates: 1, sessions: 2 })
    await Promise.all([alice.close(), bob.close()])
  })

  test('a handler that throws returns the message', async () => {
    const world = new World()
    const { next, onEvent } = events()
    const [alice, bob] = [await world.peer(), await world.peer({ onEvent })]
    const attempts: number[] = []
    const done = Promise.withResolvers<void>()
    bob.onMessage((message) => {
      attempts.push(message.attempt)
      if (message.attempt === 1) throw new Error('not now')
      done.resolve()
    })
    await alice.send(bob.key, 'twice')
    await done.promise
    expect(attempts).toEqual([1, 2])
    expect(await next('handler_failed')).toMatchObject({ sender: alice.key })
    expect(world.heard('retry')[0]!.items[0]!.afterMs).toBe(1000)
    await Promise.all([alice.close(), bob.close()])
  })

  test('leaving a loop returns the message; requesting the next one settles it', async () => {
    const world = new World()
    const [alice, bob] = [await world.peer(), await world.peer()]
    await Promise.all(['a', 'b'].map((text) => alice.send(bob.key, text)))
    const texts: string[] = []
    for await (const message of bob) {
      texts.push(message.text())
      if (texts.length === 2) break
    }
    for await (const message of bob) {
      texts.push(message.text())
      message.settle()
      break
    }
    expect(texts).toEqual(['a', 'b', 'b'])
    await Promise.all([alice.close(), bob.close()])
  })

  test('a changed envelope is reported and rejected, never shown', async () => {
    const world = new World()
    const { next, onEvent } = events()
    const [alice, bob] = [await world.peer(), await world.peer({ onEvent })]
    world.broker.intercept = (_, frame) => {
      if (frame.type === 'send') for (const item of frame.envelopes) item.envelope[60]! ^= 1
      return false
    }
    bob.onMessage(() => expect.unreachable('it was shown'))
    await alice.send(bob.key, 'secret')
    expect(await next('tamper')).toMatchObject({ sender: alice.key, reason: 'does_not_open' })
    await bob.close()
    expect(world.heard('reject').map(({ items }) => items[0]!.reason)).toEqual(['does_not_open'])
    await alice.close()
  })

  test('a message of one sender under the name of another is reported', async () => {
    const world = new World()
    const { next, onEvent } = events()
    const mallory = await world.peer()
    const [alice, bob] = [await world.peer(), await world.peer({ onEvent })]
    world.broker.intercept = (_, frame) => {
      if (frame.type !== 'send') return false
      const { envelopeId, priority, envelope } = frame.envelopes[0]!
      const push = { id: 99 as never, envelopeId, sender: alice.key, priority, attempt: 1, enqueuedAtMs: 1, envelope }
      world.socketOf(bob).say({ type: 'push', deliveries: [push] })
      return true
    }
    const rejected = mallory.send(bob.key, 'I am Alice').catch((error) => error)
    expect(await next('tamper')).toMatchObject({ sender: alice.key })
    await Promise.all([alice.close(), bob.close(), mallory.close()])
    expect(await rejected).toMatchObject({ code: 'maybe_sent' })
  })

  test('a dropped message is reported as a gap when a later one arrives', async () => {
    const world = new World()
    const { next, onEvent } = events()
    const [alice, bob] = [await world.peer(), await world.peer({ onEvent })]
    const arrived = take(bob, 2)
    await alice.send(bob.key, 'one')
    world.broker.intercept = (socket, frame) => {
      if (frame.type !== 'send') return false
      const [{ envelopeId }] = frame.envelopes as [FrameOf<'send'>['envelopes'][number]]
      socket.say({ type: 'ack', items: [{ envelopeId, isDuplicate: false }] })
      return true
    }
    await alice.send(bob.key, 'two')
    world.broker.intercept = undefined
    await alice.send(bob.key, 'three')
    expect((await arrived).map((message) => message.text())).toEqual(['one', 'three'])
    expect(await next('gap')).toMatchObject({ missing: 1 })
    await Promise.all([alice.close(), bob.close()])
  })
})

describe('keys', () => {
  test('an unknown recipient is refused, and other recipients are not blocked', async () => {
    const world = new World()
    const [alice, bob] = [await world.peer(), await world.peer()]
    const stranger = generateIdentity().signing.publicKey
    const lost = alice.send(stranger, 'x').catch((error) => error)
    await alice.send(bob.key, 'y')
    expect(await lost).toMatchObject({ code: 'unknown_recipient', isRetryable: false })
    await expect(alice.lookupKey(stranger)).rejects.toMatchObject({ code: 'unknown_recipient' })
    await Promise.all([alice.close(), bob.close()])
  })

  test('nothing is sealed to a forged box key', async () => {
    const world = new World()
    const { next, onEvent } = events()
    const alice = await world.peer({ onEvent })
    const bob = world.identity().signing.publicKey
    const mine = generateIdentity().box.publicKey
    world.broker.bindings.set(bob, { ...world.broker.bindings.get(bob)!, boxKey: mine })
    await expect(alice.send(bob, 'x')).rejects.toMatchObject({ code: 'key_refused' })
    expect(await next('key_refused')).toMatchObject({ peer: bob, reason: 'binding_forged' })
    expect(world.heard('send')).toEqual([])
    await alice.close()
  })

  test('mail of a sender without a trusted key is deferred, not lost', async () => {
    const world = new World()
    const { next, onEvent } = events()
    const [alice, bob] = [await world.peer(), await world.peer({ onEvent })]
    world.broker.bindings.delete(alice.key)
    const retried = Promise.withResolvers<ClientFrame>()
    world.broker.intercept = (_, frame) => {
      if (frame.type === 'retry') retried.resolve(frame)
      return frame.type === 'retry'
    }
    await alice.send(bob.key, 'x')
    expect(await next('key_refused')).toMatchObject({ peer: alice.key, reason: 'unknown_peer' })
    expect(await retried.promise).toMatchObject({ items: [{ afterMs: 60_000 }] })
    await Promise.all([alice.close(), bob.close()])
  })

  test('mail sealed with a newer key than the known one causes a lookup, and then opens', async () => {
    const world = new World()
    const { next, onEvent } = events()
    const old = world.identity()
    const bob = await world.peer({ onEvent })
    const before = await world.peer({ identity: old })
    await before.send(bob.key, 'old key')
    await take(bob, 1)
    await before.close()
    const box = generateIdentity().box
    const rotated = { ...old, box: { ...box, epoch: 2 } }
    world.broker.enrol(rotated)
    const after = await world.peer({ identity: rotated })
    const arrived = take(bob, 1)
    await after.send(bob.key, 'new key')
    expect((await arrived)[0]!.text()).toBe('new key')
    expect(await next('key_changed')).toMatchObject({ peer: old.signing.publicKey, boxEpoch: 2 })
    await Promise.all([after.close(), bob.close()])
  })
})

describe('lifecycle', () => {
  test('connect rejects if the broker refuses the key', async () => {
    const world = new World()
    await expect(world.peer({ identity: generateIdentity() })).rejects.toMatchObject({ code: 'auth_failed' })
  })

  test('connect rejects a broker without the pinned key', async () => {
    const world = new World()
    const brokerKey = new TestingBroker().keys.publicKey
    await expect(world.peer({ brokerKey })).rejects.toMatchObject({ code: 'wrong_broker' })
  })

  test('connect can be aborted', async () => {
    const world = new World()
    world.broker.intercept = () => true
    const abort = new AbortController()
    const connecting = world.peer({ signal: abort.signal }).catch((error) => error)
    abort.abort()
    expect(await connecting).toMatchObject({ code: 'aborted' })
  })

  test('messages in flight when the session breaks are resent under the same id', async () => {
    const world = new World()
    const [alice, bob] = [await world.peer(), await world.peer()]
    await alice.lookupKey(bob.key)
    const said: string[] = []
    let isCut = false
    world.broker.intercept = (socket, frame) => {
      if (frame.type !== 'send') return false
      said.push(`${frame.envelopes[0]!.envelopeId} ${toHex(frame.envelopes[0]!.envelope)}`)
      if (!isCut) socket.cut(1006)
      const before = isCut
      isCut = true
      return !before
    }
    const receipt = await alice.send(bob.key, 'stubborn')
    expect(said).toHaveLength(2)
    expect(said[0]).toBe(said[1])
    expect(said[0]).toContain(receipt.envelopeId)
    await Promise.all([alice.close(), bob.close()])
  })

  test('the end of the peer reaches sends, loops and `closed`', async () => {
    const world = new World()
    const alice = await world.peer()
    const bob = world.identity().signing.publicKey
    world.broker.intercept = (socket, frame) => {
      if (frame.type === 'send') socket.refuse('revoked')
      return frame.type === 'send'
    }
    const loop = (async () => {
      for await (const _ of alice) expect.unreachable('there is no mail')
    })().catch((error) => error)
    await expect(alice.send(bob, 'x')).rejects.toMatchObject({ code: 'maybe_sent' })
    expect(await loop).toMatchObject({ code: 'revoked' })
    expect(await alice.closed).toMatchObject({ code: 'revoked' })
    await expect(alice.send(bob, 'x')).rejects.toMatchObject({ code: 'revoked' })
  })

  test('`await using` closes the peer', async () => {
    const world = new World()
    let inner: Peer
    {
      await using peer = await world.peer()
      inner = peer
      expect(inner.isOnline).toBe(true)
    }
    expect(await inner.closed).toBeNull()
    expect(world.broker.sockets.size).toBe(0)
  })
})
