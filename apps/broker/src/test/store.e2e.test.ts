/** Tests peers that are killed and resume on their file stores. */
import { decodeClientFrame } from '@sealpost/protocol'
import { type ConnectOptions, connect } from '@sealpost/sdk'
import { expect, test } from 'vitest'
import { Life, writtenPeer } from './peer-life.ts'
import { until } from './process.ts'
import { World } from './world.ts'

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => String(from + i))
/** More messages than a process can send before it is killed. */
const MANY = 20_000

test('messages stored while the broker was down are sent once and in order, even though their sender is killed three times', async () => {
  await using world = await World.open()
  await using sender = await writtenPeer(world)
  const place = await world.enrol()
  const to = place.identity.signing.publicKey
  await world.broker.kill()

  const kept: string[] = []
  {
    await using life = new Life('post', ...sender.files, to, ...numbers(0, MANY))
    await until('a hundred are kept', () => life.told('kept').length >= 100)
    await life[Symbol.asyncDispose]() // kills the sender while it sends
    kept.push(...life.told('kept'))
  }
  expect(kept.length).toBeLessThan(MANY)
  {
    await using life = new Life('post', ...sender.files, to, ...numbers(MANY, MANY + 50))
    await until('the second life keeps more', () => life.told('kept').length === 50)
    kept.push(...life.told('kept'))
  }
  await world.restart()
  {
    await using life = new Life('post', ...sender.files, to)
    await until('the third life sends some', () => life.countOf('sent') > 0)
  }
  await using last = new Life('post', ...sender.files, to)

  const recipient = await connect(place)
  const texts: string[] = []
  recipient.onMessage((message) => void texts.push(message.text()))
  await until('all that was kept came', () => kept.every((text) => texts.includes(text)))
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  expect(texts.map(Number)).toEqual([...new Set(texts.map(Number))].sort((a, b) => a - b))
  expect(last.countOf('send_failed')).toBe(0)
  await recipient.close()
})

test('a recipient that is killed while it handles a message handles that message again in its next process, and no other message twice', async () => {
  await using world = await World.open()
  await using recipient = await writtenPeer(world)
  const sender = await connect(await world.enrol())
  await Promise.all(numbers(0, 40).map((text) => sender.send(recipient.key, text)))
  const ended: string[] = []
  {
    await using life = new Life('receive', ...recipient.files, '7')
    const settledOf = () => life.told('mutedSettles').reduce((sum, count) => sum + Number(count), 0)
    await until('all but the stuck one are settled, as far as it knows', () => settledOf() === 39)
    ended.push(...life.told('ended'))
  }
  expect(await world.count('message_queue')).toBe(40)

  await using next = new Life('receive', ...recipient.files)
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  expect(next.told('begun')).toEqual(['7'])
  ended.push(...next.told('ended'))
  expect(ended.map(Number).sort((a, b) => a - b)).toEqual(numbers(0, 40).map(Number))
  await sender.close()
})

/** Returns a network that drops settles while `isLossy` returns true. */
function settleLosing(isLossy: () => boolean): NonNullable<ConnectOptions['webSocket']> {
  return class extends WebSocket {
    override send(wire: Uint8Array<ArrayBuffer>): void {
      const decoded = decodeClientFrame('binary', wire)
      if (!isLossy() || !decoded.ok || decoded.frame.type !== 'settle') super.send(wire)
    }
  } as unknown as NonNullable<ConnectOptions['webSocket']>
}

test('a recipient without a store handles each message from 150 senders once, even though no settle was committed', async () => {
  await using world = await World.open()
  const sender = await world.enrol()
  const place = await world.enrol()
  for (const text of numbers(0, 150)) {
    await using life = await connect(sender) // each process starts its own stream
    await life.send(place.identity.signing.publicKey, text)
  }
  let isLossy = true
  const recipient = await connect({ ...place, webSocket: settleLosing(() => isLossy) })
  const handled: string[] = []
  recipient.onMessage((message) => void handled.push(message.text()))
  await until('all are handled', () => handled.length === 150)
  expect(await world.count('message_queue')).toBe(150)
  await world.broker.kill()
  isLossy = false
  await world.restart()
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  expect(handled).toEqual(numbers(0, 150))
  expect(recipient.counters.duplicates).toBe(150)
  await recipient.close()
})
