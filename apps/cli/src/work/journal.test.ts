/** Tests the file of turns on a real disk: what a crash can leave, and what the next process reads. */
import { appendFile, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
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

test('workers that share the file read what the others appended, also after it was replaced', async () => {
  await using first = await TurnJournal.open(join(folder, 'work'))
  await using second = await TurnJournal.open(join(folder, 'work'))
  await first.append({ ...BEGUN, worker: first.worker } as TurnRecord)
  await second.refresh()
  const begun = second.turns.openTurn('t', 'a 2')
  expect(begun).toMatchObject({ turn: '1' })
  expect(await second.isRunning(begun!.worker)).toBe(true)
  await second.append({ kind: 'failed', turn: '1', why: 'x', isCut: false, cost: 0, atMs: 2_000 })
  await using _third = await TurnJournal.open(join(folder, 'work')) // replaces the file
  await first.append({ ...BEGUN, turn: '2' } as TurnRecord)
  await Promise.all([first, second].map((journal) => journal.refresh()))
  for (const { turns } of [first, second]) {
    expect(turns.open.map(({ turn }) => turn)).toEqual(['2'])
    expect(turns.recordOf('a 1')).toMatchObject({ attempts: 1, state: { name: 'running' } })
  }
})

test('no worker appends a record between what another one reads and appends', async () => {
  const journals = await Promise.all([1, 2, 3].map(() => TurnJournal.open(join(folder, 'work'))))
  const begin = (journal: TurnJournal, turn: string) =>
    journal.exclusive(async (append) => {
      const isFree = journal.turns.open.length === 0
      if (isFree) await append({ ...BEGUN, turn } as TurnRecord)
      return isFree
    })
  const begun = await Promise.all(journals.map((journal, i) => begin(journal, `${i}`)))
  expect(begun.filter((isFree) => isFree)).toHaveLength(1)
  for (const journal of journals) await journal[Symbol.asyncDispose]()
})

test('a worker whose process has ended does not run, and its lock is removed by the next worker', async () => {
  const gone = `worker-${'0'.repeat(8)}-0000-4000-8000-${'0'.repeat(12)}`
  {
    await using journal = await TurnJournal.open(join(folder, 'work'))
    const [own] = (await readdir(join(folder, 'work'))).filter((name) => name.startsWith('worker-'))
    const lock = own!.replace(/^worker-[0-9a-f-]{36}\.lock-\d+-/, `${gone}.lock-${2 ** 22 + 1}-`)
    await writeFile(join(folder, 'work', lock), '')
    expect(await journal.isRunning(gone.slice('worker-'.length))).toBe(false)
    expect(await journal.isRunning(undefined)).toBe(false)
  }
  await openTurns()
  expect((await readdir(join(folder, 'work'))).filter((name) => name.startsWith('worker-'))).toEqual([])
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
