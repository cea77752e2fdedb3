/** Tests that operators redrive dead letters, and recipients process them again. */

import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { connect, type Message } from '@sealpost/sdk'
import { openFileStore } from '@sealpost/sdk/file-store'
import { groupsOf } from '@sealpost/sdk/groups'
import { poolsOf } from '@sealpost/sdk/pools'
import type { PeerKey } from '@sealpost/std'
import { redriveDeadLetters } from '@sealpost/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { keyOf } from './member.ts'
import { until } from './process.ts'
import { type Place, temporaryFolder, World } from './world.ts'

let world: World
let folder: string
let stores = 0
beforeAll(async () => {
  folder = await temporaryFolder()
  world = await World.open({ SWEEP_MS: '50', POLL_MS: '100', FAILED_ATTEMPTS_MAX: '2', FAILED_ATTEMPTS_SPAN_MS: '1' })
})
afterAll(async () => {
  await world[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

/** Returns the path of a new store, which is deleted with the folder. */
const storePath = (): string => join(folder, `store-${++stores}`)

const REDRIVEN = { ttlSeconds: 600 }

type End = (message: Message) => void
const settles: End = (message) => message.settle()
const rejects: End = (message) => message.reject('not now')

/** An application that handles its first messages in the given ways and settles all others. */
class Application {
  readonly seen: { text: string; attempt: number }[] = []
  readonly #place: Place
  readonly #ends: End[]
  readonly #storePath: string | null

  constructor(place: Place, ends: readonly End[], storePath: string | null = null) {
    this.#place = place
    this.#ends = [...ends]
    this.#storePath = storePath
  }

  async start() {
    const store = this.#storePath === null ? undefined : await openFileStore(this.#storePath)
    const peer = await connect({ ...this.#place, ...(store && { store }) })
    peer.onMessage(async (message) => {
      this.seen.push({ text: message.text(), attempt: message.attempt })
      const end = this.#ends.shift() ?? settles
      end(message)
    })
    return peer
  }

  get texts(): string[] {
    return this.seen.map(({ text }) => text)
  }

  saw(...texts: string[]): Promise<void> {
    return until(`it saw ${texts.join(', ')}`, () => this.texts.length >= texts.length).then(() =>
      expect(this.texts).toEqual(texts),
    )
  }
}

const countOf = async (table: 'dead_letter' | 'message_queue', recipient: PeerKey) => {
  const [row] = await world.db.run(
    (sql) => sql<{ n: number }[]>`
      select count(*)::int as n from ${sql(table)} q
      join member m on m.mesh_id = q.mesh_id and m.peer_no = q.recipient
      where m.peer_key = decode(${recipient}, 'hex')`,
  )
  return row!.n
}

const deadOf = (recipient: PeerKey) =>
  until('it is a dead letter', async () => (await countOf('dead_letter', recipient)) === 1)
const emptyOf = (recipient: PeerKey) =>
  until('nothing waits', async () => (await countOf('message_queue', recipient)) === 0)

/** Redrives the recipient's dead letters. @returns how many */
async function redrive(recipient: PeerKey): Promise<number> {
  await deadOf(recipient)
  return (await redriveDeadLetters(world.db, { recipient }, REDRIVEN)).redriven
}

test.each(['in memory', 'in a file'])(
  'a rejected message is delivered again each time it is redriven, with the inbox %s',
  async (where) => {
    const [alice, bob] = await world.enrolMany(2)
    const path = where === 'in a file' ? storePath() : null
    const application = new Application(bob, [rejects, rejects], path)
    await using writer = await connect(alice)
    await using reader = await application.start()
    await writer.send(reader.key, 'x')
    expect(await redrive(reader.key)).toBe(1)
    expect(await redrive(reader.key)).toBe(1)
    await application.saw('x', 'x', 'x')
    expect(application.seen.map(({ attempt }) => attempt)).toEqual([1, 2, 2])
    await emptyOf(reader.key)
    expect(await countOf('dead_letter', reader.key)).toBe(0)
    await writer.send(reader.key, 'y')
    await application.saw('x', 'x', 'x', 'y')
  },
)

test('a message rejected by an earlier process on a file store is delivered to the next one when it is redriven', async () => {
  const [alice, bob] = await world.enrolMany(2)
  const path = storePath()
  await using writer = await connect(alice)
  const before = new Application(bob, [settles, rejects, settles], path)
  const first = await before.start()
  for (const text of ['a', 'b', 'c']) await writer.send(first.key, text)
  await before.saw('a', 'b', 'c')
  await deadOf(first.key)
  await emptyOf(first.key)
  await first.close()
  expect(await redrive(keyOf(bob))).toBe(1)
  const after = new Application(bob, [], path)
  await using second = await after.start()
  await after.saw('b')
  await emptyOf(second.key)
  await writer.send(second.key, 'd')
  await after.saw('b', 'd')
})

test('a message that used up its attempts is delivered again when it is redriven', async () => {
  const [alice, bob] = await world.enrolMany(2)
  const path = storePath()
  const retries: End = (message) => message.retry(100)
  const application = new Application(bob, [retries, (message) => message.retry(240_000)], path)
  await using writer = await connect(alice)
  await using reader = await application.start()
  await writer.send(reader.key, 'x')
  expect(await redrive(reader.key)).toBe(1)
  await application.saw('x', 'x', 'x')
  expect(application.seen.at(-1)).toEqual({ text: 'x', attempt: 2 })
  await emptyOf(reader.key)
})

test('a pool message that a member rejected is delivered to the same member again when it is redriven', async () => {
  const [alice, only] = await world.enrolMany(2)
  await using owner = await connect(alice)
  const pool = await poolsOf(owner).create('redriven', [keyOf(only)])
  await pool.send('a job')
  const application = new Application(only, [rejects], storePath())
  await using worker = await application.start()
  await (await poolsOf(worker).find(pool.id)).join({ credit: 1 })
  expect(await redrive(pool.id as string as PeerKey)).toBe(1)
  await application.saw('a job', 'a job')
  await emptyOf(pool.id as string as PeerKey)
})

test('a group message that a member rejected is delivered with its body when it is redriven', async () => {
  const [alice, bob, carol] = await world.enrolMany(3)
  await using owner = await connect(alice)
  const group = await groupsOf(owner).create('crew', [keyOf(bob), keyOf(carol)])
  const [rejecting, settling] = [new Application(bob, [rejects]), new Application(carol, [])]
  await using reader = await rejecting.start()
  await using other = await settling.start()
  await group.send('to all')
  await settling.saw('to all')
  await emptyOf(other.key)
  expect(await redrive(reader.key)).toBe(1)
  await rejecting.saw('to all', 'to all')
  await emptyOf(reader.key)
})
