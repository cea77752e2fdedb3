import { ready } from '@sealpost/identity'
import type { EnvelopeId, PeerKey } from '@sealpost/std'
import { beforeAll, describe, expect, test } from 'vitest'
import { refusedBy, type SealpostError } from '../errors.ts'
import type { Message } from '../inbox/message.ts'
import { take, World } from '../test/client.ts'
import { PeerRequests } from './requests.ts'

beforeAll(() => ready())

async function two() {
  const world = new World()
  const [alice, bob] = [await world.peer(), await world.peer()]
  return { world, alice, bob, close: () => Promise.all([alice.close(), bob.close()]) }
}

describe('a request', () => {
  test('resolves with the reply, which is settled and not shown as a message', async () => {
    const { world, alice, bob, close } = await two()
    alice.onMessage(() => expect.unreachable('an answer was shown as a message'))
    bob.onMessage(async (message) => {
      expect(message.isRequest).toBe(true)
      await message.reply(`${message.text()}!`)
    })
    const answers = await Promise.all(['a', 'b', 'c'].map((text) => alice.request(bob.key, text)))
    expect(answers.map((answer) => answer.text())).toEqual(['a!', 'b!', 'c!'])
    await close()
    expect(world.broker.queues.get(alice.key)).toEqual([])
  })

  test('a reply with a file stays unsettled until the caller settles it', async () => {
    const { world, alice, bob, close } = await two()
    const attachment = 'a reference'
    bob.onMessage((message) => message.reply('here it is', { attachment }))
    const answer = await alice.request(bob.key, 'the plan?')
    expect([answer.text(), answer.attachment, answer.state]).toEqual(['here it is', attachment, 'open'])
    await alice.close()
    expect(world.broker.queues.get(alice.key)).toHaveLength(1)
    await close()
  })

  test('gets a returned reply with a file again as a message', async () => {
    const { world, alice, bob, close } = await two()
    bob.onMessage((message) => message.reply('here it is', { attachment: 'a reference' }))
    const answer = await alice.request(bob.key, 'the plan?')
    const again = take(alice, 1)
    answer.retry()
    expect((await again)[0]).toMatchObject({ envelopeId: answer.envelopeId, attempt: 2 })
    await close()
    expect(world.broker.queues.get(alice.key)).toEqual([])
  })

  test('resolves with a reply that reports failure', async () => {
    const { alice, bob, close } = await two()
    bob.onMessage((message) => message.replyError('no such file'))
    const answer = await alice.request(bob.key, 'read', { priority: 'now', thread: 'c0'.repeat(16) })
    expect(answer).toMatchObject({ isError: true, hops: 1, thread: 'c0'.repeat(16), priority: 'now' })
    expect(answer.text()).toBe('no such file')
    await close()
  })

  test('times out, and a late reply is an ordinary message', async () => {
    const { alice, bob, close } = await two()
    const arrived = take(bob, 1)
    const timedOut = expect(alice.request(bob.key, 'x', { timeoutMs: 50 })).rejects.toMatchObject({ code: 'timeout' })
    const [request] = await arrived
    await timedOut
    const shown = take(alice, 1)
    await request!.reply('late')
    expect((await shown)[0]).toMatchObject({ inReplyTo: request!.envelopeId })
    await close()
  })

  test('to an absent peer is refused at once with `ifOnline`', async () => {
    const { world, alice, bob, close } = await two()
    world.broker.intercept = (socket, frame) => {
      if (frame.type !== 'sendWith') return false
      expect(frame.envelopes[0]!.terms.ifOnline).toBe(true)
      const { envelopeId } = frame.envelopes[0]!.send
      socket.say({ type: 'nack', items: [{ envelopeId, code: 'no_responder', retryAfterMs: 0 }] })
      return true
    }
    await expect(alice.request(bob.key, 'x', { ifOnline: true })).rejects.toMatchObject({ code: 'no_responder' })
    await close()
  })

  test('ignores a reply from another peer that knows its id', async () => {
    const { world, alice, bob, close } = await two()
    const mallory = await world.peer()
    const [atBob, atMallory, shown] = [take(bob, 1), take(mallory, 1), take(alice, 1)]
    const asked = alice.request(bob.key, 'x')
    const [request] = await atBob
    await alice.send(mallory.key, 'y')
    const [copy] = await atMallory
    await Object.assign(copy!, { envelopeId: request!.envelopeId }).reply('forged')
    const [forged] = await shown
    expect(forged).toMatchObject({ sender: mallory.key, inReplyTo: request!.envelopeId })
    await request!.reply('mine')
    expect((await asked).text()).toBe('mine')
    await Promise.all([close(), mallory.close()])
  })

  test('ends with its peer', async () => {
    const { alice, bob, close } = await two()
    const asked = alice.request(bob.key, 'x')
    const refused = expect(asked).rejects.toMatchObject({ code: 'closed' })
    await close()
    await refused
  })
})

