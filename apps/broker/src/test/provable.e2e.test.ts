/**
 * Tests that a broker whose database was changed by hand can't make anyone a member of a mesh with a root. The broker is
 * real, and the attacks are SQL statements (docs/adr/0017).
 */
import {
  bindBoxKey,
  certificateOf,
  createInvite,
  generateBoxKeys,
  generateIdentity,
  generateSigningKeys,
  type Identity,
  nameRootForMany,
  readAnyInvite,
  signAdmission,
  signEndorsement,
  signEnrolment,
  type Transcript,
} from '@sealpost/identity'
import { connect, type MemberEntry } from '@sealpost/sdk'
import { groupsOf } from '@sealpost/sdk/groups'
import { join, joinAsDevice } from '@sealpost/sdk/join'
import { guardMembers } from '@sealpost/sdk/members'
import { MemoryStore } from '@sealpost/sdk/memory-store'
import { poolsOf } from '@sealpost/sdk/pools'
import { openState, type StateEvent, setSpace } from '@sealpost/sdk/state'
import { usersOf } from '@sealpost/sdk/users'
import { type PeerKey, toHex } from '@sealpost/std'
import { addMembers, listPeers } from '@sealpost/store'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { codeOf, keyOf } from './member.ts'
import { attack, hideLog, joinAs, keyLiteral, proofsOf, rootedMesh, type Scene, standings } from './rooted-mesh.ts'
import { type Place, World } from './world.ts'

const FAR_MS = 4_000_000_000_000

let host: World
beforeAll(async () => {
  host = await World.open()
})
afterAll(() => host[Symbol.asyncDispose]())

const scene = (): Promise<Scene> => rootedMesh(host)

/** Inserts a member as an operator with a database account can. */
async function insertGhost(world: World, name = 'ghost', identity: Identity = generateIdentity()): Promise<Place> {
  await addMembers(world.db, world.meshId, [{ ...bindBoxKey(identity, world.meshId, FAR_MS), name }])
  return world.place(identity)
}

async function isIn(world: World, table: 'space_grant' | 'message_queue', key: PeerKey): Promise<boolean> {
  const column = table === 'space_grant' ? 'peer_no' : 'recipient'
  const rows = await world.db.run((sql) =>
    sql.unsafe(
      `select from ${table} t join member m on m.mesh_id = t.mesh_id and m.peer_no = t.${column}
       where t.mesh_id = '${world.meshId}' and m.peer_key = ${keyLiteral(key)}`,
    ),
  )
  return rows.length > 0
}

test('until a mesh adopts a root its members are unproven, and everything works', async () => {
  const world = await host.inNewMesh()
  const ada = await world.enrolAdmin('ada')
  const peer = world.closing(await connect(ada))
  const ben = await joinAs(world, 'ben', ada)
  const { members, events } = await proofsOf(world, ada)
  guardMembers(peer, members)
  expect(await standings({ peer, members })).toEqual({ ada: 'no_root', ben: 'no_root' })
  const group = await groupsOf(peer).create('crew', [keyOf(ben)])
  const { stored } = await group.send('hello')
  expect(await stored).toMatchObject([{ peer: keyOf(ben), error: null }])
  expect(events).toEqual([])
})

test('one command adopts a root: members by invite and by endorsement are proven, and another root is refused', async () => {
  const { world, ada, ben, carol, peer, members, events, root } = await scene()
  expect(await standings({ peer, members })).toEqual({ ada: 'proven', ben: 'proven', carol: 'proven' })
  const other = await proofsOf(world, ben)
  expect([...(await other.members.check(await peer.members())).values()]).toEqual(['proven', 'proven', 'proven'])
  expect(other.events).toEqual([{ type: 'root_pinned', root: root.publicKey }])
  expect(events).toEqual([])
  expect(await codeOf(members.adopt(generateSigningKeys(), []))).toBe('root_differs')
  const another = (await proofsOf(world, ada)).members
  expect(await codeOf(another.adopt(generateSigningKeys(), await peer.members()))).toBe('root_differs')
  expect(await codeOf(other.members.adopt(generateSigningKeys(), await peer.members()))).toBe('not_admin')
  expect(await codeOf(other.members.endorse(ben.identity.signing, [entryOf(carol, 'carol')]))).toBe('not_admin')
})

