import { randomBytes } from 'node:crypto'
import type { Micros } from '@sealpost/std'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { readEntries, readPage, rowLine } from './pages.ts'
import { dropDays, giveUpDays, makeDays } from './retention.ts'
import { defaultSnapshotOptions, Snapshots } from './snapshots.ts'
import { eventsBetween, literal, ofSpace, snapshotStep, stateAt, stateNow } from './sql.ts'
import { DAY, findSpace, HOUR, type ReadRow, ReplayWorld, readAll, type SpaceWorld, START } from './test/space.ts'

let world: ReplayWorld
beforeAll(async () => {
  world = await ReplayWorld.open()
})
afterAll(() => world.close())

/** Options with which a few events need several batches. */
const EAGER = { share: 0, eventsMin: 1, batchBytes: 1 }

interface Written extends ReadRow {
  readonly at: Micros
  readonly key: string
}

/** Returns the expected values, from a map. */
function lastValues(written: readonly Written[], at: Micros): ReadRow[] {
  const last = new Map<string, Written>()
  for (const event of written) if (event.at <= at && event.kind !== 3) last.set(event.key, event)
  return [...last.values()]
    .filter(({ kind }) => kind === 1)
    .sort((a, b) => a.seq - b.seq)
    .map(({ seq, kind, value }) => ({ seq, kind, value }))
}

const step = fc.oneof(
  { weight: 8, arbitrary: fc.record({ do: fc.constant('set' as const), key: fc.integer({ min: 0, max: 5 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('delete' as const), key: fc.integer({ min: 0, max: 5 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('message' as const), key: fc.constant(0) }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('wait' as const), key: fc.integer({ min: 1, max: 60 }) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('snapshot' as const), key: fc.constant(0) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('keep' as const), key: fc.constant(0) }) },
)

describe('a state of the past', () => {
  test('equals a map of the writes, for any snapshots, dropped days and cursors', async () => {
    let answered = 0
    let refused = 0
    let dropped = 0
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 15, maxLength: 40 }), async (steps) => {
        await world.setClock(START)
        const space = await world.space({ keepSeconds: 2 * 86_400 })
        const snapshots = new Snapshots(world.broker, EAGER, 60_000)
        const written: Written[] = []
        let clock = START
        for (const { do: what, key } of steps) {
          if (what === 'wait') clock = await wait(clock + key * HOUR)
          else if (what === 'snapshot') await snapshots.refresh(space.ref)
          else if (what === 'keep') dropped += await keep(space)
          else written.push(await write(space, what, key))
        }
        // A write in the same microsecond precedes the read time, so wait for the next one.
        clock = await wait(Math.max(clock, written.at(-1)?.at ?? 0))
        const { keptSince, keepSeconds } = (await findSpace(world.broker, space.ref))!
        const horizon = Math.max(keptSince!, clock - keepSeconds * 1e6)
        for (const at of momentsOf(written, clock)) {
          const answer = await space.stateAt(at)
          if (at < horizon) {
            expect(answer).toBe('before_horizon')
            refused += 1
            continue
          }
          const expected = lastValues(written, at)
          expect(answer).toEqual(expected)
          const middle = expected[expected.length >> 1]?.seq ?? 0
          expect(await space.stateAt(at, middle)).toEqual(expected.filter(({ seq }) => seq > middle))
          answered += 1
        }
        await world.owner.run((sql) => sql.unsafe('update space set kept_since = null')) // otherwise, it keeps later days
      }),
      { numRuns: 12, seed: 8 },
    )
    expect(Math.min(answered, refused)).toBeGreaterThan(50)
    expect(dropped).toBeGreaterThan(0)
  })

  async function write(space: SpaceWorld, what: 'set' | 'delete' | 'message', key: number): Promise<Written> {
    const event = { kind: ({ set: 1, delete: 2, message: 3 } as const)[what], key: String(key), value: randomBytes(8).toString('hex') } // biome-ignore format: one thing
    return { ...event, ...(await space.write(event)) }
  }

  async function wait(until: Micros): Promise<Micros> {
    await world.setClock(until)
    await makeDays(world.broker)
    return until
  }

  async function keep(space: SpaceWorld): Promise<number> {
    await giveUpDays(world.broker, space.ref)
    return dropDays(world.broker)
  }

  const momentsOf = (written: readonly Written[], clock: Micros): Micros[] =>
    [...written.flatMap(({ at }) => [at - 1, at, at + HOUR]), clock].filter((at) => at <= clock)
})

