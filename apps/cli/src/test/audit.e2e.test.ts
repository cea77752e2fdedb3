/** Tests `sealpost audit` on a mesh whose database an operator changes. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { bindBoxKey, generateIdentity } from '@sealpost/identity'
import { openDatabase } from '@sealpost/pg'
import type { LogExport } from '@sealpost/sdk/audit'
import type { MeshId } from '@sealpost/std'
import { addMembers } from '@sealpost/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { AS_ALICE, jsonOf, Machine, ownerUrl, startUp, type Up } from './cli.ts'

let machine: Machine
let up: Up
let file: string
beforeAll(async () => {
  machine = await Machine.make()
  up = await startUp(machine, AS_ALICE)
  file = join(machine.folder, 'log.json')
})
afterAll(() => machine[Symbol.asyncDispose]())

async function attack(...statements: readonly string[]): Promise<void> {
  const db = await openDatabase(await ownerUrl(up), { connections: 1 })
  for (const statement of statements) await db.run((sql) => sql.unsafe(statement))
  await db.close()
}

const findings = (report: unknown) =>
  (report as { problems: { code: string; about: string }[] }).problems.map(({ code, about }) => `${code} ${about}`)

test('a mesh passes, and so does its export on a machine without a profile', async () => {
  const invite = (await machine.run(['invite', 'create', '--quiet'])).stdout.trim()
  expect((await machine.run(['join', invite, '--name', 'bob', '--profile', 'bob'])).code).toBe(0)
  expect((await machine.run(['group', 'create', 'crew', 'bob'])).code).toBe(0)
  expect((await machine.run(['pool', 'create', 'reviewers', 'alice'])).code).toBe(0)
  expect((await machine.run(['pool', 'add', 'reviewers', 'bob'])).code).toBe(0)
  const shown = await machine.run(['audit'])
  expect(shown).toMatchObject({ code: 0, stderr: '' })
  expect(shown.stdout).toContain('2 listed, 0 revoked')
  const online = jsonOf(await machine.run(['audit', '--export', file, '--json'])) as Record<string, unknown>
  expect(online).toMatchObject({
    ...{ ok: true, size: 8, members: 2, revocations: 0, root: up.facts.root, problems: [], notes: [] },
    entries: { binding: 2, root: 1, endorsement: 1, certificate: 1, group: 1, pool: 2 },
    checkpoint: { size: 8 },
  })
  await using other = await Machine.make()
  expect(jsonOf(await other.run(['audit', file, '--json']))).toMatchObject({ ...online })
})

test('a changed export fails the audit of a member and of a stranger', async () => {
  const exported = JSON.parse(await readFile(file, 'utf8')) as LogExport
  const audited = async (change: Partial<LogExport>) => {
    const path = join(machine.folder, 'changed.json')
    await writeFile(path, JSON.stringify({ ...exported, ...change }))
    const { code, stdout, stderr } = await machine.run(['audit', path, '--json'])
    expect({ code, stderr: JSON.parse(stderr).error.code }).toEqual({ code: 1, stderr: 'audit_failed' })
    return findings(JSON.parse(stdout))
  }
  const { entries, members } = exported
  expect(await audited({ entries: entries.slice(0, -1) })).toEqual(
    expect.arrayContaining(['tree_differs 7', 'log_rolled_back 8', expect.stringContaining('statement_not_logged')]),
  )
  const [earlier] = entries.filter(({ kind }) => kind === 'pool')
  expect(await audited({ pools: [earlier!.statement] })).toEqual([
    expect.stringMatching(/^pool_rolled_back [0-9a-f]{64}$/),
  ])
  const swapped = [entries[1]!, entries[0]!, ...entries.slice(2)]
  expect(await audited({ entries: swapped })).toEqual(expect.arrayContaining(['tree_differs 8', 'log_forked 8']))
  expect(await audited({ members: members.map((each) => ({ ...each, role: 'admin' })) })).toEqual([
    'member_unproven bob',
  ])
  expect(await audited({ bindings: exported.bindings.slice(1) })).toHaveLength(1)
  const forged = { ...entries[0]!, statement: `${entries[0]!.statement.slice(0, -4)}AAAA` }
  expect(await audited({ entries: [forged, ...entries.slice(1)] })).toContain('entry_forged 0')
  expect(await audited({ checkpoint: `${exported.checkpoint.slice(0, -4)}AAAA` })).toEqual([
    'checkpoint_forged checkpoint',
  ])
})

test('rows that an operator inserts, and entries that it removes, are found', async () => {
  const { meshId } = up.facts
  const db = await openDatabase(await ownerUrl(up), { connections: 1 })
  const ghost = bindBoxKey(generateIdentity(), meshId as MeshId, 4_000_000_000_000)
  await addMembers(db, meshId as MeshId, [{ ...ghost, name: 'ghost' }])
  await db.close()
  const listed = await machine.run(['audit', '--json'])
  expect(listed.code).toBe(1)
  expect(findings(JSON.parse(listed.stdout))).toEqual(['member_unproven ghost'])
  const text = await machine.run(['audit'])
  expect(text.stdout).toContain('ghost is listed as a member, but the log does not prove it')
  expect(text.stderr).toContain('The audit found a problem. (audit_failed)')

  await attack(
    `update member set revoked_at = now() where name = 'ghost'`,
    `create table stolen as select * from log_entry`,
    ...['log_entry', 'log_node', 'mesh_log'].map((table) => `delete from ${table}`),
    `select log_append(mesh_id, kind, statement) from stolen where kind <> 5 order by seq desc`,
  )
  const rewritten = await machine.run(['audit', '--json'])
  expect(rewritten.code).toBe(1)
  expect(findings(JSON.parse(rewritten.stdout))).toEqual(
    expect.arrayContaining([expect.stringContaining('log_'), expect.stringContaining('statement_not_logged')]),
  )
  expect((await machine.run(['peers'])).stderr).toMatch(/\(log_(forked|rolled_back)\)/)
  await attack(`select log_append(mesh_id, kind, statement) from stolen where kind = 5`)
  const accepted = await machine.run(['audit', '--accept'])
  expect(accepted).toMatchObject({ code: 0, stderr: expect.stringContaining('Accepted the log of 9 entries') })
  expect((await machine.run(['audit'])).code).toBe(0)
})

test.each([
  [['audit', 'nothing.json'], 3, 'file_missing'],
  [['audit', 'package.json', '--accept'], 2, 'usage'],
  [['audit', new URL('../../package.json', import.meta.url).pathname], 2, 'export_malformed'],
] as const)('%j is refused', async (words, code, name) => {
  expect(await machine.run(words)).toMatchObject({ code, stdout: '', stderr: expect.stringContaining(`(${name})`) })
})