const entryOf = (place: Place, name: string): MemberEntry => ({ peer: keyOf(place), name, role: 'member' })

test('devices, rotated keys and members of an invited admin are proven', async () => {
  const { world, ada, ben, peer, members } = await scene()
  const dave = await joinAs(world, 'dave', ada, 'admin')
  await joinAs(world, 'erin', dave)
  await using atBen = await connect(ben)
  await joinAsDevice({ invite: usersOf(atBen).inviteDevice('laptop'), identity: generateIdentity() })
  const next = generateIdentity()
  await using atDave = await connect(dave)
  await atDave.rotateIdentity({ ...next, box: generateBoxKeys(2) })
  expect(await standings({ peer, members })).toEqual({
    ...{ ada: 'proven', ben: 'proven', 'ben/laptop': 'proven', carol: 'proven', dave: 'proven', erin: 'proven' },
  })
})

describe('a broker with a changed database', () => {
  test('a ghost member is unproven, and receives no key of a group, a pool or a space', async () => {
    const { world, ada, ben, peer, members, events } = await scene()
    const owner = await connect(ben) // an earlier SDK, which checks nothing
    const ghost = await insertGhost(world)
    expect(await standings({ peer, members })).toMatchObject({ ghost: 'no_certificate', ben: 'proven' })
    expect(events).toEqual([{ type: 'member_unproven', peer: keyOf(ghost), name: 'ghost', reason: 'no_certificate' }])
    const [groups, pools] = [groupsOf(peer), poolsOf(peer)]
    expect(await codeOf(groups.create('crew', [keyOf(ghost)]))).toBe('member_unproven')
    expect(await codeOf(pools.create('crew', [keyOf(ghost)]))).toBe('member_unproven')
    const group = await groups.create('crew', [keyOf(ben)])
    expect(await codeOf(group.add(keyOf(ghost)))).toBe('member_unproven')
    const theirs = await groupsOf(owner).create('theirs', [keyOf(ada), keyOf(ghost)])
    const { stored } = await (await groups.find(theirs.id)).send('secret')
    expect((await stored).map(({ peer: to, error }) => [to, error?.code ?? null]).sort()).toEqual(
      [
        [keyOf(ben), null],
        [keyOf(ghost), 'member_unproven'],
      ].sort(),
    )
    const pool = await poolsOf(owner).create('theirs', [keyOf(ghost)])
    expect(await codeOf((await pools.find(pool.id)).send('secret'))).toBe('member_unproven')
    expect(await isIn(world, 'message_queue', keyOf(ghost))).toBe(false)
    await owner.close()

    await setSpace(ada)
    await using state = await openState({ ...ada, members })
    await state.set('key', 'value')
    await using atBen = await openState({ ...ben, members: (await proofsOf(world, ben)).members })
    expect((await atBen.get('key'))?.text()).toBe('value')
    expect(await isIn(world, 'space_grant', keyOf(ghost))).toBe(false)
    await using atGhost = await openState({ ...ghost, maintainKeysEveryMs: 0 })
    expect(await codeOf(atGhost.get('key'))).toBe('key_missing')
  })

  test('a ghost that creates the keys of a space before everyone else gives them to nobody', async () => {
    const { world, ada, members } = await scene()
    const ghost = await insertGhost(world)
    await setSpace(ada)
    await using atGhost = await openState({ ...ghost, maintainKeysEveryMs: 0 })
    await atGhost.set('key', 'value')
    const events: StateEvent[] = []
    await using state = await openState({ ...ada, members, onEvent: (event) => void events.push(event) })
    expect(await codeOf(state.set('other', 'secret'))).toBe('key_missing')
    expect(events[0]).toMatchObject({ type: 'grant_forged', reason: expect.stringContaining('certificate') })
  })

  test('a removed revocation is detected by members that have seen it, and by new members whose invite names the number of revocations', async () => {
    const { world, ada, ben, carol, peer, members } = await scene()
    const store = new MemoryStore()
    const atCarol = await proofsOf(world, carol, { store })
    await members.revoke(ada.identity.signing, keyOf(ben), await peer.members())
    await peer.revokeMember(keyOf(ben))
    expect(await standings({ peer, members })).toEqual({ ada: 'proven', carol: 'proven' })
    expect([...(await atCarol.members.check(await peer.members())).values()]).toEqual(['proven', 'proven'])
    await atCarol.members.close()

    await attack(world, `update member set revoked_at = null where mesh_id = MESH`)
    await attack(world, `delete from member_revocation where mesh_id = MESH`)
    await using back = await connect(ben) // the broker serves the revoked member again
    expect(back.isOnline).toBe(true)
    expect(await standings({ peer, members })).toMatchObject({ ben: 'revoked', carol: 'proven' })
    expect(await codeOf(groupsOf(peer).create('crew', [keyOf(ben)]))).toBe('member_unproven')

    const later = await proofsOf(world, carol, { store: new MemoryStore(store.records) })
    const listed = await peer.members()
    expect((await later.members.check(listed)).get(keyOf(ben))).toBe('revoked')
    expect(later.events).toContainEqual({ type: 'revocations_rolled_back', known: 1, shown: 0 })
    expect(later.events).toContainEqual({ type: 'member_unproven', peer: keyOf(ben), name: 'ben', reason: 'revoked' })

    await hideLog(world)
    const carols = await proofsOf(world, carol, { revocations: 1 })
    expect((await carols.members.check(listed)).get(keyOf(ben))).toBe('revocations_missing')
    expect(carols.events).toContainEqual({ type: 'revocations_rolled_back', known: 1, shown: 0 })
  })

  test('a space gets a new key when a member was revoked, even if the broker hides the revocation', async () => {
    const { ada, ben, peer, members } = await scene()
    await setSpace(ada)
    await using state = await openState({ ...ada, members, maintainKeysEveryMs: 0 })
    await state.set('before', 'open to ben')
    await using atBen = await openState({ ...ben, maintainKeysEveryMs: 0 })
    await state.maintainKeys()
    expect((await atBen.get('before'))?.text()).toBe('open to ben')
    await members.revoke(ada.identity.signing, keyOf(ben), await peer.members()) // the broker executes no revocation
    const { keyEpoch } = await state.status()
    await using later = await openState({ ...ada, members, maintainKeysEveryMs: 0 })
    expect((await later.status()).keyEpoch).toBe(keyEpoch + 1)
    await later.set('after', 'closed to ben')
    expect(await codeOf(atBen.get('after'))).toBe('key_missing')
  })

  test('a changed role, and a name that was moved to another key, are unproven', async () => {
    const { world, ben, carol, peer, members, events } = await scene()
    await attack(
      world,
      `update member set role = 'admin' where mesh_id = MESH and peer_key = ${keyLiteral(keyOf(carol))}`,
    )
    await attack(
      world,
      `update member set name = 'old ben', skeleton = 'old ben', folded = 'old ben' where mesh_id = MESH and peer_key = ${keyLiteral(keyOf(ben))}`,
    )
    const ghost = await insertGhost(world, 'ben')
    expect(await standings({ peer, members })).toEqual({
      ...{ ada: 'proven', carol: 'role_differs', ben: 'no_certificate', 'old ben': 'name_differs' },
    })
    expect(events.map((event) => event.type === 'member_unproven' && [event.peer, event.reason]).sort()).toEqual(
      [
        [keyOf(carol), 'role_differs'],
        [keyOf(ben), 'name_differs'],
        [keyOf(ghost), 'no_certificate'],
      ].sort(),
    )
    expect(await codeOf(groupsOf(peer).create('crew', [keyOf(ghost)]))).toBe('member_unproven')
  })

  test('a certificate of another member, a forged endorsement and another root prove nothing', async () => {
    const { world, ben, peer, members, events } = await scene()
    const ghost = await insertGhost(world)
    await attack(
      world,
      `insert into member_proof select mesh_id, ${keyLiteral(keyOf(ghost))}, kind, issuer, at_ms, statement from member_proof
       where mesh_id = MESH and peer_key = ${keyLiteral(keyOf(ben))}`,
    )
    const fake = generateSigningKeys()
    const terms = { meshId: world.meshId, peerKey: keyOf(ghost), name: 'ghost', role: 'member', atMs: 5 } as const
    const bytes = Buffer.from(signEndorsement(fake, terms)).toString('hex')
    await attack(
      world,
      `insert into member_proof values (MESH, ${keyLiteral(keyOf(ghost))}, 'endorsement', ${keyLiteral(fake.publicKey)}, 5, '\\x${bytes}')`,
    )
    await attack(world, `update mesh_root set root_key = ${keyLiteral(fake.publicKey)} where mesh_id = MESH`)
    expect(await standings({ peer, members })).toMatchObject({ ghost: 'chain_broken', ben: 'proven' })
    expect(events).toContainEqual({ type: 'root_differs', root: fake.publicKey })
  })
})

