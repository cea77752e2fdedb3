/** Runs the load test as a user would. Checks its exit code, JSON and leftovers. */
import postgres from 'postgres'
import { describe, expect, test } from 'vitest'
import type { LoadResult } from './run/result.ts'
import type { SoakFigures } from './soak/soak-report.ts'
import { LoadTestWorld, programsOf } from './test/testing-run.ts'

/** Tests that read /proc. */
const onLinux = test.runIf(process.platform === 'linux')

const world = new LoadTestWorld()

const sumOf = (deliveries: LoadResult['deliveries']): number =>
  deliveries ? Object.values(deliveries).reduce((sum, count) => sum + count, 0) : 0

describe('a small run', () => {
  test('delivers everything, reports it, and leaves nothing behind', async () => {
    const { code, out, err, left } = await world.run(['5', '20', '--json', world.resultFile])
    expect(err).not.toContain('Error')
    expect(out).toContain('100 messages, nothing lost')
    expect(out).toContain('0 duplicates (0 more hidden by the SDK)')
    expect(code).toBe(0)
    const clean = { lost: 0, duplicates: 0, misdelivered: 0, outOfOrder: 0, timedOut: 0 }
    const result = await world.result<LoadResult>()
    expect(result).toMatchObject({ peers: 5, messagesPerPeer: 20, total: 100, limits: 'off', ...clean })
    expect(result).toMatchObject({ sent: 100, acked: 100, delivered: 100, leftInQueue: 0 })
    expect(result.durability).toEqual({ fsync: 'on', synchronousCommit: 'on' })
    expect(out).toMatch(/call → push .*\n +send → ack .*\n +send → push /)
    expect(out).toMatch(/\d+ leased on insert, \d+ claimed, 0 collected from another broker/)
    expect(out).toMatch(/exchanged before the clock starts: \d+ messages .* not counted; --cold counts it/)
    expect(sumOf(result.deliveries)).toBeGreaterThanOrEqual(100)
    expect(result.callToPushMs.p50).toBeGreaterThanOrEqual(result.e2eMs.p50)
    for (const latency of [result.ackMs, result.e2eMs, result.sendCallMs, result.callToPushMs]) {
      expect(latency.p50).toBeGreaterThan(0)
      expect(Object.keys(latency)).toEqual(['p50', 'p95', 'p99', 'max'])
      expect(latency.p50).toBeLessThanOrEqual(latency.p99)
    }
    const numbers = ['wallMs', 'messagesPerSecond', 'loadgenCpuShare', 'transactionsPerMessage'] as const
    for (const name of numbers) expect(result[name]).toBeGreaterThan(0)
    const names = [
      'brokerRssMbPeak',
      'brokerFdMax',
      'brokerCpuSeconds',
      'postgresCpuSeconds',
      'postgresVersion',
      'gitSha',
    ]
    for (const name of names) expect(result).toHaveProperty(name)
    expect(left).toEqual([])
    expect(await programsOf(world.folder)).toEqual([])
  })

  test('packs the messages of a burst into frames, also with one send per turn', async () => {
    const packed = await world.run(['4', '60', '--json', world.resultFile])
    expect(packed.code).toBe(0)
    const { framesPerMessage } = await world.result<LoadResult>()
    expect(framesPerMessage).toBeGreaterThan(0)
    expect(framesPerMessage).toBeLessThan(0.7)
    const { code, out } = await world.run(['4', '60', '--pack', 'off', '--json', world.resultFile])
    expect(out).toContain('one send per turn')
    expect(code).toBe(0)
    const unpacked = await world.result<LoadResult>()
    expect(unpacked).toMatchObject({ isPacking: false, delivered: 240, lost: 0, outOfOrder: 0 })
    expect(unpacked.framesPerMessage).toBeGreaterThan(0)
    expect(unpacked.framesPerMessage).toBeLessThan(0.7)
  })

  test('runs with rate limits, several generators, JSON frames and a baseline', async () => {
    const words = [
      '6',
      '--rate',
      '300',
      '--seconds',
      '1',
      '--generators',
      '2',
      '--form',
      'json',
      '--baseline',
      '--cold',
    ]
    const { code, out } = await world.run([...words, '--limits', 'on', '--json', world.resultFile])
    expect(out).toContain('300 messages, nothing lost')
    expect(out).toContain('not exchanged before the clock starts (--cold)')
    expect(code).toBe(0)
    const result = await world.result<LoadResult>()
    expect(result).toMatchObject({ limits: 'on', generators: 2, delivered: 300, form: 'json', rate: 300 })
    expect(result.baselineRatio).toBeGreaterThan(0)
    expect(result.baseline).toMatchObject({ delivered: 300, lost: 0 })
  })
})

