/** Tests how a store keeps group messages across processes of a peer. */

import { changeGroup, createGroup, type GroupStatement, generateIdentity, type Note, ready } from '@sealpost/identity'
import type { ClientFrame, FrameOf } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { connect } from '../client.ts'
import { SealpostError } from '../errors.ts'
import { guardMembers } from '../members/member-proofs.ts'
import type { Peer } from '../peer.ts'
import type { PeerEvent } from '../ports.ts'
import { type SentLog, sentLogOf } from '../sent/sent-log.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import { TestingBroker } from '../test/broker.ts'
import type { GroupSendOptions } from './groups.ts'
import { groupsOf } from './groups.ts'

beforeAll(() => ready())

/** Returns a broker that has one group and handles broadcasts as the test specifies. */
function world() {
  const broker = new TestingBroker()
  const [ann, bob, cat, dan] = Array.from({ length: 4 }, generateIdentity)
  for (const identity of [ann!, bob!, cat!, dan!]) broker.enrol(identity)
  const [annKey, bobKey, catKey, danKey] = [ann!, bob!, cat!, dan!].map(({ signing }) => signing.publicKey)
  const group = createGroup(dan!.signing, { meshId: broker.meshId, name: 'crew', members: [annKey!, bobKey!, catKey!] })
  const next = changeGroup(dan!.signing, group, { members: [annKey!, catKey!, danKey!] })
  const its = { known: group as GroupStatement | null, answer: 'silence' as 'silence' | 'stale' | 'ack' }
  const broadcasts: Broadcast[] = []
  broker.intercept = (socket, frame) => {
    if (frame.type === 'groups' && its.known)
      socket.say({ type: 'groupList', ref: frame.ref, statements: [its.known.bytes], isLast: true })
    if (isBroadcast(frame)) {
      broadcasts.push(frame)
      const items = frame.envelopes.map(({ envelopeId }) => ({ envelopeId }))
      if (its.answer === 'ack')
        socket.say({ type: 'ack', items: items.map((item) => ({ ...item, isDuplicate: false })) })
      if (its.answer === 'stale')
        socket.say({ type: 'nack', items: items.map((item) => ({ ...item, code: 'stale_roster', retryAfterMs: 0 })) })
    }
    return frame.type === 'groups' || isBroadcast(frame)
  }
  const lives = { url: broker.url, brokerKey: broker.keys.publicKey, meshId: broker.meshId, identity: ann! }
  const live = async (store: MemoryStore) => {
    const events: PeerEvent[] = []
    const { webSocket } = broker
    return { events, peer: await connect({ ...lives, webSocket, store, onEvent: (event) => events.push(event) }) }
  }
  return { its, broadcasts, group, next, live, keys: { bobKey, catKey, danKey } }
}

type Broadcast = FrameOf<'broadcast'> | FrameOf<'broadcastKept'>

const isBroadcast = (frame: ClientFrame): frame is Broadcast =>
  frame.type === 'broadcast' || frame.type === 'broadcastKept'

/** The kinds of the records other than the group's statement. */
function kindsOf(store: MemoryStore) {
  const kinds = [...store.records.values()].map(({ kind }) => kind)
  return kinds.filter((kind) => kind !== 'statement').sort()
}

async function until(isSo: () => boolean): Promise<void> {
  const startMs = performance.now()
  while (!isSo()) {
    if (performance.now() - startMs > 10_000) throw new Error('it did not come to that')
    await new Promise((resolve) => setImmediate(resolve))
  }
}

async function sent(peer: Peer, group: GroupStatement, options: GroupSendOptions = {}): Promise<void> {
  await (await groupsOf(peer).find(group.groupId)).send('hello', options)
}

test('a message is stored as one body and a ticket per member, and deleted when all have it', async () => {
  const { its, live, group, broadcasts } = world()
  const store = new MemoryStore()
  const { peer } = await live(store)
  await sent(peer, group)
  await until(() => broadcasts.length === 1)
  expect(kindsOf(store)).toEqual(['group', 'owner', 'sealed', 'sealed'])
  await peer.close()
  its.answer = 'ack'
  const later = new MemoryStore(store.records)
  const { peer: again, events } = await live(later)
  await until(() => events.filter(({ type }) => type === 'sent').length === 2)
  expect(broadcasts.map(({ bodyId }) => bodyId)).toEqual([broadcasts[0]!.bodyId, broadcasts[0]!.bodyId])
  await again.close()
  expect(kindsOf(later)).toEqual(['owner'])
})

test('the history record of a message is stored and resent with it', async () => {
  const { its, live, group, broadcasts } = world()
  const store = new MemoryStore()
  const { peer } = await live(store)
  const record = new Uint8Array(200).fill(7)
  await sent(peer, group, {
    recordIn: { checkNote: () => undefined, sealRecord: () => record, recorded: () => undefined },
  })
  await until(() => broadcasts.length === 1)
  await peer.close()
  its.answer = 'ack'
  const { peer: again, events } = await live(new MemoryStore(store.records))
  await until(() => events.filter(({ type }) => type === 'sent').length === 2)
  const [first, second] = broadcasts
  expect(first).toMatchObject({ type: 'broadcastKept', record })
  expect(second).toMatchObject({ type: 'broadcastKept', record, body: first!.body, bodyId: first!.bodyId })
  await again.close()
})

