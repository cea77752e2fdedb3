/**
 * Tests that a device which its user has named certifies a successor of a lost key, and what thieves and a hostile broker gain
 * (docs/adr/0016). The clock of the database is set by moving `published_at`, and that of each peer by an option.
 */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import {
  generateBoxKeys,
  generateIdentity,
  generateSigningKeys,
  type Identity,
  signHeirs,
  signIdentityRotation,
  signRecovery,
} from '@sealpost/identity'
import { connect, type MemberEntry, type PeerEvent } from '@sealpost/sdk'
import { openFileStore } from '@sealpost/sdk/file-store'
import { joinAsDevice } from '@sealpost/sdk/join'
import { type MembersEvent, openMemberProofs } from '@sealpost/sdk/members'
import {
  followRecoveries,
  openRecoveries,
  type Recoveries,
  type RecoveriesOptions,
  type RecoveryEvent,
} from '@sealpost/sdk/recoveries'
import { usersOf } from '@sealpost/sdk/users'
import { toHex } from '@sealpost/std'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { codeOf, heardBy, keyOf, textsOf } from './member.ts'
import { until } from './process.ts'
import { type Place, temporaryFolder, World } from './world.ts'

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
  const { alice, bob, laptop, atLaptop, atBob, own } = await scene()
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
  expect(atBob.events.at(-1)).toMatchObject({
    state: 'followed',
    label: 'laptop',
    successor: keyOf({ identity: next }),
  })
  const events: PeerEvent[] = []
  await using now = await connect({ ...alice, identity: next, onEvent: (event) => void events.push(event) })
  const heard = heardBy(now)
  // Nobody can open what was sealed to the lost key, so it becomes a dead letter.
  await until('the earlier message is rejected', () => events.some(({ type }) => type === 'tamper'))
  await writer.send(keyOf(alice), 'to the former name')
  await until('it arrived', () => textsOf(heard).includes('to the former name'))
  const atWriter = heardBy(writer)
  await using device = await connect({ ...laptop, credit: 0 })
  await device.send(keyOf(bob), 'from the device')
  await until('it arrived', () => atWriter.length === 1)
  expect(atWriter[0]).toMatchObject({ user: now.key, deviceLabel: 'laptop' })
})

describe('a thief of an heir', () => {
  test('is cancelled by the former key, permanently', async () => {
    const { alice, laptop, atLaptop, atBob, own } = await scene()
    const thief = successorOf(alice)
    await atLaptop.recover(thief)
    await atBob.recoveries.check([keyOf(alice)])
    expect(await own.cancel()).toMatchObject({ label: 'laptop', successor: keyOf({ identity: thief }) })
    expect(await own.heirs()).toEqual([])
    expect(await codeOf(own.cancel())).toBe('recovery_unknown')
    await passDays(alice, 8)
    for (const recoveries of [atLaptop, (await Watcher.open(laptop)).recoveries])
      expect(await codeOf(recoveries.recover(thief))).toMatch(/recovery_cancelled|not_heir/)
    atBob.days = 8
    expect(await atBob.recoveries.check([keyOf(alice)])).toEqual([])
    expect(atBob.types).toEqual(['recovery_pending', 'recovery_cancelled'])
    expect(atBob.recoveries.currentKey(keyOf(alice))).toBe(keyOf(alice))
    await (await connect({ ...alice, credit: 0 })).close()
  })

  test('loses the race against a rotation by the former key', async () => {
    const { alice, atLaptop, atBob } = await scene()
    const thief = successorOf(alice)
    await atLaptop.recover(thief)
    await atBob.recoveries.check([keyOf(alice)])
    await using peer = await connect({ ...alice, credit: 0 })
    const next = successorOf(alice)
    await peer.rotateIdentity(next)
    await passDays(alice, 8)
    expect(await codeOf(atLaptop.recover(thief))).toMatch(/recovery_cancelled|not_heir/)
    await atBob.recoveries.check([keyOf(alice)])
    expect(atBob.types).toEqual(['recovery_pending', 'recovery_cancelled'])
    expect(atBob.recoveries.currentKey(keyOf(alice))).toBe(keyOf({ identity: next }))
  })

  test('gets no message of a contact who had verified the former key, until that contact accepts the new one', async () => {
    const { alice, bob, atLaptop } = await scene()
    const thief = successorOf(alice)
    const careful = await Watcher.open(bob, { isVerified: (key) => key === keyOf(alice) })
    await atLaptop.recover(thief)
    await careful.recoveries.check([keyOf(alice)])
    expect(() => careful.recoveries.accept(keyOf(alice))).toThrow(expect.objectContaining({ code: 'recovery_unknown' }))
    await passDays(alice, 7)
    await atLaptop.recover(thief)
    careful.days = 30
    expect(await careful.recoveries.check([keyOf(alice)])).toMatchObject([{ state: 'unverified' }])
    expect(careful.events.at(-1)).toMatchObject({ type: 'identity_recovered', state: 'unverified', label: 'laptop' })
    expect(() => careful.recoveries.currentKey(keyOf(alice))).toThrow(
      expect.objectContaining({ code: 'key_recovered' }),
    )
    careful.recoveries.accept(keyOf(alice))
    expect(careful.recoveries.currentKey(keyOf(alice))).toBe(keyOf({ identity: thief }))
  })

  test('who is no heir certifies nothing, and one recovery does not replace that of another heir', async () => {
    const { alice, bob, laptop, phone, own, atLaptop } = await scene()
    const atPhone = (await Watcher.open(phone)).recoveries
    expect(await codeOf(atPhone.lostKey())).toBe('not_heir')
    expect(await codeOf(atPhone.recover(successorOf(alice)))).toBe('not_heir')
    expect(await codeOf((await Watcher.open(bob)).recoveries.recover(successorOf(alice)))).toBe('not_heir')
    expect(await codeOf(own.nameHeirs([{ device: keyOf(bob), label: 'bob' }]))).toBe('device_unknown')
    const heirs = [laptop, phone].map((place, n) => ({ device: keyOf(place), label: ['laptop', 'phone'][n]! }))
    await own.nameHeirs(heirs)
    await atLaptop.recover(successorOf(alice))
    expect(await codeOf(atPhone.recover(successorOf(alice)))).toBe('recovery_pending')
    expect(await codeOf(atLaptop.recover({ ...successorOf(alice), box: generateBoxKeys(1) }))).toBe('stale_epoch')
    expect(await codeOf(atLaptop.recover({ ...successorOf(alice), signing: bob.identity.signing }))).toBe('key_taken')
  })
})

