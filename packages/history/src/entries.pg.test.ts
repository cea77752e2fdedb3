import type { SpaceId } from '@sealpost/std'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { EntryOutcome, EntryWrite } from './entry-writer.ts'
import { GROUP, MESH, SpaceStage, termsOf } from './test/spaces.ts'

let stage: SpaceStage
beforeEach(async () => {
  stage = await SpaceStage.open()
})
afterEach(() => stage.close())

const seqOf = (outcome: EntryOutcome | undefined) => (outcome?.status === 'done' ? outcome.seq : outcome?.status)
const space = () => stage.spaces.find(stage.asker(stage.ann), MESH)

describe('an entry', () => {
  test('is written at the next revision, if it names the hash of the current entry', async () => {
    await stage.found()
    const first = stage.entry('a', 1)
    const second = stage.entry('a', 2, { former: first })
    const [one] = await stage.writer().write([first])
    const [two] = await stage.writer().write([second])
    expect([seqOf(one), seqOf(two)]).toEqual([1, 2])
    expect(await stage.events()).toMatchObject([
      { seq: 1, kind: 1, text: 'a 1' },
      { seq: 2, kind: 1, text: 'a 2' },
    ])
    expect(await space()).toMatchObject({
      lastSeq: 2,
      entries: 1,
      entryBytes: 3,
      historyBytes: 6,
      lastAt: two?.status === 'done' && two.at,
    })
  })

  test.each<[string, Partial<EntryWrite>]>([
    ['an old revision', { revision: 1, formerHash: '0'.repeat(64) }],
    ['a skipped revision', { revision: 3 }],
    ['another previous entry', { formerHash: '5'.repeat(64) }],
  ])('with %s gets the current entry as a conflict', async (_, changes) => {
    await stage.found()
    const first = stage.entry('a', 1)
    await stage.writer().write([first])
    const [outcome] = await stage.writer().write([{ ...stage.entry('a', 2, { former: first }), ...changes }])
    expect(outcome).toEqual({ status: 'conflict', standing: first.bytes })
    expect(await space()).toMatchObject({ lastSeq: 1 })
  })

  test('of a new key is refused unless it has the first revision', async () => {
    await stage.found()
    const [outcome] = await stage.writer().write([stage.entry('a', 2)])
    expect(outcome).toEqual({ status: 'conflict', standing: null })
  })

  test('that is repeated succeeds with its old number, and creates one event', async () => {
    await stage.found()
    const first = stage.entry('a', 1)
    const [one] = await stage.writer().write([first])
    await stage.writer().write([stage.entry('b', 1)])
    expect(await stage.writer().write([first])).toEqual([{ ...one, isNew: false }])
    expect(await stage.events()).toHaveLength(2)
  })

  test('is written while its day gets a partition', async () => {
    await stage.found()
    const waiting = async (): Promise<unknown> => {
      const [row] = await stage.asking.run(
        (sql) => sql<{ n: number }[]>`select count(*)::int as n from pg_stat_activity
          where datname = current_database() and wait_event_type = 'Lock'`,
      )
      return row!.n > 0 || waiting()
    }
    await stage.admin.run((sql) => sql.unsafe(`begin; select add_history_day(current_date)`).simple())
    const written = stage.writer().write([stage.entry('a', 1)])
    await waiting().finally(() => stage.admin.run((sql) => sql.unsafe('commit').simple()))
    expect((await written).map(seqOf)).toEqual([1])
  })

  test('that was deleted keeps its revision, and can be set again', async () => {
    await stage.found()
    const first = stage.entry('a', 1)
    const second = stage.entry('a', 2, { former: first, isDeleted: true })
    const outcomes = await stage.writer().write([first, second, stage.entry('a', 3, { former: second })])
    expect(outcomes.map(seqOf)).toEqual([1, 2, 3])
    expect((await stage.events()).map(({ kind }) => kind)).toEqual([1, 2, 1])
    expect(await space()).toMatchObject({ entries: 1 })
  })

  test('is refused under a key that is not the newest', async () => {
    await stage.found()
    for (const keyEpoch of [0, 2])
      expect(await stage.writer().write([stage.entry('a', 1, { keyEpoch })])).toEqual([{ status: 'stale_key_epoch' }])
  })

  test('of an unknown space is refused, and others in the batch are written', async () => {
    await stage.found()
    const outcomes = await stage.writer().write([stage.entry('a', 1, { spaceId: GROUP }), stage.entry('b', 1)])
    expect(outcomes.map(seqOf)).toEqual(['unknown_space', 1])
  })

  test('is refused once its author has left the space, but is accepted if it was written before that', async () => {
    await stage.found({ spaceId: GROUP as SpaceId })
    const ofBob = (key: string) => stage.entry(key, 1, { spaceId: GROUP as SpaceId, author: stage.bob })
    const [before, after] = [ofBob('a'), ofBob('b')]
    expect((await stage.writer().write([before])).map(seqOf)).toEqual([1])
    await stage.setGroup(2, 1)
    const ofAnn = stage.entry('c', 1, { spaceId: GROUP as SpaceId })
    expect((await stage.writer().write([before, after, ofAnn])).map(seqOf)).toEqual([1, 'unknown_space', 2])
    await stage.admin.run((sql) => sql`update member set revoked_at = now() where peer_no = ${stage.ann}`)
    expect(await stage.writer().write([stage.entry('d', 1, { spaceId: GROUP as SpaceId })])).toEqual([
      { status: 'unknown_space' },
    ])
  })

  test('leaves no event in a space without a history, and still gets a number', async () => {
    await stage.found({ historyFor: 'none', keepsMessages: false })
    const [outcome] = await stage.writer().write([stage.entry('a', 1)])
    expect(seqOf(outcome)).toBe(1)
    expect(await stage.events()).toEqual([])
    expect(await space()).toMatchObject({ lastSeq: 1, historyBytes: 0, keptSince: null })
  })

  test('is refused while the mesh is frozen', async () => {
    await stage.found()
    await stage.writer().write([stage.entry('a', 1)])
    await stage.admin.run((sql) => sql`update space set last_seq = -1 - last_seq`)
    expect(await stage.writer().write([stage.entry('b', 1)])).toEqual([{ status: 'away' }])
    expect(await space()).toMatchObject({ lastSeq: 1 })
  })
})

