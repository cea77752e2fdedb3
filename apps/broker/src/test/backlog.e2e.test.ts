/**
 * Tests that a recipient that was absent for a long time receives all waiting messages, in the order of each sender.
 */
import { connect, type Peer } from '@sealpost/sdk'
import { expect, test } from 'vitest'
import { until } from './process.ts'
import { World } from './world.ts'

const SENDERS = 20
const EACH = 500

async function sendAll(sender: Peer, to: Peer['key'], name: number): Promise<void> {
  const sends = Array.from({ length: EACH }, (_, n) => sender.send(to, `${name} ${n}`))
  await Promise.all(sends)
}

test(`${SENDERS * EACH} messages of ${SENDERS} senders wait for an absent peer and arrive in order`, async ({
  annotate,
}) => {
  await using world = await World.open()
  const absent = await world.enrol()
  const senders = await Promise.all(Array.from({ length: SENDERS }, async () => connect(await world.enrol())))
  await Promise.all(senders.map((sender, name) => sendAll(sender, absent.identity.signing.publicKey, name)))
  const startedAtMs = performance.now()
  const recipient = await connect(absent)
  const bySender = new Map<string, number[]>()
  let count = 0
  recipient.onMessage((message) => {
    const [name, n] = message.text().split(' ')
    const numbers = bySender.get(name!) ?? []
    bySender.set(name!, numbers)
    numbers.push(Number(n))
    count += 1
  })
  await until('all came', () => count === SENDERS * EACH)
  await annotate(`fetched ${count} in ${Math.round(performance.now() - startedAtMs)} ms`)
  const inOrder = Array.from({ length: EACH }, (_, n) => n)
  expect([...bySender.values()]).toEqual(Array.from({ length: SENDERS }, () => inOrder))
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  await Promise.all([...senders, recipient].map((peer) => peer.close()))
})
