/**
 * Tests that a device which its user has named certifies a successor of a lost key, and what thieves and a hostile broker gain
 * (docs/adr/0016). The clock of the database is set by moving `published_at`, and that of each peer by an option.
 */
import { generateBoxKeys, generateIdentity, type Identity, signHeirs, signRecovery } from '@sealpost/identity'
import { connect, type PeerStore, type StoreRecord } from '@sealpost/sdk'
import { joinAsDevice } from '@sealpost/sdk/join'
import { guardMembers, openMemberProofs } from '@sealpost/sdk/members'
import { MemoryStore } from '@sealpost/sdk/memory-store'
import {
  followRecoveries,
  openRecoveries,
  type Recoveries,
  type RecoveriesOptions,
  type RecoveryEvent,
} from '@sealpost/sdk/recoveries'
import { usersOf } from '@sealpost/sdk/users'
import { generateSigningKeys } from '@sealpost/identity'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { codeOf, heardBy, keyOf, textsOf } from './member.ts'
import { until } from './process.ts'
import { type Place, World } from './world.ts'

const DAY_MS = 86_400_000

let world: World
beforeAll(async () => {
  world = await World.open()
})
afterAll(() => world[Symbol.asyncDispose]())

class Watcher {
  readonly events: RecoveryEvent[] = []
  readonly recoveries: Recoveries
  days = 0

  private constructor(recoveries: Recoveries) {
    this.recoveries = recoveries
  }

  static async open(place: Place, options: Partial<RecoveriesOptions> = {}): Promise<Watcher> {
    let watcher!: Watcher
    const recoveries = await openRecoveries({
      ...place,
      ...options,
      nowMs: () => 1_800_000_000_000 + watcher.days * DAY_MS,
      onEvent: (event) => void watcher.events.push(event),
    })
    watcher = new Watcher(world.closing(recoveries))
    return watcher
  }

  get types(): string[] {
    return this.events.map(({ type }) => type)
  }
}

/** Alice, whose device `laptop` is an heir and whose device `phone` is not, and her contact Bob. */
async function scene() {
  const [alice, bob] = await world.enrolMany(2)
  const own = (await Watcher.open(alice)).recoveries
  const peer = await connect({ ...alice, credit: 0 })
  const deviceOf = async (label: string): Promise<Place> => {
    const identity = generateIdentity()
    return { ...(await joinAsDevice({ invite: usersOf(peer).inviteDevice(label), identity })), identity }
  }
  const [laptop, phone] = [await deviceOf('laptop'), await deviceOf('phone')]
  await own.nameHeirs([{ device: keyOf(laptop), label: 'laptop' }])
  await peer.close()
  const atLaptop = (await Watcher.open(laptop)).recoveries
  return { alice, bob, laptop, phone, own, atLaptop, atBob: await Watcher.open(bob) }
}

const successorOf = ({ identity }: Place): Identity => ({
  ...generateIdentity(),
  box: generateBoxKeys(identity.box.epoch + 1),
})

/** Lets the database's clock pass for the recoveries of this key. */
const passDays = (former: Place, days: number) =>
  world.db.run((sql) =>
    sql.unsafe(
      `update key_recovery set published_at = published_at - interval '${days} days' where former_key = '\\x${keyOf(former)}'`,
    ),
  )

test('a named device certifies a successor, which takes over after seven days, and contacts follow it', async () => {
  const { alice, bob, atLaptop, atBob, own } = await scene()
  const next = successorOf(alice)
  expect(await atLaptop.lostKey()).toMatchObject({ user: keyOf(alice), boxEpoch: 1, heirs: [{ label: 'laptop' }] })
  expect(await atLaptop.recover(next)).toMatchObject({ former: keyOf(alice), state: 'pending' })
  expect(await atBob.recoveries.check([keyOf(alice)])).toMatchObject([{ state: 'pending', label: 'laptop' }])
  expect(await own.check([keyOf(alice)])).toMatchObject([{ state: 'pending' }])
  await passDays(alice, 6)
  const { state, waitMs } = await atLaptop.recover(next)
  expect([state, waitMs > 0.9 * DAY_MS]).toEqual(['pending', true])
  await using writer = await connect(bob)
  await using old = await connect({ ...alice, credit: 0 })
  await writer.send(old.key, 'to the former key, while it is in force')
  await passDays(alice, 1)
  expect(await atLaptop.recover(next)).toEqual({ former: keyOf(alice), state: 'done', waitMs: 0 })
  expect(await atLaptop.recover(next)).toMatchObject({ state: 'done' })
  expect(await old.closed).toMatchObject({ code: expect.stringMatching(/superseded|revoked/) })
  expect(await codeOf(connect(alice))).toBe('auth_failed')
  expect((await atBob.recoveries.check([keyOf(alice)]))[0]!.state).toBe('waiting')
  expect(() => atBob.recoveries.currentKey(keyOf(alice))).toThrow(expect.objectContaining({ code: 'key_recovered' }))
  expect(await codeOf(writer.send(keyOf(alice), 'too early'))).toBe('unknown_recipient')
  atBob.days = 7
  followRecoveries(writer, atBob.recoveries, () => [keyOf(alice)])
  await until('bob follows the key', () => atBob.types.includes('identity_recovered'))
  expect(atBob.recoveries.currentKey(keyOf(alice))).toBe(keyOf({ identity: next }))
  expect(atBob.events.at(-1)).toMatchObject({ state: 'followed', label: 'laptop', successor: keyOf({ identity: next }) })
  await using now = await connect({ ...alice, identity: next })
  const heard = heardBy(now)
  await writer.send(keyOf(alice), 'to the former name')
  await until('it arrived', () => textsOf(heard).includes('to the former name'))
})
