/** Tests pools through a running broker: one member holds a message at a time, even if members die. */

import { join } from 'node:path'
import { generateBoxKeys, generateIdentity } from '@sealpost/identity'
import { type ConnectOptions, connect, type Message, type Peer, type PeerEvent } from '@sealpost/sdk'
import { type Pool, poolsOf } from '@sealpost/sdk/pools'
import { type PeerKey, type PoolId, toHex } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { codeOf, keyOf, Member } from './member.ts'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'
import type { Place, World } from './world.ts'

const shared = sharedWorlds()

const MEMBER = join(import.meta.dirname, '../../../../packages/harness/src/test/pool-member.ts')
/** Polls and leases longer than a test, so that only notifications have an effect. */
const QUIET = { SWEEP_MS: '50', POLL_MS: '600000', LEASE_MS: '300000' }

class Floor {
  readonly holders = new Map<string, Set<string>>()
  readonly doneBy = new Map<string, string[]>()
  readonly shared: string[] = []

  take(text: string, member: string): void {
    const holders = this.holders.get(text) ?? new Set()
    this.holders.set(text, holders.add(member))
    if (holders.size > 1) this.shared.push(`${text}: ${[...holders].join()}`)
  }

  done(text: string, member: string): void {
    this.holders.get(text)?.delete(member)
    this.doneBy.set(text, [...(this.doneBy.get(text) ?? []), member])
  }

  forget(member: string): void {
    for (const holders of this.holders.values()) holders.delete(member)
  }

  get heldBy(): Record<string, number> {
    const counts: Record<string, number> = {}
    for (const holders of this.holders.values())
      for (const member of holders) counts[member] = (counts[member] ?? 0) + 1
    return counts
  }
}

/** A member whose handler waits for `gate`. */
class Worker {
  readonly name: string
  readonly events: PeerEvent[] = []
  readonly taken: Message[] = []
  peer!: Peer
  pool!: Pool
  /** Awaited by the handler before it finishes a message. */
  gate: (message: Message) => Promise<void> = async () => undefined

  constructor(name: string) {
    this.name = name
  }

  static async enter(
    name: string,
    world: World,
    place: Place & Partial<ConnectOptions>,
    floor: Floor,
  ): Promise<Worker> {
    const worker = new Worker(name)
    worker.peer = world.closing(await connect({ ...place, onEvent: (event) => worker.events.push(event) }))
    worker.peer.onMessage(async (message) => {
      worker.taken.push(message)
      floor.take(message.text(), name)
      await worker.gate(message)
      floor.done(message.text(), name)
    })
    return worker
  }

  async join(poolId: PoolId, credit: number): Promise<void> {
    this.pool = await poolsOf(this.peer).find(poolId)
    await this.pool.join({ credit })
  }

  get texts(): string[] {
    return this.taken.map((message) => message.text())
  }
}

/** A member in a separate process, which settles nothing. */
class Mortal implements AsyncDisposable {
  private readonly child: Bun.Subprocess<Blob, 'pipe', 'ignore'>
  private text = ''

  constructor(place: Place, poolId: PoolId, credit: number) {
    const { url, brokerKey, meshId, identity } = place
    const { signing, box } = identity
    const task = {
      ...{ url, brokerKey, meshId, poolId, credit },
      keys: {
        sign: [signing.publicKey, toHex(signing.secretKey)],
        box: [toHex(box.publicKey), toHex(box.secretKey), box.epoch],
      },
    }
    this.child = Bun.spawn([process.execPath, MEMBER], {
      stdin: new Blob([JSON.stringify(task)]),
      stdout: 'pipe',
      stderr: 'ignore',
    })
    void this.read()
  }

  get lines(): string[] {
    return this.text.split('\n').slice(0, -1)
  }
  get taken(): string[] {
    return this.lines.flatMap((line) => (line.startsWith('took ') ? [line.slice(5)] : []))
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.kill()
  }

  async kill(): Promise<void> {
    this.child.kill('SIGKILL')
    await this.child.exited
  }

  private async read(): Promise<void> {
    const decoder = new TextDecoder()
    for await (const bytes of this.child.stdout) this.text += decoder.decode(bytes, { stream: true })
  }
}

async function threeWorkers(world: World, floor = new Floor()): Promise<[Worker, Worker, Worker]> {
  const enter = async (name: string) => Worker.enter(name, world, await world.enrol(), floor)
  return Promise.all([enter('ann'), enter('bob'), enter('cat')])
}