describe('a hostile broker', () => {
  /** Changes the database as an operator can. */
  const attack = (statement: string) =>
    world.db.run((sql) => sql.unsafe(statement.replaceAll('MESH', `'${world.meshId}'::uuid`)))
  const literal = (bytes: Uint8Array | string) => `'\\x${typeof bytes === 'string' ? bytes : toHex(bytes)}'::bytea`

  test('a broker that skips the waiting time gains nothing from a peer that was online, even if that peer restarts', async () => {
    const { alice, bob, atLaptop } = await scene()
    const folder = await temporaryFolder()
    const next = successorOf(alice)
    const seenOn = async (day: number) => {
      const store = await openFileStore(join(folder, 'recoveries'))
      await using recoveries = await openRecoveries({ ...bob, store, nowMs: () => day * DAY_MS })
      const [found] = await recoveries.check([keyOf(alice)])
      return [found!.seenAtMs / DAY_MS, found!.state]
    }
    await atLaptop.recover(next)
    expect(await seenOn(5)).toEqual([5, 'pending'])
    await passDays(alice, 100)
    await atLaptop.recover(next)
    expect(await seenOn(6)).toEqual([5, 'waiting'])
    expect(await seenOn(11)).toEqual([5, 'waiting'])
    expect(await seenOn(12)).toEqual([5, 'followed'])
    await rm(folder, { recursive: true })
  })

  test('a replayed old heir statement, and a recovery by an heir that it names, are detected', async () => {
    const { alice, laptop, own, atBob } = await scene()
    const terms = { meshId: world.meshId, epoch: 1, heirs: [{ device: keyOf(laptop), label: 'laptop' }] }
    const old = signHeirs(alice.identity.signing, terms)
    await own.nameHeirs([])
    await atBob.recoveries.check([keyOf(alice)])
    const thief = successorOf(alice)
    const signers = { heir: laptop.identity.signing, successor: thief.signing }
    const recovery = signRecovery(signers, { heirs: old, atMs: 1 })
    await attack(
      `update heir_statement set epoch = 1, statement = ${literal(old)} where user_key = ${literal(keyOf(alice))}`,
    )
    await attack(
      `insert into key_recovery select mesh_id, peer_key, peer_no, 1, ${literal(keyOf(laptop))}, ${literal(keyOf({ identity: thief }))},
         ${literal(recovery)} from member where mesh_id = MESH and peer_key = ${literal(keyOf(alice))}`,
    )
    atBob.days = 30
    await atBob.recoveries.check([keyOf(alice)])
    expect(atBob.types).toEqual(['heirs_rolled_back', 'recovery_refused'])
    expect(atBob.recoveries.currentKey(keyOf(alice))).toBe(keyOf(alice))
  })

  test('a second successor of a followed key is reported', async () => {
    const { alice, laptop, atLaptop, atBob } = await scene()
    const next = successorOf(alice)
    await atLaptop.recover(next)
    await passDays(alice, 7)
    await atLaptop.recover(next)
    await atBob.recoveries.check([keyOf(alice)])
    atBob.days = 7
    await atBob.recoveries.check([keyOf(alice)])
    expect(atBob.recoveries.currentKey(keyOf(alice))).toBe(keyOf({ identity: next }))
    const other = successorOf(alice)
    const keys = { former: alice.identity.signing, successor: other.signing }
    const rotation = signIdentityRotation(keys, { meshId: world.meshId, atMs: 1 })
    const terms = { meshId: world.meshId, epoch: 1, heirs: [{ device: keyOf(laptop), label: 'laptop' }] }
    const heirs = signHeirs(alice.identity.signing, terms)
    const bytes = signRecovery({ heir: laptop.identity.signing, successor: other.signing }, { heirs, atMs: 2 })
    atBob.recoveries.take([
      { kind: 'succession', bytes: rotation },
      { kind: 'recovery', bytes },
    ])
    await atBob.recoveries.check([keyOf(alice)])
    expect(atBob.types.filter((type) => type === 'succession_forked')).toHaveLength(1)
    expect(atBob.recoveries.currentKey(keyOf(alice))).toBe(keyOf({ identity: next }))
  })
})