describe('a space with some history', () => {
  async function filled(): Promise<SpaceWorld> {
    await world.setClock(START)
    const space = await world.space()
    for (const key of ['a', 'b', 'c', 'd']) await space.write({ kind: 1, key, value: `first ${key}` })
    await space.write({ kind: 2, key: 'b', value: 'no b' })
    await space.write({ kind: 3, key: '', value: 'hello' })
    return space
  }

  test('returns the current values, and after a seq also the deleted ones', async () => {
    const space = await filled()
    const seqs = async (after: number) =>
      (await readAll(world.copies, stateNow(space.ref, after))).map(({ seq, kind }) => [seq, kind])
    expect(await seqs(0)).toEqual([[1, 1], [3, 1], [4, 1]]) // biome-ignore format: one thing
    expect(await seqs(3)).toEqual([[4, 1], [5, 2]]) // biome-ignore format: one thing
  })

  test('returns single entries by the hashes of their keys', async () => {
    const space = await filled()
    const hash = (key: string) => new Bun.CryptoHasher('sha256').update(key).digest('hex')
    const rows = await readEntries(world.broker, space.ref, ['c', 'b', 'z'].map(hash))
    expect(rows.map(({ seq, kind }) => [seq, kind])).toEqual([[3, 1], [5, 2]]) // biome-ignore format: one thing
    expect(JSON.parse(rowLine(rows[0]!))).toMatchObject({ seq: 3, value: Buffer.from('first c').toString('base64') })
  })

  test('returns its events between two times, and a page of them in both directions', async () => {
    const space = await filled()
    const all = { space: space.ref, after: 0, from: START, to: START + DAY }
    expect((await readAll(world.copies, eventsBetween(all))).map(({ kind }) => kind)).toEqual([1, 1, 1, 1, 2, 3])
    const page = async (request: { after?: number; before?: number; limit: number }) => {
      const { rows, hasMore } = (await readPage(world.paging, { ...all, before: null, ...request }))!
      return [rows.map(({ seq }) => seq), hasMore]
    }
    expect(await page({ after: 1, limit: 3 })).toEqual([[2, 3, 4], true])
    expect(await page({ after: 3, limit: 3 })).toEqual([[4, 5, 6], false])
    expect(await page({ before: 5, limit: 3 })).toEqual([[2, 3, 4], true])
    expect(await page({ before: 9, limit: 9 })).toEqual([[1, 2, 3, 4, 5, 6], false])
  })

  test('cuts a page at half a megabyte, and continues after it', async () => {
    await world.setClock(START)
    const space = await world.space()
    for (let i = 0; i < 4; i++) await space.write({ kind: 3, key: '', value: 'x'.repeat(120_000) })
    const all = { space: space.ref, after: 0, before: null, from: START, to: START + DAY, limit: 200 }
    const first = (await readPage(world.paging, all))!
    expect([first.rows.map(({ seq }) => seq), first.hasMore]).toEqual([[1, 2], true])
    const second = (await readPage(world.paging, { ...all, after: 2 }))!
    expect(second.rows.map(({ seq }) => seq)).toEqual([3, 4])
  })

  test('returns one page from the last day and earlier days', async () => {
    const now = Date.now() * 1000
    await world.setClock(now - 3 * DAY)
    const space = await world.space()
    for (const ago of [2.5, 2, 0.5, 0.2, 0.1]) {
      await world.setClock(now - ago * DAY)
      await space.write({ kind: 3, key: '', value: `${ago} days ago` })
    }
    await world.setClock(now)
    const page = async (request: { after?: number; before?: number; limit?: number }) => {
      const all = { space: space.ref, after: 0, before: null, from: null, to: null, limit: 9 }
      const { rows, hasMore, lastSeq, at } = (await readPage(world.paging, { ...all, ...request }))!
      expect([lastSeq, at]).toEqual([5, now])
      return [rows.map(({ seq }) => seq), hasMore]
    }
    expect(await page({})).toEqual([[1, 2, 3, 4, 5], false])
    expect(await page({ after: 1 })).toEqual([[2, 3, 4, 5], false])
    expect(await page({ after: 2, limit: 2 })).toEqual([[3, 4], true])
    expect(await page({ after: 5 })).toEqual([[], false])
    expect(await page({ before: 9, limit: 2 })).toEqual([[4, 5], true])
    expect(await page({ before: 5, limit: 3 })).toEqual([[2, 3, 4], true])
    expect(await page({ before: 3, limit: 3 })).toEqual([[1, 2], false])
    await world.setClock(START)
  })

  test('returns nothing from before its horizon', async () => {
    const now = Date.now() * 1000
    await world.setClock(now - 2 * HOUR)
    const space = await world.space({ keepSeconds: 3600 })
    await space.write({ kind: 3, key: '', value: 'too long ago' })
    await world.setClock(now)
    await space.write({ kind: 3, key: '', value: 'now' })
    const all = { space: space.ref, after: 0, before: null, from: null, to: null, limit: 9 }
    expect((await readPage(world.paging, all))!.rows.map(({ seq }) => seq)).toEqual([2])
    expect(
      await readPage(world.paging, { ...all, space: { ...space.ref, spaceId: 'ab'.repeat(16) as never } }),
    ).toBeNull()
    await world.setClock(START)
  })

  test('resumes a snapshot where it stopped, with writes of others between its batches', async () => {
    const space = await filled()
    const [begun] = await world.owner.run(
      (sql) => sql.unsafe<{ at: Micros }[]>(`insert into snapshot (mesh_id, space_id, seq, at) select mesh_id, space_id, 6, last_at from space where ${ofSpace(space.ref)} returning round(date_part('epoch', at) * 1000000)::bigint as at`), // biome-ignore format: one thing
    )
    await space.write({ kind: 1, key: 'a', value: 'later' })
    expect(await new Snapshots(world.broker, EAGER, 60_000).refresh(space.ref)).toMatchObject({ rows: 3 })
    const [row] = await world.owner.run((sql) => sql.unsafe(`select seq, done_at is not null as is_done from snapshot where ${ofSpace(space.ref)} and at = ${literal.moment(begun!.at)}`)) // biome-ignore format: one thing
    expect(row).toMatchObject({ seq: 6, is_done: true })
    const values = (await space.stateAt(START + 100)) as ReadRow[] | string
    expect(values).toBe('in_future')
    await world.setClock(START + 100)
    expect(await space.stateAt(START + 100)).toEqual([
      { seq: 3, kind: 1, value: 'first c' },
      { seq: 4, kind: 1, value: 'first d' },
      { seq: 7, kind: 1, value: 'later' },
    ])
  })

  test('does not block writers during a batch of a snapshot', async () => {
    const space = await filled()
    await world.owner.run((sql) => sql.unsafe(`insert into snapshot (mesh_id, space_id, seq, at) values ('${space.ref.meshId}', '${space.ref.spaceId}', 6, ${literal.moment(START)})`)) // biome-ignore format: one thing
    const batch = { space: space.ref, from: { seq: 0, at: 0 }, to: { seq: 6, at: START }, progress: 0, rowsMax: 10 }
    await world.owner.run((sql) =>
      sql.begin(async (begun) => {
        const [row] = await begun.unsafe(snapshotStep(batch))
        expect(row).toMatchObject({ rows: 3, isDone: true })
        // Locks on snapshot rows block neither writers nor senders; none is on a table.
        const locks = await begun.unsafe(
          `select distinct c.relname as name, l.mode from pg_locks l join pg_class c on c.oid = l.relation
           where l.pid = pg_backend_pid() and c.relkind in ('r', 'p') and l.mode <> 'AccessShareLock' and c.relnamespace = 'public'::regnamespace`,
        )
        for (const { name, mode } of locks) {
          expect(name).toMatch(/^snapshot/)
          expect(['RowShareLock', 'RowExclusiveLock']).toContain(mode)
        }
        expect(locks.length).toBeGreaterThan(0)
        const written = await space.write({ kind: 1, key: 'a', value: 'meanwhile' })
        expect(written.seq).toBe(7)
        const [second] = await world.broker.run((other) => other.unsafe(snapshotStep(batch)))
        expect(second).toBeUndefined() // the second caller does nothing and does not wait
      }),
    )
  })

  test('is read in one pass that skips superseded rows, without a sort', async () => {
    const space = await filled()
    const query = stateAt({ space: space.ref, at: START + DAY, after: 0, base: { seq: 2, at: START } })
    const plan = (await world.broker.run((sql) => sql.unsafe<{ 'QUERY PLAN': string }[]>(`explain ${query}`)))
      .map((line) => line['QUERY PLAN'])
      .join('\n')
    expect(plan.match(/CTE overtaken/g)).toHaveLength(1)
    expect(plan.match(/hashed SubPlan/g)).toHaveLength(2)
    expect(plan).not.toMatch(/ Sort |Seq Scan|Nested Loop|Hash Join/)
  })

  test('makes a snapshot only after enough changes, or by age', async () => {
    const space = await filled()
    const snapshots = new Snapshots(world.broker, { ...defaultSnapshotOptions, eventsMin: 7 }, 60_000)
    expect(await snapshots.refresh(space.ref)).toBeNull()
    await space.write({ kind: 1, key: 'e', value: 'the seventh' })
    expect(await snapshots.refresh(space.ref)).toMatchObject({ rows: 4, bytes: 7 * 3 + 11 })
    expect(await snapshots.refresh(space.ref)).toBeNull()
  })

  test('makes its first snapshot from its entries if it kept no history before', async () => {
    const space = await filled()
    await world.setClock(START + HOUR)
    await world.owner.run((sql) =>
      sql.unsafe(`update space set kept_since = clock_timestamp() where ${ofSpace(space.ref)}`),
    )
    await world.owner.run((sql) => sql.unsafe(`delete from history_event where ${ofSpace(space.ref)}`))
    expect(await space.stateAt(START + HOUR)).toBe('before_horizon')
    expect(await new Snapshots(world.broker, defaultSnapshotOptions, 60_000).refresh(space.ref)).toMatchObject({
      rows: 3,
    })
    await world.setClock(START + 2 * HOUR)
    await space.write({ kind: 1, key: 'a', value: 'again' })
    expect(((await space.stateAt(START + 2 * HOUR)) as ReadRow[]).map(({ seq }) => seq)).toEqual([3, 4, 7])
  })

  test('drops its oldest days when it is too large', async () => {
    await world.setClock(START)
    const space = await world.space({ keepBytes: 250 })
    for (let day = 0; day < 4; day++) {
      await world.setClock(START + day * DAY + HOUR)
      await space.write({ kind: 1, key: 'a', value: 'x'.repeat(100) })
      await new Snapshots(world.broker, EAGER, 60_000).refresh(space.ref)
      await giveUpDays(world.broker, space.ref)
    }
    const facts = await findSpace(world.broker, space.ref)
    expect(facts!.keptSince).toBe(START + 2 * DAY)
    const [row] = await world.owner.run((sql) =>
      sql.unsafe(`select history_bytes as bytes from space where ${ofSpace(space.ref)}`),
    )
    expect(row).toMatchObject({ bytes: 200 })
  })
})
