import { ready } from '@sealpost/identity'
import type { DeliveryId } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import type { EphemeralMessage } from '../ports.ts'
import { events, World } from '../test/client.ts'

beforeAll(() => ready())

async function two() {
  const world = new World()
  const [heard, said] = [events(), events()]
  const [alice, bob] = [await world.peer({ onEvent: said.onEvent }), await world.peer({ onEvent: heard.onEvent })]
  return { world, alice, bob, heard, said, close: () => Promise.all([alice.close(), bob.close()]) }
}

const text = ({ body }: EphemeralMessage) => new TextDecoder().decode(body)

test('connected recipients get ephemeral messages in order, and nothing is settled', async () => {
  const { world, alice, bob, heard, close } = await two()
  const handled: EphemeralMessage[] = []
  bob.onEphemeral((whisper) => handled.push(whisper))
  const ids = ['1', '2', '3'].map((body) => alice.sendEphemeral(bob.key, body))
  await heard.next('ephemeral', 3)
  expect(handled.map(text)).toEqual(['1', '2', '3'])
  expect(handled.map(({ sender, envelopeId }) => [sender, envelopeId])).toEqual(ids.map((id) => [alice.key, id]))
  expect(heard.all('ephemeral').map(text)).toEqual(['1', '2', '3'])
  await close()
  expect(world.heard('settle')).toEqual([])
})

test('an undelivered message is reported by its id', async () => {
  const { alice, bob, said, close } = await two()
  await bob.close()
  const id = alice.sendEphemeral(bob.key, 'x')
  expect(await said.next('ephemeral_lost')).toEqual({ type: 'ephemeral_lost', envelopeId: id, code: 'no_responder' })
  await close()
})

test('without a session a message is reported as lost at once', async () => {
  const { world, alice, bob, said, close } = await two()
  world.socketOf(alice).cut(1006)
  await said.next('disconnected')
  const id = alice.sendEphemeral(bob.key, 'x')
  expect(await said.next('ephemeral_lost')).toEqual({ type: 'ephemeral_lost', envelopeId: id, code: 'connection_lost' })
  await close()
})

test('a message that waits for a key is lost with the session, and refused with the key', async () => {
  const { world, alice, bob, said, close } = await two()
  world.broker.intercept = (socket, frame) => {
    if (frame.type === 'lookup') socket.cut(1006)
    return frame.type === 'lookup'
  }
  const lost = alice.sendEphemeral(bob.key, 'x')
  expect(await said.next('ephemeral_lost')).toMatchObject({ envelopeId: lost, code: 'connection_lost' })
  world.broker.intercept = undefined
  await said.next('connected', 2)
  const stranger = 'ee'.repeat(32) as typeof bob.key
  const ids = [alice.sendEphemeral(stranger, 'x'), alice.sendEphemeral('no key' as typeof bob.key, 'x')]
  await said.next('ephemeral_lost', 3)
  const told = said.all('ephemeral_lost').slice(1)
  expect(new Set(told.map(({ envelopeId }) => envelopeId))).toEqual(new Set(ids))
  expect(told.map(({ code }) => code)).toEqual(['unknown_recipient', 'unknown_recipient'])
  await close()
})

test('a body that is too large is refused', async () => {
  const { alice, bob, close } = await two()
  expect(() => alice.sendEphemeral(bob.key, new Uint8Array(64 * 1024 + 1))).toThrow(
    expect.objectContaining({ code: 'body_too_large' }),
  )
  await close()
})

test('a message that the broker repeats is delivered once', async () => {
  const { world, alice, bob, heard, close } = await two()
  world.broker.intercept = (_, frame) => {
    if (frame.type !== 'sendEphemeral') return false
    const [{ envelopeId, envelope }] = frame.items as [(typeof frame.items)[number]]
    const item = { sender: alice.key, envelopeId, envelope }
    world.socketOf(bob).say({ type: 'pushEphemeral', items: [item, item] })
    return frame.items.length === 1
  }
  alice.sendEphemeral(bob.key, 'once')
  await heard.next('ephemeral')
  world.broker.intercept = undefined
  alice.sendEphemeral(bob.key, 'then')
  await heard.next('ephemeral', 2)
  expect(heard.all('ephemeral').map(text)).toEqual(['once', 'then'])
  await close()
})

test('a broker cannot pass off an ephemeral message as mail, nor mail as an ephemeral message', async () => {
  const { world, alice, bob, heard, close } = await two()
  bob.onMessage(() => expect.unreachable('a whisper was shown as a message'))
  const socket = world.socketOf(bob)
  world.broker.intercept = (_, frame) => {
    if (frame.type === 'sendEphemeral') {
      const { envelopeId, envelope } = frame.items[0]!
      const mail = { id: 5 as DeliveryId, envelopeId, sender: alice.key, priority: 'next' as const, attempt: 1 }
      socket.say({ type: 'push', deliveries: [{ ...mail, enqueuedAtMs: 1, envelope }] })
    } else if (frame.type === 'send') {
      const { envelopeId, envelope } = frame.envelopes[0]!
      socket.say({ type: 'pushEphemeral', items: [{ sender: alice.key, envelopeId, envelope }] })
    } else return false
    return true
  }
  alice.sendEphemeral(bob.key, 'x')
  expect(await heard.next('tamper')).toMatchObject({ sender: alice.key, reason: 'is_ephemeral' })
  alice.send(bob.key, 'y').catch(() => undefined)
  expect(await heard.next('tamper', 2)).toMatchObject({ sender: alice.key, reason: 'not_ephemeral' })
  expect(heard.all('ephemeral')).toEqual([])
  await close()
})