test('four members share 200 messages, and the messages of a killed member go to the others at once', async () => {
  await using world = await shared(QUIET)
  const floor = new Floor()
  const places = await world.enrolMany(5)
  const [owner, ...workers] = await Promise.all(
    places.slice(0, 4).map((place, i) => Worker.enter(`w${i}`, world, place, floor)),
  )
  const pool = await poolsOf(owner!.peer).create('crew', places.slice(1).map(keyOf))
  await using mortal = new Mortal(places[4]!, pool.id, 3)
  await until('the process has joined', () => mortal.lines.includes('joined'))
  for (const worker of workers) await worker.join(pool.id, 2)
  for (const worker of workers) worker.gate = () => new Promise((done) => setImmediate(done))
  const texts = Array.from({ length: 200 }, (_, n) => `task ${n}`)
  await Promise.all(texts.map((text) => pool.send(text)))
  await until('the process holds as much as it takes', () => mortal.taken.length === 3)
  for (const text of mortal.taken) floor.take(text, 'mortal')
  await until('the others are through with the rest', () => floor.doneBy.size === 197)
  await until('nothing else is left', async () => (await world.count('message_queue')) === 3)
  const killed = mortal.kill()
  floor.forget('mortal') // before this process notices the exit, others may receive the messages
  await killed
  await until('all of it is done', () => floor.doneBy.size === 200)
  expect([...floor.doneBy.keys()].sort()).toEqual(texts.sort())
  expect([...floor.doneBy.values()].filter((by) => by.length !== 1)).toEqual([])
  expect(floor.shared).toEqual([])
  expect(new Set([...floor.doneBy.values()].flat()).size).toBe(3)
  const again = workers.flatMap(({ taken }) => taken).filter((message) => message.attempt > 1)
  expect(again.map((message) => message.text()).sort()).toEqual([...mortal.taken].sort())
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
})

test('a message goes to the least loaded free member, one at a time, with the terms of its sender', async () => {
  await using world = await shared(QUIET)
  const floor = new Floor()
  const [ann, bob, cat] = await threeWorkers(world, floor)
  const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  bob.gate = () => gates[0]!.promise
  cat.gate = () => gates[1]!.promise
  const pool = await poolsOf(ann.peer).create('reviewers', [bob.peer.key, cat.peer.key])
  await bob.join(pool.id, 1)
  await cat.join(pool.id, 1)
  for (const text of ['1', '2', '3']) await pool.send(text, { receipts: 'all', thread: 'ab'.repeat(16) })
  await until('both are at work', () => floor.heldBy.bob === 1 && floor.heldBy.cat === 1)
  expect(await world.count('message_queue')).toBeGreaterThanOrEqual(3)
  expect([...bob.texts, ...cat.texts].sort()).toEqual(['1', '2'])
  const [first] = bob.taken
  expect(first).toMatchObject({ sender: ann.peer.key, group: null, pool: { id: pool.id, epoch: 1 }, attempt: 1 })
  expect(first!.thread).toBe('ab'.repeat(16))
  gates[1]!.resolve()
  await until('who was first takes the next', () => cat.texts.length === 2)
  gates[0]!.resolve()
  const receipts = (event: string) => ann.events.filter((one) => one.type === 'receipt' && one.event === event)
  // The third message may be settled before its push is reported, in which case no `pushed` receipt follows.
  await until('the receipts', () => receipts('settled').length === 3 && receipts('pushed').length >= 2)
  expect(receipts('settled').length + receipts('pushed').length).toBeLessThanOrEqual(6)
  for (const receipt of [...receipts('settled'), ...receipts('pushed')])
    expect(receipt).toMatchObject({ recipient: pool.id })
})

test('a removed member gets no more messages and loses the ones it holds; an added member gets those sent from then on', async () => {
  await using world = await shared(QUIET)
  const [ann, bob, cat] = await threeWorkers(world)
  const pool = await poolsOf(ann.peer).create('crew', [bob.peer.key, ann.peer.key])
  expect(await codeOf(cat.join(pool.id, 1))).toBe('not_in_pool')
  expect(await codeOf(poolsOf(cat.peer).find('ee'.repeat(32) as PoolId))).toBe('unknown_pool')
  expect(await codeOf(cat.peer.send(pool.id as string as PeerKey, 'not so'))).toBe('unknown_recipient')
  bob.gate = () => new Promise(() => undefined)
  await bob.join(pool.id, 1)
  const outside = await poolsOf(cat.peer).find(pool.id)
  for (const text of ['held', 'waits']) await outside.send(text)
  await until('bob is at work', () => bob.texts.length === 1)
  await pool.add(cat.peer.key)
  await cat.join(pool.id, 5)
  await pool.remove(bob.peer.key)
  await until('bob hears of it', () => bob.events.some((event) => event.type === 'pool_left'))
  expect(await codeOf(bob.join(pool.id, 1))).toBe('not_in_pool')
  // Sealed for outdated members at first, and again after the broker's refusal.
  await outside.send('for the new ones')
  await until('cat has what she may open', () => cat.texts.length === 1)
  expect(cat.texts).toEqual(['for the new ones'])
  await ann.join(pool.id, 5)
  await until('the owner has the rest', () => ann.texts.length === 2)
  expect(ann.texts.sort()).toEqual(['held', 'waits'])
  expect(bob.texts).toEqual(['held'])
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
})