test('members that join with one invite of several uses prove themselves, and the broker learns no secret of it', async () => {
  const { world, ada, peer, members, root } = await scene()
  const { meshId } = world
  const terms = { meshId, url: ada.url as string, brokerKey: ada.brokerKey, usesMax: 3 }
  const line = createInvite(ada.identity.signing, terms)
  const invite = nameRootForMany(ada.identity.signing, line, { root: root.publicKey, revocations: 0 })
  const [dave, erin] = [generateIdentity(), generateIdentity()]
  expect(await join({ invite, identity: dave, name: 'dave' })).toMatchObject({ root: root.publicKey })
  await join({ invite, identity: erin, name: 'erin' })
  await join({ invite, identity: erin, name: 'erin' }) // repeated after a lost reply
  expect(await standings({ peer, members })).toMatchObject({ dave: 'proven', erin: 'proven' })
  // The broker has the invite, and the admissions of others, but not the secret of the line.
  const ghost = await insertGhost(world)
  await attack(
    world,
    `insert into member_proof select mesh_id, ${keyLiteral(keyOf(ghost))}, kind, issuer, at_ms, statement from member_proof
     where mesh_id = MESH and peer_key = ${keyLiteral(dave.signing.publicKey)}`,
  )
  expect(await standings({ peer, members })).toMatchObject({ ghost: 'no_certificate' })
  const stolen = readAnyInvite(invite).admission!
  const other = { ...stolen, signing: generateSigningKeys() }
  expect(() => signAdmission(ghost.identity.signing, other, { name: 'ghost', atMs: 1 })).toThrow()
})

