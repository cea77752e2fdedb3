/** Tests what a sender learns of messages to groups, pools, users and several peers, and of requests and replies. */
import { generateIdentity, type PeerKey } from '@sealpost/sdk'
import { confirmationsOf } from '@sealpost/sdk/confirmations'
import { groupsOf } from '@sealpost/sdk/groups'
import { joinAsDevice } from '@sealpost/sdk/join'
import { poolsOf } from '@sealpost/sdk/pools'
import { CONFIRMATIONS_MAX, type SentMessage, sentLogOf } from '@sealpost/sdk/sent'
import { usersOf } from '@sealpost/sdk/users'
import { test as base, expect } from 'vitest'
import { codeOf, Member } from './member.ts'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'
import type { World } from './world.ts'

const shared = sharedWorlds()
const test = base.concurrent
const BRISK = { SWEEP_MS: '50', POLL_MS: '100' }

/** Opens a sender whose log records everything, and members that confirm what they settle. */
async function openScene(world: World) {
  const [alice, bob, cat] = await Member.enterMany(world, 3)
  for (const { peer } of [bob, cat]) confirmationsOf(peer)
  return { alice, bob, cat, log: sentLogOf(alice.peer).recordAll() }
}

const statesOf = (sent: readonly SentMessage[]) => new Map(sent.map(({ to, state }) => [to, state]))

test('each member of a group confirms a message, and the log lists who has not', async () => {
  await using world = await shared(BRISK)
  const { alice, bob, cat, log } = await openScene(world)
  const away = await Member.open(world)
  await away.peer.close()
  const keys = [bob.peer.key, cat.peer.key, away.peer.key]
  const group = await groupsOf(alice.peer).create('crew', keys)
  const { stored } = await group.send('who is in?', { receipts: 'end', confirm: 'end' })
  const ids = (await stored).map(({ receipt }) => receipt!.envelopeId)
  const send = () => log.findSend(ids[0]!)
  await until('two have confirmed', () => send().filter(({ state }) => state === 'confirmed').length === 2)
  expect(statesOf(send())).toEqual(new Map(keys.toSorted().map((key) => [key, key === away.peer.key ? 'stored' : 'confirmed']))) // biome-ignore format: short
  const audience = { kind: 'group', id: group.id, name: 'crew' }
  expect(send()[0]).toMatchObject({ audience, bodyBytes: 10, asksConfirmation: true })
  expect(alice.received).toEqual([]) // the application sees no confirmation
  const { stored: plain } = await group.send('no confirmation')
  const other = (await plain)[0]!.receipt!.envelopeId
  expect(log.findSend(other)).toHaveLength(3)
  expect(log.find(other)).toMatchObject({ asksConfirmation: false, asksReceipts: false })
})

test('a group of more members than can confirm refuses to ask them, and sends without', async () => {
  await using world = await shared(BRISK)
  const { alice, log } = await openScene(world)
  const keys = Array.from({ length: CONFIRMATIONS_MAX + 1 }, () => generateIdentity().signing.publicKey as PeerKey)
  const group = await groupsOf(alice.peer).create('crowd', keys)
  expect(await codeOf(group.send('x', { confirm: 'end' }))).toBe('too_many_confirmations')
  expect(log.list()).toEqual([])
  await (await group.send('x')).stored
  expect(log.list()).toHaveLength(CONFIRMATIONS_MAX + 1)
})

test('a message to a pool names no recipient until a worker has confirmed it', async () => {
  await using world = await shared(BRISK)
  const { alice, bob, cat, log } = await openScene(world)
  const pool = await poolsOf(alice.peer).create('workers', [bob.peer.key])
  const { envelopeId } = await pool.send('a job', { receipts: 'end', confirm: 'end' })
  expect(log.find(envelopeId)).toMatchObject({
    to: pool.id,
    state: 'stored',
    audience: { kind: 'pool', name: 'workers' },
  })
  expect(await log.askBroker([envelopeId])).toMatchObject([{ status: 'waiting', recipient: pool.id }])
  await (await poolsOf(bob.peer).find(pool.id)).join()
  expect(await log.wait(envelopeId, 'confirmed')).toMatchObject({ state: 'confirmed', signer: bob.peer.key })
  expect(bob.texts).toEqual(['a job'])
  expect(cat.texts).toEqual([])
})

test('a message to every device of a user is confirmed by each of them', async () => {
  await using world = await shared(BRISK)
  const { alice, bob, log } = await openScene(world)
  const identity = generateIdentity()
  const membership = await joinAsDevice({ invite: usersOf(bob.peer).inviteDevice('laptop'), identity })
  const laptop = await Member.enter(world, { ...membership, identity })
  confirmationsOf(laptop.peer)
  const { stored } = await usersOf(alice.peer).send(bob.peer.key, 'to all', { receipts: 'end', confirm: 'end' })
  const ids = (await stored).map(({ receipt }) => receipt!.envelopeId)
  for (const id of ids) await log.wait(id, 'confirmed')
  const send = log.findSend(ids[0]!)
  expect(statesOf(send)).toEqual(new Map([[bob.peer.key, 'confirmed'], [laptop.peer.key, 'confirmed']])) // biome-ignore format: short
  expect(send[0]!.audience).toEqual({ kind: 'user', id: bob.peer.key, name: '' })
  const free = await usersOf(alice.peer).sendToFree(bob.peer.key, 'to one', { receipts: 'end', confirm: 'end' })
  expect(await log.wait(free.receipt.envelopeId, 'confirmed')).toMatchObject({ to: free.device, signer: free.device })
  await laptop.peer.close()
  await bob.peer.close()
  const ifOnline = () => codeOf(usersOf(alice.peer).sendToFree(bob.peer.key, 'now', { ifOnline: true }))
  await until('no device is online', async () => (await ifOnline()) === 'no_responder')
  expect(log.list().every(({ state }) => state !== 'refused')).toBe(true) // attempts without a responder leave no entry
})

test('a request and its reply are in the logs of both sides, and a reply can be confirmed', async () => {
  await using world = await shared(BRISK)
  const { alice, bob, log } = await openScene(world)
  confirmationsOf(alice.peer)
  const ofBob = sentLogOf(bob.peer).recordAll()
  bob.peer.onMessage((message) => ofBob.asking('end', () => message.reply('the answer')))
  const { envelopeId } = await alice.peer.request(bob.peer.key, 'a question')
  const [asked] = log.list()
  expect(asked).toMatchObject({ isRequest: true, inReplyTo: null, reply: { envelopeId, sender: bob.peer.key } })
  await until('the reply is confirmed', () => ofBob.list()[0]?.state === 'confirmed')
  expect(ofBob.list()).toMatchObject([{ to: alice.peer.key, inReplyTo: asked!.envelopeId, signer: alice.peer.key }])
})

test('messages to several peers are one send', async () => {
  await using world = await shared(BRISK)
  const { alice, bob, cat, log } = await openScene(world)
  const audience = { kind: 'everybody', id: '', name: '' } as const
  const to = [bob.peer.key, cat.peer.key]
  const receipts = await Promise.all(log.together({ audience }, () => to.map((key) => alice.peer.send(key, 'hello'))))
  expect(log.findSend(receipts[0]!.envelopeId)).toMatchObject(to.map((key) => ({ to: key, audience, state: 'stored' })))
  await alice.peer.send(bob.peer.key, 'alone')
  expect(log.findSend(log.list()[0]!.envelopeId!)).toMatchObject([{ to: bob.peer.key, audience: null }])
})
