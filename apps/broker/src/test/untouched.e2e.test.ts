/** Tests which messages count an attempt when their recipient closes its connection. */
import { ALONE_AFTER_ATTEMPTS, decodeServerFrame } from '@sealpost/protocol'
import { type ConnectOptions, connect } from '@sealpost/sdk'
import { leaveUnread } from '@sealpost/sdk/peek'
import { expect, test } from 'vitest'
import { keyOf, Member } from './member.ts'
import { until } from './process.ts'
import { type Place, World } from './world.ts'

const FAILED_ATTEMPTS_MAX = 2
const LIMITS = { FAILED_ATTEMPTS_MAX: String(FAILED_ATTEMPTS_MAX), FAILED_ATTEMPTS_SPAN_MS: '1', SWEEP_MS: '50' }
/** The number of connections after which a message that each of them breaks off is a dead letter. */
const FATAL_TURNS = ALONE_AFTER_ATTEMPTS + FAILED_ATTEMPTS_MAX
const LEASE_MS = 4_000

interface Counts {
  readonly attempts: number
  readonly strikes: number
}

const countsIn = (world: World) =>
  world.db.run((sql) => sql<Counts[]>`select attempts, strikes from message_queue order by id`)

const UNREAD = [1, 2].map(() => ({ attempts: 0, strikes: 0 }))
const isUnread = async (world: World) => JSON.stringify(await countsIn(world)) === JSON.stringify(UNREAD)

/** Sends messages to a new member. */
async function withMail(world: World, ...texts: string[]): Promise<Place> {
  const [sender, place] = [await connect(await world.enrol()), await world.enrol()]
  for (const text of texts) await sender.send(keyOf(place), text)
  await sender.close()
  return place
}

/** Resolves when both messages are pushed. */
const arePushed = (world: World) =>
  until('both are pushed', async () => (await countsIn(world)).every(({ attempts }) => attempts > 0))

test('messages that a peer never takes are unread after each of its connections', async () => {
  await using world = await World.open(LIMITS)
  const place = await withMail(world, 'one', 'two')
  for (let turn = 0; turn <= FATAL_TURNS; turn++) {
    const peer = await connect(place)
    await arePushed(world)
    await peer.close()
    await until('they are unread', () => isUnread(world))
  }
})

test('messages that a peer leaves unread count no attempt, however long it waits', async () => {
  await using world = await World.open({ ...LIMITS, LEASE_MS: String(LEASE_MS), POLL_MS: '200' })
  const place = await withMail(world, 'one', 'two')
  const peer = await connect(place)
  leaveUnread(peer)
  await arePushed(world)
  const leaseEnd = async () => {
    const [row] = await world.db.run(
      (sql) =>
        sql<{ at: number }[]>`select extract(epoch from min(lease_until))::float8 * 1000 as at from message_queue`,
    )
    return row!.at
  }
  const firstEndMs = await leaseEnd()
  await until('the leases are extended beyond their first end', async () => (await leaseEnd()) > firstEndMs + LEASE_MS)
  expect((await countsIn(world)).map(({ attempts }) => attempts)).toEqual([1, 1])
  await peer.close()
  await until('they are unread', () => isUnread(world))
})

test('a message that makes its recipient close the peer while it handles the message becomes a dead letter', async () => {
  await using world = await World.open({ ...LIMITS, LEASE_MS: String(LEASE_MS) })
  const place = await withMail(world, 'fatal')
  for (let turn = 0; turn < FATAL_TURNS; turn++) {
    const peer = await connect(place)
    await new Promise<void>((began) => {
      peer.onMessage(() => {
        began()
        return new Promise(() => undefined)
      })
    })
    await peer.close()
  }
  await until('it is a dead letter', async () => (await world.count('dead_letter')) > 0)
  const letters = await world.db.run((sql) => sql<Counts[]>`select attempts, strikes from dead_letter`)
  expect(letters).toEqual([{ attempts: FATAL_TURNS, strikes: FAILED_ATTEMPTS_MAX }])
})

test('a receipt arrives although a message that was often attempted is pushed alone', async () => {
  await using world = await World.open(LIMITS)
  const place = await withMail(world, 'one', 'two')
  await world.db.run((sql) => sql`update message_queue set attempts = ${ALONE_AFTER_ATTEMPTS}`)
  const reader = await Member.enter(world)
  const writer = await Member.open(world, place)
  await writer.peer.send(reader.peer.key, 'x', { receipts: 'end' })
  await until('the receipt arrives', () => writer.events.some(({ type }) => type === 'receipt'))
  const attempts = (await countsIn(world)).slice(0, 2).map((row) => row.attempts)
  expect(attempts).toEqual([ALONE_AFTER_ATTEMPTS + 1, ALONE_AFTER_ATTEMPTS])
})

test('a connection that breaks counts an attempt for each message that it was pushed', async () => {
  await using world = await World.open(LIMITS)
  const place = await withMail(world, 'one', 'two')
  for (const attempt of [1, 2]) {
    const client = await world.wire(place)
    expect((await client.deliveries(2)).map((delivery) => delivery.attempt)).toEqual([attempt, attempt])
    client.destroy()
  }
})

test('a connection that the peer itself gives up counts an attempt for each message that it was pushed', async () => {
  await using world = await World.open(LIMITS)
  const place = await withMail(world, 'one', 'two')
  const sockets: PushedSocket[] = []
  class PushedSocket extends WebSocket {
    readonly attempts: number[] = []
    constructor(url: string, protocols: string[]) {
      super(url, protocols)
      sockets.push(this)
      this.addEventListener('message', ({ data }) => {
        const decoded = decodeServerFrame('binary', new Uint8Array(data as ArrayBuffer))
        if (!decoded.ok || decoded.frame.type !== 'push') return
        this.attempts.push(...decoded.frame.deliveries.map(({ attempt }) => attempt))
      })
    }
  }
  const webSocket = PushedSocket as unknown as NonNullable<ConnectOptions['webSocket']>
  const peer = await connect({ ...place, webSocket })
  for (const attempt of [1, 2, 3]) {
    await until('both are pushed', () => sockets[attempt - 1]?.attempts.length === 2)
    expect(sockets[attempt - 1]!.attempts).toEqual([attempt, attempt])
    sockets[attempt - 1]!.dispatchEvent(new MessageEvent('message', { data: 'not a frame' }))
  }
  await peer.close()
})