test('an invite with one use certifies one key, even if the broker that has seen it signs another enrolment', async () => {
  const { world, ada, ben, members } = await scene()
  const ghost = await insertGhost(world)
  const rows = await world.db.run((sql) =>
    sql.unsafe<{ statement: Uint8Array }[]>(
      `select statement from member_proof where mesh_id = '${world.meshId}' and peer_key = ${keyLiteral(keyOf(ben))}`,
    ),
  )
  const invite = invitedBy(new Uint8Array(rows[0]!.statement))
  const { signing } = ghost.identity
  const transcript: Transcript = {
    ...{
      version: 1,
      versionsOffered: [1],
      authority: 'broker.example:443',
      brokerKey: ada.brokerKey,
      meshId: world.meshId,
    },
    ...{ peerKey: signing.publicKey, serverNonce: new Uint8Array(32), clientNonce: new Uint8Array(32) },
    ...{ connectionId: new Uint8Array(16), issuedAtMs: Date.now(), capabilities: [] },
  }
  const signed = { invite, name: 'ghost', bindingSignature: new Uint8Array(64) }
  const bytes = certificateOf({ ...signed, transcript, signature: signEnrolment(signing, transcript, signed) })
  await attack(
    world,
    `insert into member_proof select mesh_id, ${keyLiteral(keyOf(ghost))}, kind, issuer, at_ms, '\\x${toHex(bytes)}' from member_proof
     where mesh_id = MESH and peer_key = ${keyLiteral(keyOf(ben))}`,
  )
  expect(await members.unprovenAmong([keyOf(ben), keyOf(ghost)])).toEqual([keyOf(ghost)])
})

