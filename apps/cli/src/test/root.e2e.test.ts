/** Tests `sealpost root`, and what members and programs see of membership. */
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { bindBoxKey, generateIdentity } from '@sealpost/identity'
import { openDatabase } from '@sealpost/pg'
import type { MeshId } from '@sealpost/std'
import { addMembers } from '@sealpost/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { AS_ALICE, failureOf, jsonOf, letIn, Machine, ownerUrl, startUp, type Up } from './cli.ts'

let machine: Machine
let up: Up
beforeAll(async () => {
  machine = await Machine.make()
  up = await startUp(machine, AS_ALICE)
})
afterAll(() => machine[Symbol.asyncDispose]())

const as = (profile: string, ...words: string[]) => machine.run([...words, '--profile', profile])

const EXAMPLE = 'NV2N-HQ7V-NFSH-5GNN-1A9Q-EFPN-TNHK-X3ET'

const linesOf = (stdout: string) =>
  stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))

async function membershipSeenBy(profile: string): Promise<Record<string, string>> {
  const { stdout, code } = await as(profile, 'peers', '--json')
  expect(code).toBe(0)
  return Object.fromEntries(linesOf(stdout).map(({ name, membership }) => [name, membership]))
}

const databaseOf = async (started: Up) => openDatabase(await ownerUrl(started), { connections: 1 })

test('a new mesh has a root, invites name it, and members are proven', async () => {
  const { root } = up.facts
  expect(root).toMatch(/^[0-9a-f]{64}$/)
  expect(JSON.parse(await readFile(join(up.facts.folder, 'root-key.json'), 'utf8'))).toMatchObject({
    ...{ kind: 'root', publicKey: root },
  })
  const invite = (await machine.run(['invite', 'create', '--quiet'])).stdout.trim()
  expect(invite).toMatch(/^sealpost2:/)
  expect(jsonOf(await machine.run(['invite', 'show', invite, '--json']))).toMatchObject({ root })
  expect(jsonOf(await as('bob', 'join', invite, '--name', 'bob', '--json'))).toMatchObject({ name: 'bob', root })
  const earlier = (await machine.run(['invite', 'create', '--quiet', '--line', '1'])).stdout.trim()
  expect(earlier).toMatch(/^sealpost1:/)
  const carol = await as('carol', 'join', earlier, '--name', 'carol')
  expect(carol.code).toBe(0)
  expect(await membershipSeenBy('bob')).toEqual({ alice: 'proven', bob: 'proven', carol: 'proven' })
  const status = await as('carol', 'status', '--json')
  expect(status.stderr).toContain('pinned the root of the mesh')
  expect(jsonOf(status)).toMatchObject({ root, membership: 'proven' })
  expect((await as('carol', 'status')).stderr).toBe('')
})

test('a member that an operator inserts is shown as unproven, and gets no key; an admin can endorse it', async () => {
  const db = await databaseOf(up)
  const binding = bindBoxKey(generateIdentity(), up.facts.meshId as MeshId, 4_000_000_000_000)
  await addMembers(db, up.facts.meshId as MeshId, [{ ...binding, name: 'ghost' }])
  await db.close()
  const listed = await machine.run(['peers'])
  expect(listed.stdout).toMatch(/ghost .* unproven/)
  expect(listed.stderr).toContain('(member_unproven)')
  const refused = await machine.run(['group', 'create', 'crew', 'bob', 'ghost'])
  expect(refused).toMatchObject({ code: 4, stderr: expect.stringContaining('(member_unproven)') })
  expect((await machine.run(['group', 'create', 'crew', 'bob'])).code).toBe(0)
  const shown = await machine.run(['root', 'show', '--json'])
  expect(jsonOf(shown)).toMatchObject({ members: 4, unproven: [{ name: 'ghost', standing: 'no_certificate' }] })
  expect(await as('bob', 'root', 'endorse', 'ghost')).toMatchObject({
    code: 4,
    stderr: expect.stringContaining('(not_admin)'),
  })
  expect((await machine.run(['root', 'endorse', 'ghost'])).code).toBe(0)
  expect(await membershipSeenBy('bob')).toMatchObject({ ghost: 'proven' })
})

test('a signed revocation outlives the row that an operator changes', async () => {
  expect((await machine.run(['root', 'revoke', 'ghost'])).stdout).toBe('revoked ghost\n')
  expect(await membershipSeenBy('bob')).toEqual({ alice: 'proven', bob: 'proven', carol: 'proven' })
  const db = await databaseOf(up)
  await db.run((sql) => sql`update member set revoked_at = null`)
  await db.run((sql) => sql`delete from member_revocation`)
  await db.run((sql) => sql`select pg_advisory_lock(1587646553)`) // keeps the broker from completing the log
  await db.run((sql) => sql`update mesh_log set is_complete = false`)
  expect(await membershipSeenBy('bob')).toMatchObject({ ghost: 'revoked', carol: 'proven' })
  const listed = await as('bob', 'peers')
  expect(listed.stderr).toContain('(revocations_rolled_back)')
  const invite = (await machine.run(['invite', 'create', '--quiet'])).stdout.trim()
  expect((await as('dave', 'join', invite, '--name', 'dave')).code).toBe(0)
  expect(await membershipSeenBy('dave')).toMatchObject({ ghost: 'revocations_missing', alice: 'revocations_missing' })
  await db.close()
})

