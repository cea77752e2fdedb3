/**
 * Tests that members detect a broker whose log was changed by hand, or that shows different logs. The brokers are real, and
 * the attacks are SQL statements (docs/adr/0023).
 */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { bindBoxKey, generateSigningKeys, ready, signShardCertificate } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { isBrokerKey, readCheckpoint, signCheckpoint } from '@sealpost/identity/log'
import { exchangeHeads } from '@sealpost/sdk/heads'
import type { MembersEvent, SignedCheckpoint } from '@sealpost/sdk/members'
import { MemoryStore } from '@sealpost/sdk/memory-store'
import { addMembers, createMesh, listLogEntries, putLogSigner, type StoredEntry } from '@sealpost/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { HttpPeer } from './http.ts'
import { codeOf, heardBy, keyOf, Member } from './member.ts'
import { until } from './process.ts'
import { attack, hideLog, joinAs, keyLiteral, proofsOf, rootedMesh, standings } from './rooted-mesh.ts'
import { temporaryFolder, World } from './world.ts'

const FAR_MS = 4_000_000_000_000

let host: World
let folder: string
const broker = await ready().then(generateSigningKeys)
const keyFile = () => join(folder, 'broker.json')

beforeAll(async () => {
  folder = await temporaryFolder()
  await writeKeyFile(keyFile(), { kind: 'broker', signing: broker })
  host = await World.open({ BROKER_KEY_FILE: keyFile() })
})
afterAll(async () => {
  await host[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

const scene = () => rootedMesh(host)
const typesOf = (events: readonly MembersEvent[]) => events.map(({ type }) => type)

/** Replaces the log by one of other entries, with correct hashes. */
async function rewriteLog(world: World, change: (entries: StoredEntry[]) => StoredEntry[]): Promise<void> {
  const entries = await listLogEntries(world.db, world.meshId, { from: 0, limit: 1000 })
  for (const table of ['log_entry', 'log_node', 'mesh_log'])
    await attack(world, `delete from ${table} where mesh_id = MESH`)
  for (const { kind, statement } of change(entries))
    await attack(world, `select log_append(MESH, ${kind}, '\\x${Buffer.from(statement).toString('hex')}')`)
}

/** Runs with the triggers of a table turned off, as the owner of the tables can. */
async function unlogged(world: World, table: string, work: () => Promise<unknown>): Promise<void> {
  await attack(world, `alter table ${table} disable trigger log_change`)
  await work()
  await attack(world, `alter table ${table} enable trigger log_change`)
}

test('members prove each statement against the log, and a stored checkpoint is continued', async () => {
  const { world, ada, ben, peer, members, events } = await scene()
  expect(await standings({ peer, members })).toEqual({ ada: 'proven', ben: 'proven', carol: 'proven' })
  const store = new MemoryStore()
  const first = await proofsOf(world, ben, { store })
  await first.members.check(await peer.members())
  const known = first.members.log.checkpoint!
  expect(known.size).toBeGreaterThanOrEqual(7) // a root, an endorsement, two certificates and three key bindings
  await first.members.close()
  await joinAs(world, 'dave', ada)
  const later = await proofsOf(world, ben, { store: new MemoryStore(store.records) })
  expect(later.members.log.checkpoint).toEqual(known)
  expect(Object.values(await standings({ peer, members: later.members }))).toEqual(Array(4).fill('proven'))
  expect(later.members.log.checkpoint!.size).toBe(known.size + 2)
  expect(await members.log.witness(later.members.log.checkpoint!.bytes)).toBe('consistent')
  expect(await members.log.witness(known.bytes)).toBe('consistent')
  expect([...events, ...later.events]).toEqual([])
})

test('a statement without an entry is not relied on, but one of another member is', async () => {
  const { world, ada, peer, members, events } = await scene()
  await unlogged(world, 'member_proof', () => joinAs(world, 'dave', ada))
  expect(await standings({ peer, members })).toMatchObject({ ben: 'proven', dave: 'no_certificate' })
  expect(typesOf(events)).toEqual(['statement_not_logged', 'member_unproven'])
  expect(events[0]).toMatchObject({ kind: 'certificate', shown: { checkpoint: { signer: ada.brokerKey } } })
})

test('an entry that was removed from the log is missed, and so are its hashes', async () => {
  const { world, ada, peer, members, carol } = await scene()
  const ofCarol = `log_entry where mesh_id = MESH and position(${keyLiteral(keyOf(carol))} in statement) > 0`
  await attack(world, `delete from ${ofCarol}`)
  const { members: seen, events } = await proofsOf(world, carol, { store: new MemoryStore() })
  expect(await standings({ peer, members: seen })).toMatchObject({ ben: 'proven', carol: 'no_certificate' })
  expect(typesOf(events)).toContain('statement_not_logged')

  await members.log.refresh()
  await attack(world, `delete from log_node where mesh_id = MESH`)
  // The triggers need the hashes, so the broker can't store a statement without them.
  expect(await codeOf(joinAs(world, 'erin', ada))).toBe('try_later')
})

test('a proof of more entries than the log has is refused, and so is one of a damaged log', async () => {
  const { world, ada } = await scene()
  const http = await HttpPeer.enter(ada)
  const proofTo = (to: number) => http.post('/v1/log/consistency', { from: 1, to })
  expect(await proofTo(3)).toMatchObject({ status: 200 })
  expect(await proofTo(1_000)).toMatchObject({ status: 409, body: { code: 'log_size_unknown' } })
  await attack(world, `delete from log_node where mesh_id = MESH`)
  expect(await proofTo(3)).toMatchObject({ status: 500, body: { code: 'log_broken' } })
})

test('a revocation that the broker hides from requests is read from the log', async () => {
  const { world, ada, ben, carol, peer, members } = await scene()
  const store = new MemoryStore()
  const before = await proofsOf(world, carol, { store })
  await before.members.check(await peer.members())
  await before.members.close()
  await members.revoke(ada.identity.signing, keyOf(ben), await peer.members())
  await attack(world, `delete from member_revocation where mesh_id = MESH`)
  const listed = await peer.members()
  for (const options of [{ store: new MemoryStore(store.records) }, {}]) {
    const after = await proofsOf(world, carol, options)
    expect((await after.members.check(listed)).get(keyOf(ben))).toBe('revoked')
    expect(typesOf(after.events)).toContain('revocations_rolled_back')
  }
  const refreshed = new MemoryStore(store.records)
  const { members: refreshing } = await proofsOf(world, carol, { store: refreshed })
  await refreshing.log.refresh()
  await refreshing.close()
  const later = await proofsOf(world, carol, { store: new MemoryStore(refreshed.records) })
  expect((await later.members.check(listed)).get(keyOf(ben))).toBe('revoked')
  await attack(world, `delete from log_entry where mesh_id = MESH and seq = 3`)
  const hidden = await proofsOf(world, carol)
  await hidden.members.check(listed)
  expect(hidden.events).toContainEqual(expect.objectContaining({ type: 'log_withheld', code: 'entries_missing' }))
})

test('a log that was restored from an old dump is rolled back for those who saw the newer one', async () => {
  const { world, ada, ben, peer, members, events } = await scene()
  await standings({ peer, members })
  const store = new MemoryStore()
  const before = await proofsOf(world, ben, { store })
  await before.members.check(await peer.members())
  await before.members.close()
  await rewriteLog(world, (entries) => entries.slice(0, -3))
  const after = await proofsOf(world, ben, { store: new MemoryStore(store.records) })
  await after.members.check(await peer.members())
  expect(typesOf(after.events)).toEqual(['log_rolled_back'])
  expect(after.events[0]).toMatchObject({ shown: { checkpoint: { signer: ben.brokerKey } } })

  await joinAs(world, 'dave', ada) // until someone accepts the log, no new statement counts
  expect(await standings({ peer, members })).toMatchObject({ ben: 'proven', dave: 'no_certificate' })
  expect(typesOf(events)).toEqual(['log_rolled_back', 'member_unproven'])
  expect(members.log.contradiction?.type).toBe('log_rolled_back')
  await members.log.accept()
  expect(members.log.contradiction).toBeNull()
  expect(await standings({ peer, members })).toMatchObject({ ben: 'proven', dave: 'proven' })
})

test('a log that was rewritten is forked, and both signed checkpoints are evidence', async () => {
  const { world, ada, peer, members, events } = await scene()
  await standings({ peer, members })
  await rewriteLog(world, (entries) => [...entries].reverse())
  await joinAs(world, 'dave', ada)
  await members.log.refresh()
  expect(typesOf(events)).toEqual(['log_forked'])
  const { known, shown } = events[0] as { known: SignedCheckpoint; shown: SignedCheckpoint }
  for (const { checkpoint, certificate } of [known, shown]) {
    expect(readCheckpoint(checkpoint.bytes, world.meshId)).toEqual(checkpoint)
    expect(isBrokerKey(checkpoint, { brokerKey: ada.brokerKey, certificate })).toBe(true)
  }
})

test('members whose brokers show them different databases detect it when they compare checkpoints', async () => {
  const one = await host.inNewMesh()
  await using two = await World.open({ BROKER_KEY_FILE: keyFile() })
  const ada = await one.enrolAdmin('ada')
  const { meshId } = one
  await createMesh(two.db, { meshId, name: 'split' })
  await addMembers(two.db, meshId, [{ ...bindBoxKey(ada.identity, meshId, FAR_MS), name: 'ada', role: 'admin' }])
  const ben = await two.enrol(meshId)
  await addMembers(one.db, meshId, [bindBoxKey(ben.identity, meshId, FAR_MS + 1)])
  const atAda = await proofsOf(one, ada)
  const atBen = await proofsOf(two, ben)
  const [ofAda, ofBen] = [await atAda.members.log.refresh(), await atBen.members.log.refresh()]
  expect([ofAda!.size, ofBen!.size]).toEqual([2, 2])
  expect(await atAda.members.log.witness(ofBen!.bytes)).toBe('log_forked')
  expect(atAda.events).toMatchObject([
    { type: 'log_forked', known: { checkpoint: ofBen }, shown: { checkpoint: ofAda } },
  ])
  await two.enrol(meshId) // longer than what the other broker can show
  const longer = await atBen.members.log.refresh()
  expect(longer!.size).toBe(3)
  const late = await proofsOf(one, ada)
  expect(await late.members.log.witness(longer!.bytes)).toBe('log_rolled_back')
  expect(typesOf(late.events)).toEqual(['log_rolled_back'])
})

test('two members to whom the broker shows different logs detect it with the next message', async () => {
  const { world, ada, ben, peer, members, events } = await scene()
  await standings({ peer, members })
  await rewriteLog(world, (entries) => [...entries].reverse())
  await joinAs(world, 'dave', ada)
  const atBen = await proofsOf(world, ben)
  const reader = await Member.enter(world, ben)
  await atBen.members.check(await reader.peer.members())
  expect([...events, ...atBen.events].filter(({ type }) => type !== 'root_pinned')).toEqual([])

  exchangeHeads(peer, { log: members.log })
  exchangeHeads(reader.peer, { log: atBen.members.log })
  heardBy(peer)
  await peer.send(keyOf(ben), 'hello')
  await until('ben reports it', () => reader.all('view_split').length > 0)
  const checkpoint = members.log.checkpoint!.bytes
  expect(reader.all('view_split')).toMatchObject([
    { sender: keyOf(ada), view: { subject: 'log', reason: 'log_forked', checkpoint } },
  ])
  expect(typesOf(atBen.events)).toContain('log_forked')
  await reader.peer.send(keyOf(ada), 'and back')
  await until('ada reports it', () => typesOf(events).includes('log_forked'))
  expect(members.log.contradiction?.type).toBe('log_forked')
})

test('a checkpoint of another shard counts with its certificate, and one of a stranger accuses nobody', async () => {
  const { world, peer, members, events } = await scene()
  await standings({ peer, members })
  const { meshId } = world
  const shard = generateSigningKeys()
  const { size, rootHash } = members.log.checkpoint!
  const other = { meshId, size: size + 1, rootHash, atMs: Date.now() }
  const forged = signCheckpoint(shard, other)
  expect(await members.log.witness(forged)).toBe('checkpoint_forged')
  expect(await members.log.witness(forged.slice(1))).toBe('checkpoint_forged')
  expect(events).toEqual([])
  const terms = { shardKey: shard.publicKey, authorities: ['shard.example:443'], notAfterMs: FAR_MS }
  const certificate = signShardCertificate(broker, terms)
  await putLogSigner(world.db, meshId, { signer: shard.publicKey, certificate })
  expect(await members.log.witness(signCheckpoint(shard, { ...other, size }))).toBe('consistent')
  expect(await members.log.witness(forged)).toBe('log_rolled_back')
  expect(events).toMatchObject([{ type: 'log_rolled_back', known: { certificate } }])
})

test('a broker that showed a log and then shows none withholds it, until it shows one that continues it', async () => {
  const { world, ada, peer, members, events } = await scene()
  await standings({ peer, members })
  await hideLog(world)
  await members.log.refresh()
  expect(events).toMatchObject([{ type: 'log_withheld', code: 'log_incomplete' }])
  const { members: fresh, events: seen } = await proofsOf(world, ada)
  expect(await fresh.log.refresh()).toBeNull() // a member that has never seen the log waits until it is complete
  expect(await codeOf(fresh.log.accept())).toBe('log_incomplete')
  expect(seen).toEqual([])

  // A roll of brokers can show a peer the earlier version for a while. Until then, no new statement counts.
  await joinAs(world, 'dave', ada)
  expect(await standings({ peer, members })).toMatchObject({ ben: 'proven', dave: 'no_certificate' })
  await attack(world, `update mesh_log set is_complete = true where mesh_id = MESH`)
  await members.log.refresh()
  expect(members.log.contradiction).toBeNull()
  expect(await standings({ peer, members })).toMatchObject({ ben: 'proven', dave: 'proven' })
})