/** Returns the invite in a certificate. */
const invitedBy = (certificate: Uint8Array): Uint8Array =>
  certificate.slice(2, 2 + certificate[0]! * 256 + certificate[1]!)

test('a device invite that names the root gives the device the root of its user', async () => {
  const { ben, root, members } = await scene()
  await using atBen = await connect(ben)
  const options = { root: root.publicKey, revocations: members.revocationCount }
  const invite = usersOf(atBen).inviteDevice('phone', options)
  expect(invite).toMatch(/^sealpostdevice2:/)
  expect(await joinAsDevice({ invite, identity: generateIdentity() })).toMatchObject({ label: 'phone', ...options })
  const plain = await joinAsDevice({ invite: usersOf(atBen).inviteDevice('tablet'), identity: generateIdentity() })
  expect(plain).not.toHaveProperty('root')
})

test('the certificate of an earlier invite that others can still use is not stored, so its members need an endorsement', async () => {
  const { world, ada, peer, members } = await scene()
  const { meshId } = world
  const terms = { meshId, url: ada.url as string, brokerKey: ada.brokerKey, usesMax: 2 }
  const identity = generateIdentity()
  await join({ invite: createInvite(ada.identity.signing, terms), identity, name: 'dave' })
  expect(await standings({ peer, members })).toMatchObject({ dave: 'no_certificate' })
  await members.endorse(ada.identity.signing, [entryOf(world.place(identity), 'dave')])
  expect(await standings({ peer, members })).toMatchObject({ dave: 'proven' })
})

test('an operator sees which members no certificate names', async () => {
  const { world, ben } = await scene()
  const ghost = await insertGhost(world)
  const entries = await listPeers(world.db, world.meshId, { after: null, limit: 10 })
  const byKey = new Map(entries.map(({ peerKey, isCertified }) => [peerKey, isCertified]))
  expect([byKey.get(keyOf(ben)), byKey.get(keyOf(ghost))]).toEqual([true, false])
  const bare = await host.inNewMesh()
  await bare.enrolAdmin('ada')
  const [entry] = await listPeers(bare.db, bare.meshId, { after: null, limit: 10 })
  expect(entry!.isCertified).toBeNull()
})

test('an admin that revokes an admin endorses the members that only this admin had certified', async () => {
  const { world, ada, peer, members } = await scene()
  const dave = await joinAs(world, 'dave', ada, 'admin')
  const erin = await joinAs(world, 'erin', dave)
  const again = await members.revoke(ada.identity.signing, keyOf(dave), await peer.members())
  expect(again.map(({ name }) => name)).toEqual(['erin'])
  await peer.revokeMember(keyOf(dave))
  expect(await standings({ peer, members })).toEqual({ ada: 'proven', ben: 'proven', carol: 'proven', erin: 'proven' })
  expect(await members.unprovenAmong([keyOf(erin), keyOf(dave)])).toEqual([keyOf(dave)])
})