describe('the table of open requests', () => {
  const BOB = 'b'.repeat(64) as PeerKey
  const idOf = (n: number) => n.toString(16).padStart(32, '0') as EnvelopeId

  function world() {
    const requests = new PeerRequests()
    const ends: (string | undefined)[] = []
    const begin = (timeoutMs: number, nowMs: number) => {
      const place = ends.push(undefined) - 1
      const end = (how: string) => {
        ends[place] = how
      }
      const answered = (answer: Message) => end(answer.envelopeId)
      const refused = ({ code }: SealpostError) => end(code)
      const post = { to: BOB, priority: 'next' as const, ttlSeconds: 0, body: new Uint8Array() }
      return requests.begin({ ...post, timeoutMs, replied: answered, refused }, nowMs)
    }
    const answer = (inReplyTo: EnvelopeId, sender = BOB) =>
      requests.take({ inReplyTo, sender, envelopeId: 'the answer' } as unknown as Message)
    return { requests, ends, begin, answer }
  }

  test('wakes for the nearest deadline and ends what is due', () => {
    const { requests, ends, begin } = world()
    begin(100, 0)
    begin(50, 0)
    begin(100, 10)
    expect(requests.wakeAtMs).toBe(50)
    requests.expire(49)
    expect(ends).toEqual([undefined, undefined, undefined])
    requests.expire(50)
    expect([ends, requests.wakeAtMs]).toEqual([[undefined, 'timeout', undefined], 100])
    requests.expire(200)
    expect([ends, requests.wakeAtMs]).toEqual([['timeout', 'timeout', 'timeout'], Infinity])
  })

  test('accepts one reply, from the requested peer, to a sealed id', () => {
    const { ends, begin, answer } = world()
    const post = begin(100, 0)
    expect(answer(idOf(1))).toBe(false)
    post.sealed!(idOf(1))
    expect(answer(idOf(1), 'c'.repeat(64) as PeerKey)).toBe(false)
    expect(answer(idOf(2))).toBe(false)
    expect(answer(idOf(1))).toBe(true)
    expect(answer(idOf(1))).toBe(false)
    expect(ends).toEqual(['the answer'])
  })

  test('accepts a reply from a device of the requested user, but not from a device of another user', () => {
    const { requests, ends, begin } = world()
    begin(100, 0).sealed!(idOf(1))
    const answer = (user: string) =>
      requests.take({ inReplyTo: idOf(1), sender: 'd'.repeat(64), user, envelopeId: 'by a device' } as Message)
    expect(answer('c'.repeat(64))).toBe(false)
    expect(answer(BOB)).toBe(true)
    expect(ends).toEqual(['by a device'])
  })

  test('keeps waiting if the request may be stored', () => {
    const { requests, ends, begin, answer } = world()
    const [lost, refused] = [begin(100, 0), begin(100, 0)]
    lost.sealed!(idOf(1))
    lost.refused(refusedBy('unavailable'))
    expect(ends).toEqual(['unavailable', undefined])
    refused.sealed!(idOf(2))
    refused.refused(Object.assign(refusedBy('busy'), { code: 'maybe_sent' }))
    expect(answer(idOf(2))).toBe(true)
    requests.expire(1000)
    expect(ends).toEqual(['unavailable', 'the answer'])
  })
})
