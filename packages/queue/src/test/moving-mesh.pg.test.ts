/** Tests commits, sessions and deliveries of a mesh that moves from one database to another. */
import { type MoveOrder, moveMesh, undoMeshMove } from '@sealpost/mesh-move'
import { openDatabase, openPipeline } from '@sealpost/pg'
import { type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import type { AppendOutcome, SessionRef } from '@sealpost/protocol'
import { scratchDatabase } from '@sealpost/schema/testing'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { PostgresQueue } from '../postgres/postgres-queue.ts'
import type { Queue } from '../queue.ts'
import { SESSION } from '../sql/sql.ts'
import { MESH, OTHER_MESH, peerKeyOf, Stage, statusesOf, suiteOptions, THERE, textOf } from './conformance-world.ts'
import { type PostgresWorlds, postgresWorlds, untilBlocked } from './postgres-world.ts'

const WHEN = ['frozen', 'copied', 'left', 'arrived'] as const

let worlds: PostgresWorlds
let stage: Stage
let elsewhere: ScratchDatabase
/** A queue in the destination cell. */
let there: Queue
let closeThere: () => Promise<unknown>
let order: MoveOrder

beforeAll(async () => {
  worlds = await postgresWorlds()
})
afterAll(() => worlds.close())

beforeEach(async () => {
  stage = await Stage.open(await worlds.next())
  elsewhere = await scratchDatabase()
  const pipeline = () => openPipeline(elsewhere.url, { settings: SESSION })
  const databases = {
    writing: await pipeline(),
    claiming: await pipeline(),
    collecting: await pipeline(),
    asking: await openDatabase(elsewhere.url, { ...unhurried, connections: 1, settings: SESSION }),
  }
  there = new PostgresQueue(databases, THERE, suiteOptions)
  order = {
    meshId: MESH,
    from: { cell: 'a', databaseUrl: worlds.url },
    to: { cell: 'b', databaseUrl: elsewhere.url },
  }
  closeThere = async () => {
    await Promise.all(Object.values(databases).map((db) => db.close()))
    await elsewhere.drop()
  }
  return () => closeThere()
})

/** Runs the move until it has recorded this phase, as if the mover died. */
const moveUpTo = (phase: string) =>
  expect(
    moveMesh({
      ...order,
      onPhase: (at) => {
        if (at === phase) throw new Error('died')
      },
    }),
  ).rejects.toThrow('died')

/** Sends from Ann. Returns the outcome's status. */
async function sendBy(queue: Queue, text: string): Promise<string> {
  const { outcomes } = await queue.commit({ appends: [stage.append(text)], settles: [] })
  return outcomes[0]!.status
}

async function openAt(queue: Queue): Promise<SessionRef> {
  for (const key of [peerKeyOf(1), peerKeyOf(2)]) {
    const [member] = await queue.findMembers(MESH, [key])
    const read = { meshId: MESH, peer: member!.peer, epoch: member!.sessionEpoch }
    const epoch = await queue.open(read)
    if (key === peerKeyOf(2)) return { ...read, epoch: epoch! }
  }
  throw new Error('two were opened')
}

const textsAt = async (queue: Queue) => stage.takeTexts(await openAt(queue), 1000, queue)

test('queued mail arrives in order, followed by later mail', async () => {
  await stage.storeAll('1', '2', '3')
  await stage.openBob()
  await stage.storeAll('4', '5')
  const report = await moveMesh(order)
  expect(report).toMatchObject({ isResumed: false, rows: expect.any(Number), pauseMs: expect.any(Number) })
  const session = await openAt(there)
  expect(statusesOf((await there.commit({ appends: [stage.append('6')], settles: [] })).outcomes)).toEqual(['stored'])
  expect(await stage.takeTexts(session, 1000, there)).toEqual(['1', '2', '3', '4', '5', '6'])
})

test('a resend of an envelope stored before the move is a duplicate after it, also when it was settled', async () => {
  const [kept, settled] = [stage.append('kept'), stage.append('settled')]
  const [, outcome] = await stage.store(kept, settled)
  await stage.commit([], [stage.refOf(outcome!)])
  await moveMesh(order)
  const { outcomes } = await there.commit({ appends: [kept, settled], settles: [] })
  expect(statusesOf(outcomes)).toEqual(['duplicate', 'duplicate'])
  expect(await textsAt(there)).toEqual(['kept'])
})

describe.each(WHEN)('interrupted when it was %s', (phase) => {
  test('the mesh is active in one cell at most, and the same command completes the move', async () => {
    const session = await stage.openBob()
    await stage.storeAll('before')
    await moveUpTo(phase)
    expect(await sendBy(stage.here, 'at the source')).toBe('away')
    expect(await stage.claim(session)).toEqual({ status: 'away' })
    if (phase !== 'arrived') expect(await there.open(session)).toBeNull()
    expect(await moveMesh(order)).toMatchObject({ isResumed: true })
    expect(await textsAt(there)).toEqual(['before'])
    expect(await sendBy(stage.here, 'too late')).toBe('away')
  })

  test('the move can be undone before the turning point, and not after it', async () => {
    const session = await stage.openBob()
    await stage.storeAll('before')
    await moveUpTo(phase)
    if (phase === 'left' || phase === 'arrived') {
      await expect(undoMeshMove(order)).rejects.toMatchObject({ code: 'move_past_undo' })
      return
    }
    expect(await undoMeshMove(order)).toEqual({ wasActive: false, isCleared: true })
    expect(await sendBy(stage.here, 'after')).toBe('stored')
    expect(await stage.takeTexts(session)).toEqual(['before', 'after'])
    expect(await there.findMembers(MESH, [peerKeyOf(1)])).toEqual([])
    expect(await moveMesh(order)).toMatchObject({ isResumed: false })
  })
})

describe('while it is frozen', () => {
  test("no session opens, is fenced or claims, and senders of another mesh don't wait", async () => {
    const session = await stage.openBob()
    await moveUpTo('frozen')
    const read = await stage.readSession(peerKeyOf(2))
    expect(await stage.here.open(read)).toBeNull()
    await expect(stage.here.fence(session)).rejects.toMatchObject({ code: 'mesh_away', retryable: true })
    await stage.openFor(peerKeyOf(4), { meshId: OTHER_MESH })
    const other = stage.append('other', { meshId: OTHER_MESH, sender: stage.stranger, recipient: stage.stranger })
    const { outcomes } = await stage.commit([stage.append('mine'), other])
    expect(statusesOf(outcomes)).toEqual(['away', 'stored'])
  })

  test('a resend is detected, and no later envelope passes it', async () => {
    await stage.openBob()
    const last = stage.append('last')
    await stage.store(last)
    await moveUpTo('frozen')
    expect(statusesOf(await stage.store(last))).toEqual(['duplicate'])
    expect(await sendBy(stage.here, 'next')).toBe('away')
  })

  test('nobody can enrol', async () => {
    await moveUpTo('frozen')
    await expect(stage.world.addMember(MESH, peerKeyOf(9))).rejects.toMatchObject({
      code: 'db_not_executed',
      retryable: true,
    })
    await expect(stage.world.revoke(MESH, peerKeyOf(1))).rejects.toMatchObject({ code: 'db_not_executed' })
  })
})

test('of the sends in flight at the freeze, exactly the stored ones arrive, in order', async () => {
  const other = new PostgresQueue({ ...worlds.databases, writing: worlds.rivalWriting }, THERE, suiteOptions)
  await stage.openBob()
  await stage.openFor(peerKeyOf(3), { queue: other })
  const sending = [sendUntilAway(stage.here, 'a', {}), sendUntilAway(other, 'c', { sender: stage.cat })]
  await moveMesh(order)
  const [ofAnn, ofCat] = (await Promise.all(sending)) as [string[], string[]]
  const arrived = await textsAt(there)
  expect(arrived.filter((text) => text.startsWith('a'))).toEqual(ofAnn)
  expect(arrived.filter((text) => text.startsWith('c'))).toEqual(ofCat)
})

/** Sends envelopes without a pause. Returns the stored ones. */
async function sendUntilAway(queue: Queue, prefix: string, changes: Parameters<Stage['append']>[1]): Promise<string[]> {
  const stored: string[] = []
  for (let n = 1; ; n++) {
    const append = stage.append(`${prefix}${n}`, changes)
    const [outcome] = (await queue.commit({ appends: [append], settles: [] })).outcomes as [AppendOutcome]
    if (outcome.status === 'away') return stored
    expect(outcome.status).toBe('stored')
    stored.push(textOf(append.envelope))
  }
}

test('a commit that waited for the freeze stores nothing', async () => {
  await stage.openBob()
  const own = (statement: string) => worlds.admin.run((sql) => sql.unsafe(statement).simple())
  await own('begin')
  await own('update sender_mark set version = -1 - version; update mesh set frozen_at = now()')
  const sending = sendBy(stage.here, 'late')
  await untilBlocked(worlds)
  await own('commit')
  expect(await sending).toBe('away')
  await own('update sender_mark set version = -1 - version; update mesh set frozen_at = null')
  expect(await textsAt(stage.here)).toEqual([])
})

test('the mesh moves back, and away again', async () => {
  await stage.storeAll('1')
  await moveMesh(order)
  expect(await sendBy(there, '2')).toBe('stored')
  const back = { ...order, from: order.to, to: order.from }
  await moveMesh(back)
  expect(await sendBy(there, 'late')).toBe('away')
  expect(await sendBy(stage.here, '3')).toBe('stored')
  await moveMesh(order)
  expect(await textsAt(there)).toEqual(['1', '2', '3'])
})

describe('an impossible move is refused before anybody waits', () => {
  test('of an unknown mesh, or one in another cell', async () => {
    await expect(moveMesh({ ...order, meshId: '77'.repeat(16) as typeof MESH })).rejects.toMatchObject({
      code: 'mesh_unknown',
    })
    await moveMesh(order)
    await expect(moveMesh({ ...order, to: { ...order.to, cell: 'c' } })).rejects.toMatchObject({
      code: 'mesh_elsewhere',
    })
  })

  test('to a cell that already has the mesh', async () => {
    const db = await openDatabase(elsewhere.url, { ...unhurried, connections: 1 })
    await db.run((sql) => sql`insert into mesh (mesh_id, name) values (${MESH}, 'another')`)
    await db.close()
    await expect(moveMesh(order)).rejects.toMatchObject({ code: 'mesh_exists' })
    expect(await sendBy(stage.here, 'still')).toBe('stored')
  })

  test('by two movers at once', async () => {
    const phases: string[] = []
    const rival = Promise.withResolvers<unknown>()
    await moveMesh({
      ...order,
      onPhase: (phase) => {
        phases.push(phase)
        if (phase === 'frozen') rival.resolve(moveMesh(order).catch((error) => error.code))
      },
    })
    expect(await rival.promise).toBe('move_in_use')
    expect(phases).toEqual(['frozen', 'copied', 'left', 'arrived', 'done'])
  })
})
