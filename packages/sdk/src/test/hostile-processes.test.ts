/**
 * Tests a hostile broker that presents older statements to a later process of a peer. The processes have one store, in
 * which the earlier one has kept what it has seen.
 */
import {
  changeGroup,
  changePool,
  createGroup,
  createPool,
  endGroup,
  generateIdentity,
  type Identity,
  ready,
  signDevice,
  signIdentityRotation,
  signRemoval,
  signVoucher,
} from '@sealpost/identity'
import type { ClientFrame } from '@sealpost/protocol'
import { beforeAll, describe, expect, test } from 'vitest'
import { groupsOf } from '../groups/groups.ts'
import { poolsOf } from '../pools/pools.ts'
import type { PeerEvent } from '../ports.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import type { PeerStore, StoreChange } from '../stores/store.ts'
import { usersOf } from '../users/users.ts'
import { alarmsOf, HostileScene, type Side } from './hostile.ts'

beforeAll(() => ready())

const keyOf = ({ signing }: Identity) => signing.publicKey

/** Returns a scene whose broker replies to requests for groups or pools with the statements in `says`. */
function listing(type: 'groups' | 'pools', says: { bytes: Uint8Array }[]) {
  const scene = new HostileScene()
  scene.cheat = (socket, frame) => {
    if (frame.type !== type) return false
    const statements = says.map(({ bytes }) => bytes)
    socket.say({ type: 'groupList', ref: frame.ref, statements, isLast: true })
    return true
  }
  return scene
}

const NEWS: readonly PeerEvent['type'][] = ['group_deleted', 'identity_changed']

/** Runs a process of Alice to its end, and returns what it stored. */
async function formerProcess(scene: HostileScene, acts: (side: Side) => Promise<unknown>): Promise<MemoryStore> {
  const store = new MemoryStore()
  const side = await scene.join(scene.alice, { store })
  await acts(side)
  expect(alarmsOf(side).filter(({ type }) => !NEWS.includes(type))).toEqual([])
  await scene.leave(side)
  return new MemoryStore(store.records)
}