describe('a quota', () => {
  test.each([
    ['entries of a space', { entriesMax: 2 }],
    ['bytes of a space', { spaceBytesMax: 6 }],
    ['bytes of a mesh', { meshBytesMax: 12 }],
  ])('of %s refuses only entries that exceed it', async (_, limits) => {
    await stage.found()
    const entries = ['a', 'b', 'c'].map((key) => stage.entry(key, 1))
    expect((await stage.writer(0, limits).write(entries)).map(seqOf)).toEqual([1, 2, 'quota'])
    const rest = [stage.entry('d', 1), stage.entry('a', 2, { former: entries[0]!, isDeleted: true })]
    expect((await stage.writer(0, limits).write(rest)).map(seqOf)).toEqual(['quota', 3])
  })

  test('of a mesh covers all its spaces', async () => {
    await stage.found()
    await stage.found({ spaceId: GROUP })
    const limits = { meshBytesMax: 8 }
    await stage.writer(0, limits).write([stage.entry('a', 1, { spaceId: GROUP as SpaceId })])
    expect(await stage.writer(0, limits).write([stage.entry('b', 1)])).toEqual([{ status: 'quota' }])
  })
})

describe('two shards that write one space', () => {
  const ROUNDS = 40

  test('assign numbers without a gap, in the order of time, and one of two conflicting writes wins', async () => {
    await stage.found()
    const writers = [stage.writer(0), stage.writer(1)]
    let former: EntryWrite | undefined
    for (let round = 1; round <= ROUNDS; round++) {
      const rivals = writers.map((_, shard) =>
        stage.entry('key', round, { text: `${shard} ${round}`, ...(former && { former }) }),
      )
      const own = writers.map((_, shard) => stage.entry(`${shard} ${round}`, 1))
      const outcomes = await Promise.all(writers.map((writer, shard) => writer.write([rivals[shard]!, own[shard]!])))
      const won = outcomes.map(([outcome]) => outcome!.status)
      expect([...won].sort()).toEqual(['conflict', 'done'])
      former = rivals[won.indexOf('done')]!
      const [lost] = outcomes[won.indexOf('conflict')]!
      expect(lost).toEqual({ status: 'conflict', standing: former.bytes })
    }
    const events = await stage.events()
    expect(events.map(({ seq }) => seq)).toEqual(Array.from({ length: 3 * ROUNDS }, (_, i) => i + 1))
    for (const [i, { at }] of events.entries()) expect(at).toBeGreaterThan(events[i - 1]?.at ?? 0)
    expect(await space()).toMatchObject({ lastSeq: 3 * ROUNDS, entries: 2 * ROUNDS + 1 })
  })

  test('show a reader every event up to the newest that it sees', async () => {
    await stage.found()
    const writing = Promise.all(
      [stage.writer(0), stage.writer(1)].map(async (writer, shard) => {
        for (let n = 0; n < 60; n++)
          await writer.write([stage.entry(`${shard} ${n}`, 1), stage.entry(`${shard} ${n}b`, 1)])
      }),
    )
    let isOver = false
    void writing.finally(() => {
      isOver = true
    })
    let seen = 0
    while (!isOver || seen < 240) {
      const [row] = await stage.asking.run(
        (sql) => sql<{ count: number; last: number; seen: number }[]>`
          select count(*)::int as count, coalesce(max(seq), 0)::float8 as last, (select last_seq from space)::float8 as seen
          from history_event where mesh_id = ${MESH}::uuid and space_id = ${MESH}::uuid`,
      )
      expect(row).toMatchObject({ count: row!.last, last: row!.seen })
      seen = row!.count
    }
    await writing
  })

  test('continue after the clock was set back', async () => {
    await stage.found()
    const [first] = await stage.writer(0).write([stage.entry('a', 1)])
    await stage.admin.run((sql) => sql`update space set last_at = last_at + interval '1 hour'`)
    const later = await stage.writer(1).write([stage.entry('b', 1), stage.entry('c', 1)])
    const hour = 3_600_000_000
    const at = first?.status === 'done' ? first.at : 0
    expect(later).toMatchObject([{ at: at + hour + 1 }, { at: at + hour + 2 }])
  })
})

test('a writer whose reply was lost can repeat its write', async () => {
  await stage.found()
  const entries = Array.from({ length: 700 }, (_, n) => stage.entry(`key ${n}`, 1))
  const [one, two] = [stage.writer(0), stage.writer(1)]
  const [first, second] = await Promise.all([one.write(entries), two.write(entries)])
  expect(first.map(seqOf)).toEqual(second.map(seqOf))
  expect(await stage.spaces.put(stage.asker(stage.ann), termsOf({ epoch: 2 }))).toBe('done')
  expect(await space()).toMatchObject({ lastSeq: 700, entries: 700 })
})
