/** Tests two shards on one database, each with messages for the other's peers. */
import { hasNats, NatsServer } from '@sealpost/bus/testing'
import { generateIdentity } from '@sealpost/identity'
import { connect, type Peer } from '@sealpost/sdk'
import { joinAsDevice } from '@sealpost/sdk/join'
import { usersOf } from '@sealpost/sdk/users'
import { test as base, expect } from 'vitest'
import { HttpPeer } from './http.ts'
import { type BrokerProcess, type Environment, until } from './process.ts'
import { envelopeTo, sendFrame, WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

const test = base.concurrent

/** Intervals longer than a test, so that every message arrives because of a hint. */
const NEVER_LOOKS = { POLL_MS: '3600000', CHECK_MS: '3600000' }

const at = (shard: BrokerProcess, place: Place): Place => ({ ...place, url: shard.url })

function collect(peer: Peer): string[] {
  const texts: string[] = []
  peer.onMessage((message) => void texts.push(message.text()))
  return texts
}

interface Cable extends AsyncDisposable {
  readonly env: Environment
  cut(world: World): Promise<void>
}

/** The transports of hints, with a way to interrupt them. */
const cables: Record<string, () => Promise<Cable>> = {
  postgres: async () => ({
    env: {},
    cut: async ({ db }) => {
      await db.run(
        (sql) => sql`
          select pg_terminate_backend(pid) from pg_stat_activity
          where application_name = 'sealpost bus' and datname = current_database()`,
      )
    },
    [Symbol.asyncDispose]: async () => undefined,
  }),
  nats: async () => {
    const server = await NatsServer.start()
    return {
      env: { NATS_URL: server.url },
      cut: () => server.stop().then(() => server.restart()),
      [Symbol.asyncDispose]: () => server.stop(),
    }
  },
}

const isNatsMissing = !hasNats && process.env.CI !== 'true'

for (const [name, lay] of Object.entries(cables))
  (name === 'nats' && isNatsMissing ? test.skip : test)(
    `a message to a peer of another shard is pushed on a hint, also after a bus failure (${name})`,
    async () => {
      await using cable = await lay()
      await using world = await World.open({ ...NEVER_LOOKS, ...cable.env })
      const other = await world.secondShard()
      for (const shard of [world.broker, other])
        await until('it is on the bus', async () => (await shard.metric('sealpost_bus_up')) === 1)
      const sender = await connect(await world.enrol())
      const recipient = await connect(at(other, await world.enrol()))
      const texts = collect(recipient)
      for (let n = 0; n < 20; n++) await sender.send(recipient.key, String(n))
      await until('all came', () => texts.length === 20)
      await cable.cut(world)
      for (let n = 20; n < 40; n++) await sender.send(recipient.key, String(n))
      await until('the rest came', () => texts.length === 40)
      expect(texts).toEqual(Array.from({ length: 40 }, (_, n) => String(n)))
      await Promise.all([sender.close(), recipient.close()])
    },
  )

test('T19: without a bus, messages to a peer of another shard wait for the poll', async ({ annotate }) => {
  await using world = await World.open({ BUS: 'memory', POLL_MS: '1000' })
  const other = await world.secondShard()
  const sender = await connect(await world.enrol())
  const recipient = await connect(at(other, await world.enrol()))
  const texts = collect(recipient)
  const delaysMs: number[] = []
  for (let n = 0; n < 5; n++) {
    await sender.send(recipient.key, String(n))
    const sentAtMs = performance.now()
    await until('it came', () => texts.length === n + 1)
    delaysMs.push(performance.now() - sentAtMs)
  }
  await annotate(`came after ${delaysMs.map(Math.round).join(', ')} ms, with a poll each second`)
  expect(texts).toEqual(['0', '1', '2', '3', '4'])
  await Promise.all([sender.close(), recipient.close()])
})

test('T15: a revocation ends sessions on every shard, and a new session ends an older one on another shard', async ({
  annotate,
}) => {
  await using world = await World.open(NEVER_LOOKS)
  const other = await world.secondShard()
  for (const shard of [world.broker, other])
    await until('it is on the bus', async () => (await shard.metric('sealpost_bus_up')) === 1)
  const place = await world.enrol()
  await using boss = await connect(await world.enrolAdmin('boss'))
  const former = await connect(place)
  const latter = await connect(at(other, place))
  expect(await former.closed).toMatchObject({ code: 'superseded' })
  const revokedAtMs = performance.now()
  await boss.revokeMember(latter.key)
  expect(await latter.closed).toMatchObject({ code: 'revoked' })
  await annotate(`the other shard had closed ${Math.round(performance.now() - revokedAtMs)} ms after the question`)
})

test('revoking a member ends its 20 sessions on both shards', async () => {
  await using world = await World.open(NEVER_LOOKS)
  const other = await world.secondShard()
  for (const shard of [world.broker, other])
    await until('it is on the bus', async () => (await shard.metric('sealpost_bus_up')) === 1)
  const admin = await connect(await world.enrolAdmin('admin'))
  const alice = await connect(await world.enrol())
  const enrolled = async (n: number) => {
    const identity = generateIdentity()
    const place = await joinAsDevice({ invite: usersOf(alice).inviteDevice(`session ${n}`), identity })
    return connect({ ...at(n % 2 ? other : world.broker, { ...place, identity }) })
  }
  const sessions = await Promise.all(Array.from({ length: 20 }, (_, n) => enrolled(n)))
  await admin.revokeMember(alice.key)
  for (const peer of [alice, ...sessions]) expect(await peer.closed).toMatchObject({ code: 'revoked' })
  await admin.close()
})

test('T15: without a bus, nothing is accepted after a revocation, and each shard finds its sessions', async ({
  annotate,
}) => {
  await using world = await World.open({ BUS: 'memory', CHECK_MS: '3000' })
  const other = await world.secondShard()
  const [place, friend] = await world.enrolMany(2)
  await using boss = await connect(await world.enrolAdmin('boss'))
  const client = await WireClient.enter(at(other, place))
  client.send(sendFrame(envelopeTo(friend)))
  expect((await client.next('ack')).items).toHaveLength(1)
  await boss.revokeMember(place.identity.signing.publicKey)
  const revokedAtMs = performance.now()
  client.send(sendFrame(envelopeTo(friend)))
  expect(await client.closed).toEqual({ code: 4403, reason: 'revoked' })
  await annotate(`closed after ${Math.round(performance.now() - revokedAtMs)} ms, with a look every 3 s`)
  expect(await world.count('message_queue')).toBe(1)
  expect(client.frames.filter(({ type }) => type === 'ack')).toEqual([])
})

test("peers of two shards see each other's presence and exchange ephemeral messages, and a poll is refused if a socket is open on another shard", async () => {
  await using world = await World.open(NEVER_LOOKS)
  const other = await world.secondShard()
  for (const shard of [world.broker, other])
    await until('each knows both', async () => (await shard.metric('sealpost_shards')) === 2)
  const [place, absent] = await world.enrolMany(2)
  const refused: string[] = []
  const alice = await connect({
    ...(await world.enrol()),
    onEvent: (event) => void (event.type === 'ephemeral_lost' && refused.push(event.code)),
  })
  const bob = await connect(at(other, place))
  bob.setStatus({ availability: 'working', summary: 'on the roof' })
  bob.onMessage((message) => message.reply(message.text().toUpperCase()))
  const whispers: string[] = []
  bob.onEphemeral(({ body }) => void whispers.push(new TextDecoder().decode(body)))
  alice.watchPresence()
  await until('the other is seen', () => alice.presence.get(bob.key)?.summary === 'on the roof')
  expect((await alice.request(bob.key, 'hello', { ifOnline: true })).text()).toBe('HELLO')
  const asked = alice.request(absent.identity.signing.publicKey, 'anybody?', { ifOnline: true })
  await expect(asked).rejects.toMatchObject({ code: 'no_responder' })
  alice.sendEphemeral(absent.identity.signing.publicKey, 'hello?')
  alice.sendEphemeral(bob.key, '50 %')
  await until('one is heard and one is not', () => whispers.length + refused.length === 2)
  expect([whispers, refused]).toEqual([['50 %'], ['no_responder']])
  const poller = await HttpPeer.enter(place)
  expect(await poller.inbox()).toMatchObject({ status: 409, body: { code: 'session_conflict' } })
  await bob.close()
  await until('the leave is seen', () => alice.presence.get(bob.key)?.isOnline === false)
  await alice.close()
})