test.each([
  [['root', 'adopt'], 5, 'root_differs'],
  [['root', 'trust', EXAMPLE], 4, 'fingerprint_differs'],
  [['root', 'trust', 'NV2N'], 2, 'usage'],
  [['root', 'endorse', 'nobody'], 3, 'name_unknown'],
  [['invite', 'show', 'sealpost2:AAAA'], 2, 'invite_malformed'],
] as const)('%j is refused', async (words, code, name) => {
  const refused = await machine.run(words)
  expect(refused).toMatchObject({ code, stdout: '', stderr: expect.stringContaining(`(${name})`) })
})

test('a mesh without a root adopts one by one command', async () => {
  await using other = await Machine.make()
  const started = await startUp(other, AS_ALICE)
  const { meshId } = started.facts
  const db = await databaseOf(started)
  await db.run((sql) => sql`delete from mesh_root where mesh_id = ${meshId}`)
  await db.run((sql) => sql`delete from member_proof where mesh_id = ${meshId}`)
  await db.close()
  const membership = join(other.folder, 'profiles/default/membership.json')
  const { root: _, ...earlier } = JSON.parse(await readFile(membership, 'utf8'))
  await writeFile(membership, JSON.stringify(earlier))
  await rm(join(other.folder, 'profiles/default/member-proofs'), { force: true })
  const invite = (await other.run(['invite', 'create', '--quiet'])).stdout.trim()
  expect(invite).toMatch(/^sealpost1:/)
  expect((await other.run(['invite', 'create', '--line', '2'])).stderr).toContain('(root_missing)')
  expect((await other.run(['join', invite, '--name', 'bob', '--profile', 'bob'])).code).toBe(0)
  const before = await other.run(['peers', '--json', '--profile', 'bob'])
  expect(linesOf(before.stdout).map(({ membership: standing }) => standing)).toEqual(['no_root', 'no_root'])
  expect(before.stderr).toBe('')
  const adopted = jsonOf(await other.run(['root', 'adopt', '--json']))
  expect(adopted).toMatchObject({ members: 2, keyFile: join(other.folder, 'profiles/default/root-key.json') })
  const after = await other.run(['peers', '--json', '--profile', 'bob'])
  expect(linesOf(after.stdout).map(({ membership: standing }) => standing)).toEqual(['proven', 'proven'])
  expect((await other.run(['root', 'adopt', '--yes', '--json'])).code).toBe(0) // repeating an adoption is harmless
  expect((await other.run(['root', 'trust', adopted.fingerprint, '--profile', 'bob'])).code).toBe(0)
})

test('an admin replaces a root, members trust it by its fingerprint, and invites of every form name it', async () => {
  await using other = await Machine.make()
  const { facts } = await startUp(other, AS_ALICE)
  await letIn(other, 'bob')
  const atBob = (...words: string[]) => other.run([...words, '--profile', 'bob'])
  const seenByBob = async () => {
    const { stdout, stderr } = await atBob('peers', '--json')
    return { stderr, standings: linesOf(stdout).map(({ membership }) => membership) }
  }
  expect(failureOf(await atBob('root', 'adopt', '--replace', '--yes', '--json'))).toEqual([4, 'not_admin'])
  const replaced = jsonOf(await other.run(['root', 'adopt', '--replace', '--yes', '--json']))
  expect(replaced.root).not.toBe(facts.root)
  expect(replaced).toMatchObject({
    members: 2,
    keyFile: expect.stringMatching(/profiles\/default\/root-key-\d+\.json$/),
  })
  expect(jsonOf(await other.run(['root', 'show', '--json']))).toMatchObject({ root: replaced.root, unproven: [] })
  // Repeating an interrupted adoption continues with the same root.
  expect(jsonOf(await other.run(['root', 'adopt', '--yes', '--json']))).toMatchObject({ root: replaced.root })

  const before = await seenByBob()
  expect(before.standings).toEqual(['proven', 'proven']) // by the former root, which bob has pinned
  expect(before.stderr).toContain('(root_differs)')
  expect(failureOf(await atBob('root', 'trust', EXAMPLE, '--json'))).toEqual([4, 'fingerprint_differs'])
  expect(jsonOf(await atBob('root', 'trust', replaced.fingerprint, '--json'))).toEqual({
    root: replaced.root,
    trusted: true,
  })
  expect(await seenByBob()).toEqual({ stderr: '', standings: ['proven', 'proven'] })
  expect(jsonOf(await atBob('status', '--json'))).toMatchObject({ root: replaced.root, membership: 'proven' })

  const forTwo = (await other.run(['invite', 'create', '--quiet', '--uses', '2'])).stdout.trim()
  expect(forTwo).toMatch(/^sealpost3:/)
  const joining = ['dave', 'erin'].map((name) =>
    other.run(['join', forTwo, '--name', name, '--profile', name, '--json']),
  )
  for (const joined of await Promise.all(joining)) expect(jsonOf(joined)).toMatchObject({ root: replaced.root })
  expect((await seenByBob()).standings).toEqual(Array.from({ length: 4 }, () => 'proven'))
  const { invite: code } = jsonOf(await atBob('device', 'add', 'phone', '--json'))
  expect(code).toMatch(/^sealpostdevice2:/)
  expect(jsonOf(await other.run(['join', code, '--profile', 'phone', '--json']))).toMatchObject({ root: replaced.root })
  expect((await other.run(['status', '--profile', 'phone'])).stderr).toBe('')
  const { invite: earlier } = jsonOf(await atBob('device', 'add', 'tablet', '--line', '1', '--json'))
  expect(earlier).toMatch(/^sealpostdevice1:/)
})
