/** Tests that a peer can rotate its box key and read earlier messages, and that nobody else can rotate it. */
import { bindBoxKey, generateBoxKeys, generateIdentity, type Identity } from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import { connect, type Peer, type PeerEvent } from '@sealpost/sdk'
import { renewBinding } from '@sealpost/sdk/binding'
import { HttpAccess } from '@sealpost/sdk/prekeys'
import { toBase64url, toHex } from '@sealpost/std'
import { addMembers } from '@sealpost/store'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { codeOf, keyOf } from './member.ts'
import { until } from './process.ts'
import { WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

let world: World
beforeAll(async () => {
  world = await World.open()
})
afterAll(() => world[Symbol.asyncDispose]())

function heardBy(peer: Peer): string[] {
  const heard: string[] = []
  peer.onMessage((message) => void heard.push(message.text()))
  return heard
}

/** Returns the place of the peer's next process. */
function turned(place: Place, box = generateBoxKeys(place.identity.box.epoch + 1)) {
  return { ...place, identity: { ...place.identity, box }, formerBoxKeys: [place.identity.box] }
}

/** Rotates the key without receiving, so that messages stay in the queue. */
async function rotate(place: Place): Promise<ReturnType<typeof turned>> {
  const next = turned(place)
  await using peer = await connect({ ...place, credit: 0 })
  await peer.rotateBoxKey(next.identity.box)
  return next
}

const rolesOf = async () => ({ alice: await world.enrol(), bob: await world.enrol() })

test('a message sealed to the former key while its recipient was absent opens after a rotation', async () => {
  const { alice, bob } = await rolesOf()
  await using writer = await connect(alice)
  await writer.send(keyOf(bob), 'to the first key')
  const second = await rotate(bob)
  await writer.send(keyOf(bob), 'to whichever key is known')
  const third = await rotate(second)
  await using reader = await connect({ ...third, formerBoxKeys: [second.identity.box, bob.identity.box] })
  const heard = heardBy(reader)
  await until('both are opened', () => heard.length === 2)
  expect(heard).toEqual(['to the first key', 'to whichever key is known'])
  expect(reader.counters).toMatchObject({ tampered: 0 })
})

test('messages sealed with former keys open for a recipient that never saw those keys', async () => {
  const { alice, bob } = await rolesOf()
  await using first = await connect(alice)
  await first.send(keyOf(bob), 'from the first key')
  await first.close()
  const second = await rotate(alice)
  await using again = await connect(second)
  await again.send(keyOf(bob), 'from the second')
  await again.close()
  const third = await rotate(second)
  await using last = await connect(third)
  await last.send(keyOf(bob), 'from the third')
  await using reader = await connect(bob)
  const heard = heardBy(reader)
  await until('all are opened', () => heard.length === 3)
  expect(heard).toEqual(['from the first key', 'from the second', 'from the third'])
  expect(reader.counters).toMatchObject({ tampered: 0 })
})

test('live sessions continue in both directions, and the other peer learns of the rotation at once', async () => {
  const { alice, bob } = await rolesOf()
  const events: PeerEvent[] = []
  await using a = await connect(alice)
  await using b = await connect({ ...bob, onEvent: (event) => events.push(event) })
  const [atA, atB] = [heardBy(a), heardBy(b)]
  await a.send(b.key, '1')
  await b.send(a.key, '2')
  await a.rotateBoxKey(generateBoxKeys(2))
  await until('the event came', () => events.some(({ type }) => type === 'key_changed'))
  expect(events).toContainEqual({ type: 'key_changed', peer: a.key, boxEpoch: 2 })
  await a.send(b.key, '3')
  await b.send(a.key, '4')
  await Promise.all([a.rotateBoxKey(generateBoxKeys(3)), a.send(b.key, '5'), b.send(a.key, '6')])
  await until('all came', () => atA.length === 3 && atB.length === 3)
  expect([atA, atB]).toEqual([
    ['2', '4', '6'],
    ['1', '3', '5'],
  ])
  expect([a.counters.tampered, b.counters.tampered]).toEqual([0, 0])
})

test('a lower or equal epoch is refused; repeating the same binding is not', async () => {
  const { alice } = await rolesOf()
  await using peer = await connect(alice)
  const next = generateBoxKeys(3)
  await peer.rotateBoxKey(next)
  await peer.rotateBoxKey(next)
  for (const epoch of [1, 2, 3])
    await expect(peer.rotateBoxKey(generateBoxKeys(epoch))).rejects.toMatchObject({ code: 'stale_epoch' })
  expect(await peer.lookupKey(peer.key)).toMatchObject({ boxEpoch: 3, boxKey: next.publicKey })
})

const DAY_MS = 86_400_000

/** Enrols a member whose key binding ends after this number of days. */
async function enrolFor(days: number): Promise<Place> {
  const identity = generateIdentity()
  await addMembers(world.db, world.meshId, [bindBoxKey(identity, world.meshId, Date.now() + days * DAY_MS)])
  return world.place(identity)
}

async function bindingsOf(place: Place): Promise<FrameOf<'keyHistory'>['bindings']> {
  const client = await WireClient.enter(await world.enrol())
  client.send({ type: 'lookupHistory', ref: 1, peer: keyOf(place) })
  const { bindings } = await client.next('keyHistory')
  client.destroy()
  return bindings
}

test.each([29, -5])(
  'with %i days left, a peer that connects extends its binding to 90 days with the same key',
  async (days) => {
    const place = await enrolFor(days)
    const [former] = await bindingsOf(place)
    await using writer = await connect(await world.enrol())
    if (days > 0) await writer.send(keyOf(place), 'sealed before')
    else await expect(writer.send(keyOf(place), 'x')).rejects.toMatchObject({ code: 'key_refused' })
    await using peer = await connect(place)
    const heard = heardBy(peer)
    const bindings = await until('the binding is extended', async () => {
      const found = await bindingsOf(place)
      return found[0]!.notAfterMs > Date.now() + 89 * DAY_MS ? found : null
    })
    expect(bindings).toEqual([{ ...former, notAfterMs: expect.any(Number), signature: expect.any(Uint8Array) }])
    await writer.send(keyOf(place), 'sealed after')
    await until('all are opened', () => heard.includes('sealed after'))
    expect(heard).toEqual(days > 0 ? ['sealed before', 'sealed after'] : ['sealed after'])
  },
)

test('a peer that stays connected checks its binding once a week', async () => {
  vi.useFakeTimers({ toFake: ['setInterval'] })
  onTestFinished(() => void vi.useRealTimers())
  const place = await enrolFor(31)
  await using peer = await connect(place)
  const { notAfterMs, signature } = bindBoxKey(place.identity, place.meshId, Date.now() + 29 * DAY_MS)
  await world.db.run(
    (sql) => sql`
      update member set binding_not_after_ms = ${notAfterMs}::bigint, binding_signature = decode(${toHex(signature)}, 'hex')
      where mesh_id = ${place.meshId} and encode(peer_key, 'hex') = ${peer.key}`,
  )
  vi.advanceTimersByTime(7 * DAY_MS)
  await until(
    'the binding is extended',
    async () => (await bindingsOf(place))[0]!.notAfterMs > Date.now() + 89 * DAY_MS,
  )
})

test('a broker reports only a binding that is due, and an older SDK that ignores the report keeps its session', async () => {
  const [due, fresh] = [await enrolFor(29), await enrolFor(31)]
  const [atDue, atFresh] = [await WireClient.enter(due), await WireClient.enter(fresh)]
  expect(await atDue.next('directory')).toMatchObject({ ref: 0, bindings: [{ peer: keyOf(due) }], unknown: [] })
  for (const client of [atDue, atFresh]) await client.echo()
  expect(atFresh.frames.map(({ type }) => type)).not.toContain('directory')
  for (const client of [atDue, atFresh]) client.destroy()
})

function bindFrame({ identity, meshId }: Place, changed: Partial<FrameOf<'bind'>> = {}, by: Identity = identity) {
  const box = generateBoxKeys(2)
  const { boxKey, boxEpoch, notAfterMs, signature } = bindBoxKey({ signing: by.signing, box }, meshId, 4e12)
  return { type: 'bind', ref: 7, boxKey, boxEpoch, notAfterMs, signature, ...changed } as const
}

test("H45: a binding without the peer's signature for this mesh is refused", async () => {
  const { alice, bob } = await rolesOf()
  const client = await WireClient.enter(alice)
  const foreign = await world.enrol(await world.mesh(), alice.identity)
  const frames = [
    bindFrame(alice, { signature: new Uint8Array(64) }),
    bindFrame(alice, { boxEpoch: 5 }),
    bindFrame(alice, { boxKey: bob.identity.box.publicKey }),
    bindFrame(alice, { notAfterMs: 1 }),
    bindFrame(alice, {}, bob.identity),
    bindFrame(foreign),
  ]
  for (const frame of frames) {
    client.send(frame)
    expect(await client.next('bound')).toEqual({ type: 'bound', ref: 7, outcome: 'bad_binding' })
  }
  client.send({ type: 'lookupHistory', ref: 8, peer: keyOf(alice) })
  expect((await client.next('keyHistory')).bindings.map(({ boxEpoch }) => boxEpoch)).toEqual([1])
  client.send(bindFrame(alice))
  expect(await client.next('bound')).toMatchObject({ outcome: 'done' })
  client.destroy()
})

test("an epoch beyond the database's range is refused, and the session continues", async () => {
  const { alice } = await rolesOf()
  const box = generateBoxKeys(2 ** 31)
  const { boxKey, boxEpoch, notAfterMs, signature } = bindBoxKey({ ...alice.identity, box }, alice.meshId, 4e12)
  const client = await WireClient.enter(alice)
  client.send({ type: 'bind', ref: 1, boxKey, boxEpoch, notAfterMs, signature })
  expect(await client.next('bound')).toMatchObject({ outcome: 'bad_binding' })
  await client.echo()
  client.destroy()
})

test('only peers that looked the key up or watch the peer get the hint', async () => {
  const { alice } = await rolesOf()
  const places = await world.enrolMany(3)
  const [asker, watcher, other] = (await Promise.all(places.map((place) => WireClient.enter(place)))) as [
    WireClient,
    WireClient,
    WireClient,
  ]
  asker.send({ type: 'lookup', ref: 1, peers: [keyOf(alice)] })
  await asker.next('directory')
  watcher.send({ type: 'watch', isOn: true })
  await watcher.next('presence')
  await rotate(alice)
  const hint = { type: 'rebound', peers: [keyOf(alice)] }
  expect(await asker.next('rebound')).toEqual(hint)
  expect(await watcher.next('rebound')).toEqual(hint)
  await other.echo()
  expect(other.frames.map(({ type }) => type)).not.toContain('rebound')
  for (const client of [asker, watcher, other]) client.destroy()
})

test("the key history of an unknown peer or of another mesh's member is empty", async () => {
  const { alice } = await rolesOf()
  const elsewhere = await world.enrol(await world.mesh())
  const client = await WireClient.enter(alice)
  client.send({ type: 'lookupHistory', ref: 1, peer: keyOf(elsewhere) })
  expect(await client.next('keyHistory')).toEqual({ type: 'keyHistory', ref: 1, bindings: [] })
  client.destroy()
})

test('a member that uses only HTTP extends its expired binding, and others can seal to it again', async () => {
  const { alice } = await rolesOf()
  const identity = generateIdentity()
  await addMembers(world.db, world.meshId, [bindBoxKey(identity, world.meshId, Date.now() - 1)])
  const bob = world.place(identity)
  await using writer = await connect(alice)
  expect(await codeOf(writer.send(keyOf(bob), 'too late'))).toBe('key_refused')
  const untilMs = await renewBinding(bob)
  expect(untilMs).toBeGreaterThan(Date.now() + 89 * 86_400_000)
  expect(await renewBinding(bob)).toBe(untilMs) // nothing is due
  await writer.send(keyOf(bob), 'in time')
  const next = await rotate(bob)
  expect(await codeOf(renewBinding(bob))).toBe('stale_epoch')
  const access = new HttpAccess(next)
  const { boxKey, signature, ...facts } = bindBoxKey(next.identity, world.meshId, 1)
  const json = {
    boxKey: toBase64url(boxKey),
    boxEpoch: facts.boxEpoch,
    notAfterMs: 1,
    signature: toBase64url(signature),
  }
  expect(await codeOf(access.ask({ method: 'PUT', path: '/v1/binding', json }))).toBe('binding_refused')
  await access.close()
  const thief = { ...bob, identity: { ...next.identity, signing: generateIdentity().signing } }
  expect(await codeOf(renewBinding(thief))).toBe('auth_failed')
})
