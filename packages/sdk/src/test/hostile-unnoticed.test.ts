/**
 * Tests attacks by a broker that no peer detects. `docs/SECURITY.md` lists these tests. If a later SDK detects an
 * attack, its test fails and must move to the other list. Each test also shows the limits of its attack.
 */

import {
  bindBoxKey,
  changeGroup,
  createGroup,
  createPool,
  generateIdentity,
  type Identity,
  signDevice,
  signRemoval,
  signVoucher,
} from '@sealpost/identity'
import { type FrameOf, readBoxes } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId } from '@sealpost/std'
import { describe, expect, test, vi } from 'vitest'
import { groupsOf } from '../groups/groups.ts'
import { poolsOf } from '../pools/pools.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import { usersOf } from '../users/users.ts'
import { alarmsOf, HostileScene } from './hostile.ts'

const keyOf = ({ signing }: Identity) => signing.publicKey
const TERMS = { receipts: 'none', thread: '0'.repeat(32), hops: 0, noAutoReply: false } as const

describe('the peer does not detect a broker that', () => {
  test('delivers before the requested time, and after the time to live', async () => {
    await using scene = new HostileScene()
    const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    await alice.peer.send(keyOf(scene.bob), 'next year', { notBefore: Date.now() + 3_000_000_000 })
    await alice.peer.send(keyOf(scene.bob), 'last year', { ttlSeconds: 1 })
    const [early, late] = await scene.catches(2)
    scene.push(bob, early!, { ...late!, enqueuedAtMs: 1 })
    await scene.sentinel(bob)
    expect([alarmsOf(bob), bob.shown]).toEqual([[], ['next year', 'last year', 'the end']])
  })

  test('replays, to a process without a store, messages that a former process settled', async () => {
    await using scene = new HostileScene()
    const [alice, before] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    const [one] = await scene.mail(alice, scene.bob, '1')
    scene.push(before, one!)
    await before.shows(1)
    await scene.leave(before)
    const after = await scene.join(scene.bob)
    scene.push(after, one!)
    await scene.sentinel(after)
    expect([alarmsOf(after), after.shown]).toEqual([[], ['1', 'the end']])
  })

  test('repeats a rejected message, as a redrive does', async () => {
    await using scene = new HostileScene()
    const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob, { store: new MemoryStore() })]
    const [one] = await scene.mail(alice, scene.bob, '1')
    const again = (times: number) => ({ ...one!, id: (1_000 * times) as DeliveryId, attempt: 2 })
    const marks: boolean[] = []
    bob.react = (message) => {
      marks.push(message.isRedriven)
      message.reject('not for me')
    }
    scene.push(bob, one!)
    for (const times of [1, 2]) {
      while (scene.rejections.length < times) await new Promise((resolve) => setImmediate(resolve))
      if (times === 2) bob.react = (message) => void marks.push(message.isRedriven)
      scene.push(bob, again(times))
    }
    await bob.shows(3)
    scene.push(bob, again(3))
    await scene.sentinel(bob)
    expect([alarmsOf(bob), bob.shown]).toEqual([[], ['1', '1', '1', 'the end']])
    expect(marks.slice(0, 3), 'and its reader can see it').toEqual([false, true, true])
  })

  test('repeats an ephemeral message of any age to a new process', async () => {
    await using scene = new HostileScene()
    const [alice, before] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    const heard: FrameOf<'sendEphemeral'>['items'] = []
    scene.cheat = (_, frame) => frame.type === 'sendEphemeral' && heard.push(...frame.items) > 0
    alice.peer.sendEphemeral(keyOf(scene.bob), 'I type')
    while (heard.length < 1) await new Promise((resolve) => setImmediate(resolve))
    const [{ envelopeId, envelope }] = heard as [(typeof heard)[number]]
    const whispered = { type: 'pushEphemeral' as const, items: [{ sender: alice.peer.key, envelopeId, envelope }] }
    before.socket.say(whispered)
    expect(await before.next('ephemeral')).toMatchObject({ envelopeId })
    await scene.leave(before)
    const after = await scene.join(scene.bob, { maxAgeSeconds: 3_600, store: new MemoryStore() })
    const realNow = performance.now.bind(performance)
    vi.spyOn(performance, 'now').mockImplementation(() => realNow() + 400 * 24 * 3_600_000)
    after.socket.say(whispered)
    const repeated = await after.next('ephemeral')
    vi.restoreAllMocks()
    expect(repeated).toMatchObject({ envelopeId, sentAtMs: expect.any(Number) })
    expect(alarmsOf(after).filter(({ type }) => type !== 'ephemeral')).toEqual([])
  })

  test('drops a message without a stream: an ephemeral message, and a message to a pool', async () => {
    await using scene = new HostileScene()
    const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    const heard: FrameOf<'sendEphemeral'>['items'] = []
    scene.cheat = (_, frame) => frame.type === 'sendEphemeral' && heard.push(...frame.items) > 0
    alice.peer.sendEphemeral(keyOf(scene.bob), '1')
    alice.peer.sendEphemeral(keyOf(scene.bob), '2')
    await scene.mail(alice, scene.bob, 'behind them')
    while (heard.length < 2) await new Promise((resolve) => setImmediate(resolve))
    const { envelopeId, envelope } = heard[1]!
    bob.socket.say({ type: 'pushEphemeral', items: [{ sender: alice.peer.key, envelopeId, envelope }] })
    expect(await bob.next('ephemeral')).toMatchObject({ envelopeId })
    expect([alarmsOf(alice), alarmsOf(bob).map(({ type }) => type)]).toEqual([[], ['ephemeral']])
  })

  test('gives one pool message to two members', async () => {
    await using scene = new HostileScene()
    const { broker } = scene
    const [dan, eve] = [generateIdentity(), generateIdentity()]
    broker.enrol(eve)
    const members = [keyOf(scene.bob), keyOf(eve)]
    const pool = createPool(dan.signing, { meshId: broker.meshId, name: 'work', members })
    const sent = Promise.withResolvers<FrameOf<'sendPool'>>()
    scene.cheat = (socket, frame) => {
      if (frame.type === 'sendPool') sent.resolve(frame)
      if (frame.type === 'pools')
        socket.say({ type: 'groupList', ref: frame.ref, statements: [pool.bytes], isLast: true })
      return frame.type === 'sendPool' || frame.type === 'pools'
    }
    const alice = await scene.join(scene.alice)
    const workers = [await scene.join(scene.bob), await scene.join(eve)]
    void (await poolsOf(alice.peer).find(pool.poolId)).send('once').catch(() => undefined)
    const { send, body } = await sent.promise
    for (const [i, worker] of workers.entries()) {
      const box = readBoxes(send.envelope)!.find(({ peer }) => peer === worker.peer.key)!.box
      const outside = { id: (50 + i) as DeliveryId, sender: alice.peer.key, attempt: 1, enqueuedAtMs: 1 }
      const { envelopeId, priority } = send
      scene.push(worker, { ...outside, envelopeId, priority, envelope: box, terms: TERMS, body })
      await worker.shows(1)
    }
    expect(workers.map((worker) => [alarmsOf(worker), worker.shown])).toEqual([
      [[], ['once']],
      [[], ['once']],
    ])
  })

  test('lists members under names and roles of its choice', async () => {
    await using scene = new HostileScene()
    const alice = await scene.join(scene.alice)
    const mallory = generateIdentity()
    const members = [{ peer: keyOf(mallory), name: 'bob', role: 'admin' as const }]
    scene.cheat = (socket, frame) => {
      if (frame.type === 'members') socket.say({ type: 'roster', ref: frame.ref, members, isLast: true })
      return frame.type === 'members'
    }
    expect(await alice.peer.members()).toEqual(members)
    expect(alarmsOf(alice)).toEqual([])
  })

  test('delivers a message from a blocked sender, and reports the sender as blocked', async () => {
    await using scene = new HostileScene()
    const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    const peers = [{ peer: alice.peer.key, verdict: 'blocked' as const }]
    scene.cheat = (socket, frame) => {
      if (frame.type === 'consent')
        socket.say({ type: 'consented', ref: frame.ref, outcome: 'done', policy: 'open', peers, unknown: [] })
      return frame.type === 'consent'
    }
    await bob.peer.updateConsent({ block: [alice.peer.key] })
    scene.push(bob, ...(await scene.mail(alice, scene.bob, '1')))
    await scene.sentinel(bob)
    expect([alarmsOf(bob), bob.shown]).toEqual([[], ['1', 'the end']])
  })

  test('presents an older box key to a process that has seen no newer one', async () => {
    await using scene = new HostileScene()
    const { broker, bob } = scene
    const newer = { signing: bob.signing, box: { ...generateIdentity().box, epoch: 2 } }
    expect(bindBoxKey(newer, broker.meshId, 4_000_000_000_000).boxEpoch).toBe(2) // Bob has signed the newer key, but the broker withholds it.
    const alice = await scene.join(scene.alice, { store: new MemoryStore() })
    expect(await alice.peer.lookupKey(keyOf(bob))).toMatchObject({ boxEpoch: 1 })
    expect(alarmsOf(alice)).toEqual([])
  })

  test('presents an older group statement to a new process without a store', async () => {
    await using scene = new HostileScene()
    const dan = generateIdentity()
    const members = [keyOf(scene.alice), keyOf(scene.bob)]
    const old = createGroup(dan.signing, { meshId: scene.broker.meshId, name: 'crew', members })
    const newest = changeGroup(dan.signing, old, { members: [keyOf(scene.alice)] })
    let says = newest
    scene.cheat = (socket, frame) => {
      if (frame.type === 'groups')
        socket.say({ type: 'groupList', ref: frame.ref, statements: [says.bytes], isLast: true })
      return frame.type === 'groups'
    }
    const before = await scene.join(scene.alice)
    expect((await groupsOf(before.peer).find(old.groupId)).members).toEqual([keyOf(scene.alice)])
    await scene.leave(before)
    says = old
    const after = await scene.join(scene.alice)
    expect((await groupsOf(after.peer).find(old.groupId)).members).toHaveLength(2)
    expect(alarmsOf(after)).toEqual([])
  })

  test('accepts a message to a group under an older statement from someone who was never a member', async () => {
    await using scene = new HostileScene()
    const dan = generateIdentity()
    const [mallory, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    const founded = { meshId: scene.broker.meshId, name: 'crew', members: [keyOf(scene.bob), keyOf(scene.carol)] }
    const old = createGroup(dan.signing, founded)
    const newest = changeGroup(dan.signing, old, { name: 'the crew' })
    // Mallory trusts a statement that only she receives. A modified SDK could use any statement.
    const forHer = changeGroup(dan.signing, { ...old, epoch: 0 }, { members: [keyOf(scene.alice), keyOf(scene.bob)] })
    scene.cheat = (socket, frame) => {
      const { bytes } = socket.peer === bob.peer.key ? newest : forHer
      if (frame.type === 'groups') socket.say({ type: 'groupList', ref: frame.ref, statements: [bytes], isLast: true })
      return frame.type === 'groups'
    }
    const sent = await (await groupsOf(mallory.peer).find(old.groupId)).send('as one of you')
    await sent.stored
    scene.push(bob, scene.caught[0]!)
    await scene.sentinel(bob)
    expect([alarmsOf(bob), bob.shown]).toEqual([[], ['as one of you', 'the end']])
  })

  test('presents a removed device to a process that has not seen the removal', async () => {
    await using scene = new HostileScene()
    const { meshId } = scene.broker
    const [{ signing: person }, { signing: phone }, { signing: once }] = [
      scene.bob,
      generateIdentity(),
      generateIdentity(),
    ]
    const names = { meshId, user: person.publicKey, inviteKey: once.publicKey }
    const voucher = signVoucher(person, { ...names, label: 'phone', joinByMs: 1, notAfterMs: 4_000_000_000_000 })
    const statements = [signDevice(phone, once, voucher)]
    const gone = signRemoval(person, { meshId, user: person.publicKey, device: phone.publicKey })
    let removals: Uint8Array[] = [gone]
    scene.cheat = (socket, frame) => {
      if (frame.type === 'devices') socket.say({ type: 'deviceList', ref: frame.ref, statements, removals })
      return frame.type === 'devices'
    }
    const before = await scene.join(scene.alice)
    expect(await usersOf(before.peer).devices(person.publicKey)).toEqual([])
    await scene.leave(before)
    removals = []
    const after = await scene.join(scene.alice)
    expect(await usersOf(after.peer).devices(person.publicKey)).toMatchObject([{ key: phone.publicKey }])
    expect(alarmsOf(after).map(({ type }) => type)).toEqual(['device_changed'])
  })

  test('was restored from a backup and keeps its incarnation, so that no lost message is resent', async () => {
    await using scene = new HostileScene()
    const alice = await scene.join(scene.alice)
    const [one] = await scene.mail(alice, scene.bob, '1')
    alice.socket.cut(1012)
    await alice.next('disconnected')
    await scene.mail(alice, scene.bob, '2')
    const ids = scene.caught.map(({ envelopeId }): EnvelopeId => envelopeId)
    expect(ids.filter((id) => id === one!.envelopeId)).toHaveLength(1)
    expect(alarmsOf(alice).map(({ type }) => type)).toEqual(['disconnected'])
  })

  test('reports any hop count and any `noAutoReply`', async () => {
    await using scene = new HostileScene()
    const [alice, bob] = [await scene.join(scene.alice), await scene.join(scene.bob)]
    const heard: [number, boolean][] = []
    bob.react = ({ hops, noAutoReply }) => heard.push([hops, noAutoReply])
    await alice.peer.send(keyOf(scene.bob), '1', { noAutoReply: true })
    const [one] = await scene.catches(1)
    scene.push(bob, { ...one!, terms: { ...TERMS, hops: 0, noAutoReply: false } })
    await scene.sentinel(bob)
    expect([alarmsOf(bob), heard[0]]).toEqual([[], [0, false]])
  })
})