describe('a later process detects a broker that goes back to', () => {
  test('former members of a group, and sends to the newest members', async () => {
    const dan = generateIdentity()
    const says: { bytes: Uint8Array }[] = []
    await using scene = listing('groups', says)
    const members = [scene.alice, scene.bob, scene.carol].map(keyOf)
    const old = createGroup(dan.signing, { meshId: scene.broker.meshId, name: 'crew', members })
    const newest = changeGroup(dan.signing, old, { members: members.filter((member) => member !== keyOf(scene.carol)) })
    says.push(newest)
    const store = await formerProcess(scene, ({ peer }) => groupsOf(peer).find(old.groupId))
    says.splice(0, 1, old)
    const after = await scene.join(scene.alice, { store })
    expect(await after.next('group_tamper')).toMatchObject({ group: old.groupId, reason: 'statement_rolled_back' })
    const group = await groupsOf(after.peer).find(old.groupId)
    expect([group.epoch, group.members]).toEqual([2, newest.members])
    const { members: recipients } = await group.send('to those who are left')
    expect([...recipients.keys()]).toEqual([keyOf(scene.bob)])
    expect(alarmsOf(after)).toHaveLength(1)
  })

  test('a group that its owner has deleted', async () => {
    const dan = generateIdentity()
    const says: { bytes: Uint8Array }[] = []
    await using scene = listing('groups', says)
    const members = [scene.alice, scene.bob].map(keyOf)
    const old = createGroup(dan.signing, { meshId: scene.broker.meshId, name: 'crew', members })
    says.push(endGroup(dan.signing, old))
    const store = await formerProcess(scene, ({ peer }) => groupsOf(peer).list())
    says.splice(0, 1, old)
    const after = await scene.join(scene.alice, { store })
    expect(await after.next('group_tamper')).toMatchObject({ group: old.groupId, reason: 'statement_rolled_back' })
    await expect(groupsOf(after.peer).find(old.groupId)).rejects.toMatchObject({ code: 'unknown_group' })
  })

  test('former members of a pool', async () => {
    const dan = generateIdentity()
    const says: { bytes: Uint8Array }[] = []
    await using scene = listing('pools', says)
    const members = [scene.bob, scene.carol].map(keyOf)
    const old = createPool(dan.signing, { meshId: scene.broker.meshId, name: 'work', members })
    const newest = changePool(dan.signing, old, { members: [keyOf(scene.bob)] })
    says.push(newest)
    const store = await formerProcess(scene, ({ peer }) => poolsOf(peer).list())
    says.splice(0, 1, old)
    const after = await scene.join(scene.alice, { store })
    expect((await poolsOf(after.peer).list())[0]!.members).toEqual(newest.members)
    expect(alarmsOf(after)).toEqual([{ type: 'pool_tamper', pool: old.poolId, reason: 'statement_rolled_back' }])
  })

  test('a removed device', async () => {
    await using scene = new HostileScene()
    const [{ signing: phone }, { signing: once }] = [generateIdentity(), generateIdentity()]
    const { meshId } = scene.broker
    const { signing: person } = scene.bob
    const user = person.publicKey
    const names = { meshId, user, inviteKey: once.publicKey }
    const voucher = signVoucher(person, { ...names, label: 'phone', joinByMs: 1, notAfterMs: 4_000_000_000_000 })
    const statements = [signDevice(phone, once, voucher)]
    let removals = [signRemoval(person, { meshId, user, device: phone.publicKey })]
    scene.cheat = (socket, frame) => {
      if (frame.type === 'devices') socket.say({ type: 'deviceList', ref: frame.ref, statements, removals })
      return frame.type === 'devices'
    }
    const store = await formerProcess(scene, async ({ peer, socket }) => {
      socket.say({ type: 'deviceList', ref: 0, statements: [], removals })
      await peer.lookupKey(user) // the reply arrives after the removal
    })
    removals = []
    const after = await scene.join(scene.alice, { store })
    expect(await usersOf(after.peer).devices(user)).toEqual([])
    expect(alarmsOf(after)).toEqual([{ type: 'user_tamper', peer: phone.publicKey, reason: 'device_removed' }])
  })

  test('a second successor of an identity key', async () => {
    await using scene = new HostileScene()
    const [first, second] = [generateIdentity(), generateIdentity()]
    const { meshId } = scene.broker
    const statementOf = (next: Identity) =>
      signIdentityRotation({ former: scene.bob.signing, successor: next.signing }, { meshId, atMs: 1 })
    const store = await formerProcess(scene, async ({ peer, socket, next }) => {
      socket.say({ type: 'successions', statements: [statementOf(first)] })
      await next('identity_changed')
      await peer.lookupKey(keyOf(scene.carol))
    })
    const after = await scene.join(scene.alice, { store })
    after.socket.say({ type: 'successions', statements: [statementOf(second)] })
    expect(await after.next('user_tamper')).toMatchObject({ peer: keyOf(scene.bob), reason: 'succession_forked' })
  })
})

/** A store whose writes wait until the test lets them proceed. */
class SlowStore extends MemoryStore implements PeerStore {
  private readonly waiting: (() => void)[] = []

  override async write(changes: readonly StoreChange[]): Promise<void> {
    await new Promise<void>((resolve) => this.waiting.push(resolve))
    await super.write(changes)
  }

  get isAsked(): boolean {
    return this.waiting.length > 0
  }

  proceed(): void {
    for (const resolve of this.waiting.splice(0)) resolve()
  }
}

test('a message to a pool is sent only when the statement that lists its members is stored', async () => {
  const dan = generateIdentity()
  const says: { bytes: Uint8Array }[] = []
  await using scene = listing('pools', says)
  const members = [scene.bob].map(keyOf)
  const pool = createPool(dan.signing, { meshId: scene.broker.meshId, name: 'work', members })
  says.push(pool)
  const store = new SlowStore()
  const opened = scene.join(scene.alice, { store })
  while (!store.isAsked) await new Promise((resolve) => setImmediate(resolve))
  store.proceed() // the owner's record
  const { peer } = await opened
  const sendsOf = (frames: ClientFrame[]) => frames.filter(({ type }) => type === 'sendPool').length
  void (await poolsOf(peer).find(pool.poolId)).send('work').catch(() => undefined)
  await peer.lookupKey(keyOf(scene.bob)) // the key that the message needs
  while (!store.isAsked) await new Promise((resolve) => setImmediate(resolve))
  await peer.lookupKey(keyOf(scene.carol)) // the broker has read earlier frames
  expect(sendsOf(scene.broker.heard)).toBe(0)
  while (sendsOf(scene.broker.heard) === 0) {
    store.proceed()
    await new Promise((resolve) => setImmediate(resolve))
  }
  store.proceed()
  await Promise.all([peer.close(), (async () => store.proceed())()])
})