test('killing the broker loses no message of a pool, and its members continue with the next broker', async () => {
  await using world = await shared(QUIET)
  const floor = new Floor()
  const [ann, bob, cat] = await threeWorkers(world, floor)
  const pool = await poolsOf(ann.peer).create('crew', [bob.peer.key, cat.peer.key])
  await bob.join(pool.id, 2)
  await cat.join(pool.id, 2)
  for (const worker of [bob, cat]) worker.gate = () => new Promise((done) => setImmediate(done))
  const texts = Array.from({ length: 60 }, (_, n) => `task ${n}`)
  const sent = Promise.all(texts.map((text) => pool.send(text)))
  await until('some are done', () => floor.doneBy.size >= 5)
  await world.broker.kill()
  await world.restart()
  await sent
  await until('all are done', () => floor.doneBy.size === 60)
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
})

test('a member that rotates its identity key stays in the pool, with waiting and new messages', async () => {
  await using world = await shared(QUIET)
  const floor = new Floor()
  const [annAt, bobAt, catAt] = await world.enrolMany(3)
  const ann = await Worker.enter('ann', world, annAt, floor)
  await Worker.enter('bob', world, bobAt, floor)
  const pool = await poolsOf(ann.peer).create('crew', [keyOf(bobAt), keyOf(catAt)])
  const former = await connect({ ...catAt, credit: 0 })
  for (const text of ['1', '2']) await pool.send(text)
  const identity = { ...generateIdentity(), box: generateBoxKeys(catAt.identity.box.epoch + 1) }
  await former.rotateIdentity(identity)
  const next = { ...catAt, identity, formerKeys: [keyOf(catAt)], formerBoxKeys: [catAt.identity.box] }
  const cat = await Worker.enter('cat', world, next, floor)
  await cat.join(pool.id, 1)
  await until('she has what waited', () => cat.texts.length === 2)
  expect(cat.texts).toEqual(['1', '2'])
  expect(await world.count('dead_letter')).toBe(0)
  await pool.send('under the new key')
  await until('she has what is new', () => cat.texts.length === 3)
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  expect(await world.count('dead_letter')).toBe(0)
})

describe('deleting a pool', () => {
  test('refuses new messages, ends its memberships, and removes it from the list', async () => {
    await using world = await shared(QUIET)
    const [annPlace, bobPlace, catPlace] = await world.enrolMany(3)
    const { peer: ann } = await Member.open(world, annPlace)
    const { peer: bob, events } = await Member.open(world, bobPlace)
    const { peer: cat } = await Member.open(world, catPlace)
    const pool = await poolsOf(ann).create('crew', [keyOf(bobPlace)])
    const [atBob, atCat] = [await poolsOf(bob).find(pool.id), await poolsOf(cat).find(pool.id)]
    await atBob.join()
    await atCat.send('before')
    await expect(atBob.delete()).rejects.toMatchObject({ code: 'not_owner' })
    await pool.delete()
    await pool.delete() // a second deletion succeeds too
    await until('bob learns that it left', () => events.some(({ type }) => type === 'pool_left'))
    await expect(atCat.send('after')).rejects.toMatchObject({ code: 'unknown_pool' })
    expect([pool.isDeleted, pool.members]).toEqual([true, []])
    await expect(pool.add(keyOf(catPlace))).rejects.toMatchObject({ code: 'unknown_pool' })
    for (const peer of [ann, bob, cat]) {
      expect(await poolsOf(peer).list()).toEqual([])
      await expect(poolsOf(peer).find(pool.id)).rejects.toMatchObject({ code: 'unknown_pool' })
    }
  })

  test('one peer can create a limited number of pools, and deleting one frees no slot', async () => {
    await using world = await shared({ POOLS_PER_OWNER: '2' })
    const [annPlace, bobPlace] = await world.enrolMany(2)
    const [{ peer: ann }, { peer: bob }] = [await Member.open(world, annPlace), await Member.open(world, bobPlace)]
    const found = (name: string) => poolsOf(ann).create(name, [keyOf(bobPlace)])
    const [one] = [await found('one'), await found('two')]
    await expect(found('three')).rejects.toMatchObject({ code: 'too_many_own_pools' })
    await poolsOf(bob).create('of bob', [keyOf(annPlace)])
    await one.delete()
    await expect(found('three')).rejects.toMatchObject({ code: 'too_many_own_pools' })
  })
})