describe('other kinds of runs', () => {
  test('a soak samples storage, holds a snapshot, and drains its backlog at the end', async () => {
    const words = ['4', '--soak', '5s', '--rate', '60', '--hold-transaction', '2', '--backlog', '50', '--through-drain']
    const { code, out, left } = await world.run([...words, '--json', world.resultFile])
    expect(out).toContain('300 messages, nothing lost')
    expect(out).toContain('50 messages, stored at')
    const { soak, deliveries } = await world.result<LoadResult & { soak: SoakFigures }>()
    expect(deliveries).toMatchObject({ leasedOnInsert: 0, collected: 0 })
    expect(sumOf(deliveries)).toBeGreaterThanOrEqual(300)
    expect(soak.backlog).toMatchObject({ messages: 50, delivered: 50, lost: 0, duplicates: 0, outOfOrder: 0 })
    expect(soak.hold).toEqual({ fromSeconds: 1.5, toSeconds: 3.5 })
    // A busy machine may send messages a second late and skip a sample.
    expect(soak.rows).toHaveLength(5)
    expect(Math.max(...soak.rows.map(({ delivered }) => delivered))).toBeGreaterThan(0)
    const looked = soak.rows.filter(({ bytes }) => Object.keys(bytes).length > 0)
    for (const { bytes, queued } of looked) {
      expect(Object.keys(bytes)).toEqual(expect.arrayContaining(['message_queue', 'dedupe_ledger', 'session']))
      expect(queued).toBeGreaterThanOrEqual(50)
    }
    expect(looked.length).toBeGreaterThan(0)
    expect(soak.series.length).toBeGreaterThanOrEqual(looked.length)
    // Five seconds prove nothing about steadiness, so check only that code and verdicts agree.
    expect(code).toBe(soak.verdicts.every(({ isMet }) => isMet) ? 0 : 1)
    expect(left).toEqual([])
  })

  test('silent sessions are measured without a message', async () => {
    const { code, out, left } = await world.run(['--idle', '3', '--seconds', '1', '--json', world.resultFile])
    expect(out).toContain('3, silent')
    expect(code).toBe(0)
    const result: unknown = await world.result()
    expect(result).toMatchObject({ sessions: 3, seconds: 1, rssMbAfter: expect.any(Number) })
    expect(left).toEqual([])
  })

  test('broadcasts are measured against the same deliveries sent directly', async () => {
    const { code, out, left } = await world.run(['4', '--group', '2', '--json', world.resultFile])
    expect(out).toContain('2 senders to one group of 4: 12 deliveries a turn')
    expect(code).toBe(0)
    const result: unknown = await world.result()
    expect(result).toMatchObject({ deliveries: 12, cpuRatio: expect.any(Number), throughputRatio: expect.any(Number) })
    expect(left).toEqual([])
  })

  test('the plain-SQL queue delivers the same messages, and leaves no table behind', async () => {
    const words = ['3', '20', '--against', 'plain-sql', '--json', world.resultFile]
    const { code, out } = await world.run(words)
    expect(out).toContain('against a queue of plain SQL')
    expect(code).toBe(0)
    const { baselineKind, baseline } = await world.result<LoadResult>()
    expect(baselineKind).toBe('plain-sql')
    expect(baseline).toMatchObject({ delivered: 60, lost: 0, outOfOrder: 0, postgresCpuSeconds: expect.any(Number) })
    const sql = postgres(world.databaseUrl, { max: 1 })
    expect(await sql`select to_regclass('plain_queue') as plain`).toEqual([{ plain: null }])
    await sql.end()
  })
})

onLinux('Ctrl-C ends everything it started', async () => {
  const running = world.start(['5', '100000'])
  await running.says('sending')
  expect((await programsOf(world.folder)).length).toBeGreaterThanOrEqual(3)
  running.signal('SIGINT')
  const { code, left } = await running.ended
  expect(code).toBe(130)
  expect(left).toEqual([])
  expect(await programsOf(world.folder)).toEqual([])
})

onLinux('a broker that hangs ends the run after DRAIN_MS, with what timed out and exit code 1', async () => {
  const running = world.start(['5', '100000', '--json', world.resultFile], { DRAIN_MS: '4000' })
  await running.says('sending')
  const [broker] = await programsOf(`BROKER_KEY_FILE=${world.folder}`)
  process.kill(Number(broker), 'SIGSTOP')
  await running.says('received nothing for')
  process.kill(Number(broker), 'SIGCONT')
  const { code, left } = await running.ended
  expect(code).toBe(1)
  const { timedOut, delivered, lost, refused, total } = await world.result<LoadResult>()
  expect(timedOut).toBeGreaterThan(0)
  expect({ lost, refused }).toEqual({ lost: 0, refused: {} })
  expect(delivered).toBeLessThan(total)
  expect(left).toEqual([])
})

test('a broker that never responds ends the test before the run, after DRAIN_MS and with one sentence', async () => {
  const mute = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    reusePort: false,
    fetch: (request, server) => {
      if (new URL(request.url).pathname === '/version') return Response.json({ brokerKey: 'ab'.repeat(32) })
      const headers = { 'Sec-WebSocket-Protocol': request.headers.get('sec-websocket-protocol')! }
      return server.upgrade(request, { headers }) ? undefined : new Response('a WebSocket is required', { status: 426 })
    },
    websocket: { message: () => undefined },
  })
  const url = `ws://127.0.0.1:${mute.port}/v1/ws`
  const { code, err, left } = await world
    .run(['2', '1'], { BROKER_WS_URL: url, DRAIN_MS: '300' })
    .finally(() => mute.stop(true))
  expect(err).toContain('The broker sent nothing for 300 ms (DRAIN_MS) while connecting.')
  expect(err).not.toContain('    at ')
  expect(code).toBe(1)
  expect(left).toEqual([])
})

test('wrong usage ends it with one error and exit code 2, and starts nothing', async () => {
  const { code, err, out } = await world.run(['5', '10', '--nonsense'])
  expect(code).toBe(2)
  expect(err).toContain('--nonsense')
  expect(err).toContain('add --help')
  expect(out).toBe('')
})

test('an unreachable database ends it with one sentence', async () => {
  const { code, err, left } = await world.run(['2', '1'], { DATABASE_URL: 'postgres://nobody:secret@127.0.0.1:1/none' })
  expect(code).toBe(1)
  expect(err).toContain('127.0.0.1:1')
  expect(err).not.toContain('secret')
  expect(left).toEqual([])
})