test('a message that no record can hold is refused before anything is stored or sent', async () => {
  const { live, group, broadcasts } = world()
  const store = new MemoryStore()
  const { peer } = await live(store)
  const checkNote = (note: Note | undefined) => {
    if (note?.attachment) throw new SealpostError('value_too_large', 'too much')
  }
  const recorder = { checkNote, sealRecord: () => new Uint8Array(200), recorded: () => undefined }
  const refused = { code: 'value_too_large' }
  await expect(sent(peer, group, { recordIn: recorder, attachment: 'a'.repeat(2000) })).rejects.toMatchObject(refused)
  expect([kindsOf(store), broadcasts]).toEqual([['owner'], []])
  await peer.close()
})

/** Lets a process end that owes a message to the group. Returns the store of the next one, which learns the newer list. */
async function owing({ its, live, group, next }: ReturnType<typeof world>): Promise<MemoryStore> {
  const store = new MemoryStore()
  const { peer } = await live(store)
  await groupsOf(peer).find(group.groupId)
  its.known = null
  its.answer = 'stale'
  await sent(peer, group)
  await until(() => kindsOf(store).join() === 'group,owner')
  await peer.close()
  its.known = next
  its.answer = 'ack'
  return new MemoryStore(store.records)
}

test('the next process sends owed messages once, to the remaining members', async () => {
  const given = world()
  const { live, broadcasts, keys } = given
  const later = await owing(given)
  const { peer: again, events } = await live(later)
  await until(() => events.some(({ type }) => type === 'sent'))
  expect(broadcasts).toHaveLength(2)
  expect(broadcasts[1]!.envelopes.map(({ recipient }) => recipient)).toEqual([keys.catKey])
  expect(broadcasts[1]).toMatchObject({ rosterEpoch: 2 })
  expect(broadcasts[1]!.bodyId).not.toBe(broadcasts[0]!.bodyId)
  expect(events.filter(({ type }) => type === 'send_failed')).toMatchObject([{ to: keys.bobKey }])
  await again.close()
  expect(kindsOf(later)).toEqual(['owner'])
})

/** Returns a guard to whom only this peer is unproven, after a request. */
const guardAgainst = (unproven: PeerKey) => ({
  areKnown: () => false,
  unprovenAmong: async (peers: readonly PeerKey[]) => peers.filter((peer) => peer === unproven),
})

test('the next process sends no owed message to a member that is not proven', async () => {
  const given = world()
  const { live, broadcasts, keys } = given
  const { peer: again, events } = await live(await owing(given))
  guardMembers(again, guardAgainst(keys.catKey!)) // before the broker's first reply
  await until(() => events.filter(({ type }) => type === 'send_failed').length === 2)
  const errors = new Map(
    events.flatMap((event) => (event.type === 'send_failed' ? [[event.to, event.error.code]] : [])),
  )
  expect(errors).toEqual(new Map([[keys.catKey, 'member_unproven'], [keys.bobKey, 'stale_roster']])) // biome-ignore format: short
  expect(broadcasts).toHaveLength(1)
  await again.close()
})

test('a member that joins while a message is sent receives it only if it is proven', async () => {
  const { its, live, group, next, broadcasts, keys } = world()
  Object.defineProperty(its, 'answer', { get: () => (broadcasts.length === 1 ? 'stale' : 'ack') })
  const { peer } = await live(new MemoryStore())
  guardMembers(peer, guardAgainst(keys.danKey!))
  const found = await groupsOf(peer).find(group.groupId)
  its.known = next
  const outcomes = await (await found.send('hello')).stored
  const ends = new Map(outcomes.map(({ peer: member, error }) => [member, error?.code ?? 'stored']))
  expect(ends).toEqual(new Map([[keys.catKey, 'stored'], [keys.bobKey, 'stale_roster'], [keys.danKey, 'member_unproven']])) // biome-ignore format: short
  await peer.close()
})

/** Returns the states and reasons in the log, by member. */
const statesIn = (log: SentLog) => new Map(log.list().map(({ to, state, reason }) => [to, `${state} ${reason}`.trim()]))

test('the log has one entry for each member, even if the group changes and another process sends the message again', async () => {
  const { its, live, group, next, keys } = world()
  const store = new MemoryStore()
  const { peer } = await live(store)
  const log = sentLogOf(peer).recordAll()
  await groupsOf(peer).find(group.groupId)
  its.known = null
  its.answer = 'stale'
  await sent(peer, group, { confirm: 'end' })
  await until(() => kindsOf(store).join() === 'group,owner,sent,sent')
  const facts = {
    state: 'refused',
    reason: 'stale_roster',
    bodyBytes: 5,
    asksConfirmation: true,
    audience: { kind: 'group', name: 'crew' },
  }
  expect(log.list()).toMatchObject([facts, facts])
  await peer.close()
  its.known = next
  its.answer = 'ack'
  const { peer: again } = await live(new MemoryStore(store.records))
  const later = sentLogOf(again).recordAll()
  await until(() => later.list().some(({ state }) => state === 'stored'))
  expect(statesIn(later)).toEqual(new Map([[keys.catKey, 'stored'], [keys.bobKey, 'refused stale_roster']])) // biome-ignore format: short
  await again.close()
})

test('a member that joins while a message is sent is in the log of the same send', async () => {
  const { its, live, group, next, broadcasts, keys } = world()
  Object.defineProperty(its, 'answer', { get: () => (broadcasts.length === 1 ? 'stale' : 'ack') })
  const { peer } = await live(new MemoryStore())
  const log = sentLogOf(peer).recordAll()
  const found = await groupsOf(peer).find(group.groupId)
  its.known = next
  await (await found.send('hello')).stored
  const states = new Map([[keys.catKey, 'stored'], [keys.bobKey, 'refused stale_roster'], [keys.danKey, 'stored']]) // biome-ignore format: short
  expect(statesIn(log)).toEqual(states)
  expect(new Set(log.list().map(({ sendNo }) => sendNo)).size).toBe(1)
  await peer.close()
})
