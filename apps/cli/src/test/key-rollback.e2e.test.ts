/** Tests a directory that reverts to an older box key between two commands. */
import { openDatabase } from '@sealpost/pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { AS_ALICE, failureOf, jsonOf, letIn, Machine, ownerUrl, startUp } from './cli.ts'

let machine: Machine
let databaseUrl: string

beforeAll(async () => {
  machine = await Machine.make()
  databaseUrl = await ownerUrl(await startUp(machine, AS_ALICE))
  await letIn(machine, 'bob')
})
afterAll(() => machine[Symbol.asyncDispose]())

/** Makes the directory return the key from before the last rotation. */
async function goBack(name: string): Promise<void> {
  const db = await openDatabase(databaseUrl, { connections: 1 })
  const rows = await db.run(
    (sql) => sql`
      update member m set box_key = f.box_key, box_epoch = f.box_epoch,
        binding_not_after_ms = f.binding_not_after_ms, binding_signature = f.binding_signature
      from former_binding f
      where f.mesh_id = m.mesh_id and f.peer_no = m.peer_no and m.name = ${name} and f.peer_key is null
      returning m.box_epoch`,
  )
  await db.close()
  expect(rows.map((row) => Number(row.box_epoch))).toEqual([1])
}

const ok = async (...words: string[]) => {
  const { code, stdout, stderr } = await machine.run(words)
  expect([code, stderr]).toEqual([0, expect.any(String)])
  return stdout
}

test('a later command seals nothing to a key older than one that an earlier command has seen', async () => {
  await ok('key', 'rotate', '--profile', 'bob')
  await ok('send', 'bob', 'to the second key')
  await goBack('bob')
  const sent = await machine.run(['send', 'bob', 'to the first key', '--json'])
  expect([...failureOf(sent), sent.stdout]).toEqual([4, 'key_refused', ''])
  expect(sent.stderr).toContain('binding_rolled_back')
  // A message taught the profile the newer key, so a space grants nothing to the older one.
  const opened = await machine.run(['space', 'open', '--json'])
  expect(opened.code).toBe(0)
  expect(opened.stderr).toContain('binding_rolled_back')
  expect(jsonOf(opened)).toMatchObject({ members: 2, keyEpoch: 1, lacking: [expect.any(String)] })
})