describe('with the log of the mesh', () => {
  const attack = (statement: string) =>
    world.db.run((sql) => sql.unsafe(statement.replaceAll('MESH', `'${world.meshId}'::uuid`)))

  test('a recovery that is not in the log is shown to its user only, and nobody follows it', async () => {
    const { alice, bob, own, atLaptop, atBob } = await scene()
    const events: MembersEvent[] = []
    const onEvent = (event: MembersEvent) => void events.push(event)
    world.closing(await openMemberProofs({ ...bob, recoveries: atBob.recoveries, onEvent }))
    world.closing(await openMemberProofs({ ...alice, recoveries: own }))
    await atBob.recoveries.check([keyOf(alice)])
    await attack('alter table key_recovery disable trigger log_change')
    await atLaptop.recover(successorOf(alice))
    await attack('alter table key_recovery enable trigger log_change')
    expect(await atBob.recoveries.check([keyOf(alice)])).toEqual([])
    expect(events).toMatchObject([{ type: 'statement_not_logged', kind: 'recovery' }])
    expect(await own.check([keyOf(alice)])).toMatchObject([{ state: 'pending' }])
    await attack(`select log_append(mesh_id, 13, statement) from key_recovery where mesh_id = MESH`)
    expect(await atBob.recoveries.check([keyOf(alice)])).toMatchObject([{ state: 'pending' }])
  })

  test('an objection that the broker hides from requests is read from the log', async () => {
    const { alice, bob, own, atLaptop, atBob } = await scene()
    const next = successorOf(alice)
    const row = `heir_statement where user_key = '\\x${keyOf(alice)}'`
    await attack(`create table earlier_heirs as select epoch, statement from ${row}`)
    await atLaptop.recover(next)
    expect(await atBob.recoveries.check([keyOf(alice)])).toMatchObject([{ state: 'pending' }])
    await own.nameHeirs([])
    await attack(
      `update heir_statement h set epoch = e.epoch, statement = e.statement from earlier_heirs e where user_key = '\\x${keyOf(alice)}'`,
    )
    await attack('drop table earlier_heirs')
    await passDays(alice, 7)
    await atLaptop.recover(next)
    atBob.days = 7
    const proofs = world.closing(await openMemberProofs({ ...bob, recoveries: atBob.recoveries }))
    await proofs.check([{ peer: keyOf(alice), name: 'alice', role: 'member' } as MemberEntry])
    expect(atBob.types).toContain('recovery_cancelled')
    expect(atBob.recoveries.currentKey(keyOf(alice))).toBe(keyOf(alice))
  })
})

test('the certificate of a recovered key leads over the recovery to the root, once the peer follows it', async () => {
  const { alice, bob, atLaptop, atBob } = await scene()
  const admin = await world.enrolAdmin('ada')
  await using peer = await connect({ ...admin, credit: 0 })
  const members = world.closing(await openMemberProofs(admin))
  await members.adopt(
    generateSigningKeys(),
    (await peer.members()).filter(({ name }) => !name.includes('/')),
  )
  const next = successorOf(alice)
  await atLaptop.recover(next)
  await passDays(alice, 7)
  await atLaptop.recover(next)
  const proofs = world.closing(await openMemberProofs({ ...bob, recoveries: atBob.recoveries }))
  const standing = async () => {
    const listed = await peer.members()
    const found = await proofs.check(listed)
    return [keyOf({ identity: next }), keyOf(bob)].map((key) => found.get(key))
  }
  expect(await standing()).toEqual(['key_recovered', 'proven'])
  atBob.days = 7
  await atBob.recoveries.check([keyOf(alice)])
  expect(await standing()).toEqual(['proven', 'proven'])
  const blind = world.closing(await openMemberProofs(bob))
  expect((await blind.check(await peer.members())).get(keyOf({ identity: next }))).toBe('no_certificate')
})
