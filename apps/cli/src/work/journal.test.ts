/** Tests the file of turns on a real disk: what a crash can leave, and what the next process reads. */
import { appendFile, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { PeerKey } from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import { TurnJournal } from './journal.ts'
import type { TurnRecord } from './turns.ts'

const BEGUN: TurnRecord = {
  ...{ kind: 'begun', turn: '1', thread: 't', sender: 'a'.repeat(64) as PeerKey, messages: ['a 1'], attempt: 1 },
  ...{ process: { pid: 1, startedAt: '1' }, atMs: 1_000, cost: 0 },
}

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-turns-'))
  return () => rm(folder, { recursive: true, force: true })
})

const openTurns = async (): Promise<readonly string[]> => {
  await using journal = await TurnJournal.open(join(folder, 'work'))
  return journal.turns.open.map(({ turn }) => turn)
}

test('a record is on disk when it was appended, readable only by its owner, and the next process has it', async () => {
  const path = join(folder, 'work/turns')
  {
    await using journal = await TurnJournal.open(join(folder, 'work'))
    await journal.append(BEGUN)
    expect(await readFile(path, 'utf8')).toContain('"kind":"begun"')
  }
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  expect(await openTurns()).toEqual(['1'])
  expect(await openTurns()).toEqual(['1'])
})

test('a last line that a crash left incomplete is dropped, and any other damage is refused', async () => {
  const path = join(folder, 'work/turns')
  await openTurns()
  await appendFile(path, `${JSON.stringify(BEGUN)}\n{"kind":"repl`)
  expect(await openTurns()).toEqual(['1'])
  await writeFile(path, `garbage\n${await readFile(path, 'utf8')}`)
  await expect(openTurns()).rejects.toMatchObject({ code: 'file_malformed' })
})

test('only one process has the file open', async () => {
  await using _ = await TurnJournal.open(join(folder, 'work'))
  await expect(openTurns()).rejects.toMatchObject({ code: 'store_in_use' })
})

test('the file stays small however long a worker runs', async () => {
  const path = join(folder, 'work/turns')
  {
    await using journal = await TurnJournal.open(join(folder, 'work'))
    const reply = 'x'.repeat(2 ** 19)
    for (let i = 0; i < 10; i++) {
      const [turn, messages] = [`${i}`, [`a ${i}`]]
      await journal.append({ ...BEGUN, turn, messages } as TurnRecord)
      await journal.append({ kind: 'replied', turn, reply, replyTo: messages, cost: 1, atMs: 2_000 })
      await journal.append({ kind: 'ended', messages, reason: null, atMs: 2_000 })
    }
    expect(journal.turns.spentBy('a'.repeat(64) as PeerKey, 0)).toHaveLength(10)
  }
  expect((await stat(path)).size).toBeLessThan(4 * 2 ** 20)
  await using again = await TurnJournal.open(join(folder, 'work'))
  expect(again.turns.recordOf('a 9')).toMatchObject({ state: { name: 'done' } })
})
