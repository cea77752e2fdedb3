import { connect } from 'node:net'
import { zstdDecompressSync } from 'node:zlib'
import { CopyRowReader } from '@sealpost/replay'
import { type MeshId, toHex } from '@sealpost/std'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { HttpPeer, httpUrl } from './http.ts'
import { World } from './world.ts'

/** The number of entries, whose response fills the socket buffers several times. */
const MANY = 10_000
const VALUE_BYTES = 1_900

let world: World
let peer: HttpPeer
let url: string
beforeAll(async () => {
  world = await World.open({ POLL_MS: '200', REPLAYS_AT_ONCE: '1' })
  const place = await world.enrol()
  peer = await HttpPeer.enter(place)
  url = httpUrl(place)
  await fill(world.meshId)
})
afterAll(() => world[Symbol.asyncDispose]())

const run = <Row>(statement: string) => world.db.run((sql) => sql.unsafe<Row[]>(statement))

/** Sets each key from 1 to MANY, one per second; then sets the first again and deletes the second. */
async function fill(meshId: MeshId): Promise<void> {
  await run(
    `insert into space (mesh_id, space_id, owner, epoch, statement, history_for, keeps_messages, keep_seconds, keep_bytes, kept_since, entries, last_seq, last_at)
     select '${meshId}', '${meshId}', min(peer_no), 1, '', 'all', true, 1000000000, 1e12::bigint, '2026-01-01Z', ${MANY}, ${MANY + 2}, '2026-01-09Z'
     from member where mesh_id = '${meshId}'`,
  )
  await run(
    `insert into history_event (mesh_id, space_id, seq, at, kind, key_hash, former_seq, author, record)
     select mesh_id, space_id, n, timestamptz '2026-01-02Z' + n * interval '1 second',
       case n when ${MANY + 2} then 2 else 1 end, sha256(int4send(case when n > ${MANY} then n - ${MANY} else n end)),
       case when n > ${MANY} then n - ${MANY} end, owner,
       convert_to(rpad('value ' || n || '.', ${VALUE_BYTES}, 'x'), 'utf8')
     from space, generate_series(1, ${MANY + 2}) n where mesh_id = '${meshId}'`,
  )
  await run(
    `insert into state_entry (mesh_id, space_id, key_hash, revision, seq, at, author, is_deleted, entry, hash)
     select distinct on (key_hash) mesh_id, space_id, key_hash, 1, seq, at, author, kind = 2, record, ''
     from history_event where mesh_id = '${meshId}' order by key_hash, seq desc`,
  )
}

interface Line {
  readonly seq: number
  readonly at: string
  readonly kind: number
  readonly value: string
  readonly start?: boolean
  readonly end?: boolean
  readonly lastSeq?: number
  readonly more?: boolean
}

const ask = (path: string, query: Record<string, string | number>, init: RequestInit = {}) =>
  fetch(
    `${url}/v1/meshes/${world.meshId}/${path}?${new URLSearchParams({ space: world.meshId, ...(query as Record<string, string>) })}`,
    {
      ...init,
      headers: { ...peer.headers, 'Accept-Encoding': 'identity', ...init.headers },
    },
  )

async function lines(path: string, query: Record<string, string | number> = {}): Promise<Line[]> {
  const answer = await ask(path, query)
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'application/x-ndjson'])
  return (await answer.text()).trimEnd().split('\n').map((line) => JSON.parse(line)) // biome-ignore format: one thing
}

const textOf = ({ value }: Line) => Buffer.from(value, 'base64').toString().split('.')[0]
const between = (all: readonly Line[]) => all.slice(1, -1)
const momentOf = (n: number) => new Date(Date.UTC(2026, 0, 2) + n * 1000).toISOString()

test('the metrics show response times by kind and by route', async () => {
  const shown = async () => ({
    state: await world.broker.metric('sealpost_replay_seconds_count{kind="state"}'),
    route: await world.broker.metric('sealpost_http_request_seconds_count{route="/v1/meshes/:mesh/state"}'),
  })
  await lines('state', { after: MANY })
  const former = await shown()
  expect(former.route).toBeGreaterThan(0)
  await lines('state')
  expect(await shown()).toEqual({ state: former.state + 1, route: former.route + 1 })
  expect((await ask('state', { keys: 'no key' })).status).toBe(400)
  expect(await shown()).toEqual({ state: former.state + 1, route: former.route + 2 })
})

describe('a response', () => {
  test('with the current state has a start line and an end line, and ascends by seq', async () => {
    const all = await lines('state')
    expect(all[0]).toMatchObject({ start: true, lastSeq: MANY + 2 })
    expect(all.at(-1)).toEqual({ end: true, seq: MANY + 2 })
    expect(between(all).map(({ seq }) => seq)).toEqual([...Array.from({ length: MANY - 2 }, (_, i) => i + 3), MANY + 1])
    expect(textOf(all.at(-2)!)).toBe(`value ${MANY + 1}`)
    expect(all.at(-2)!.at).toBe(momentOf(MANY + 1).replace('.000Z', '.000000Z'))
  })

  test('with the state at a given time contains the values of that time, and can start after any seq', async () => {
    const at = momentOf(9)
    expect(between(await lines('state', { at })).map(textOf)).toEqual(
      Array.from({ length: 9 }, (_, i) => `value ${i + 1}`),
    )
    const rest = await lines('state', { at, after: 7 })
    expect(between(rest).map(({ seq }) => seq)).toEqual([8, 9])
    expect(rest.at(-1)).toEqual({ end: true, seq: 9 })
  })

  test('after a seq contains later changes and deletions', async () => {
    const since = await lines('state', { after: MANY - 1 })
    expect(between(since).map(({ seq, kind }) => [seq, kind])).toEqual([[MANY, 1], [MANY + 1, 1], [MANY + 2, 2]]) // biome-ignore format: one thing
  })

  test('can be limited to single keys', async () => {
    const hash = toHex(new Bun.CryptoHasher('sha256').update(new Uint8Array([0, 0, 0, 1])).digest())
    const [, only, end] = await lines('state', { keys: hash })
    expect([only!.seq, end]).toEqual([MANY + 1, { end: true, seq: MANY + 2 }])
  })

  test('with events is one page, or all of them', async () => {
    const page = await lines('history', { after: 3, limit: 2 })
    expect(between(page).map(({ seq }) => seq)).toEqual([4, 5])
    expect(page.at(-1)).toEqual({ end: true, seq: 5, more: true })
    const last = await lines('history', { before: 2 ** 52, limit: 2 })
    expect(between(last).map(({ kind }) => kind)).toEqual([1, 2])
    const all = await lines('history', { from: momentOf(5), to: momentOf(8) })
    expect(between(all).map(({ seq }) => seq)).toEqual([5, 6, 7, 8])
  })

  test('is compressed on request, and can consist of records', async () => {
    const plain = Buffer.from(await (await ask('state', { at: momentOf(50) })).arrayBuffer())
    const squeezed = await ask('state', { at: momentOf(50) }, { headers: { 'Accept-Encoding': 'zstd' }, decompress: false } as RequestInit) // biome-ignore format: one thing
    expect(squeezed.headers.get('content-encoding')).toBe('zstd')
    expect(zstdDecompressSync(Buffer.from(await squeezed.arrayBuffer())).equals(plain)).toBe(true)
    const gzip = await ask('state', { at: momentOf(50) }, { headers: { 'Accept-Encoding': 'gzip' } })
    expect(Buffer.from(await gzip.arrayBuffer()).equals(plain)).toBe(true)
    const records = await ask('state', { at: momentOf(1) }, { headers: { Accept: 'application/octet-stream' } })
    const bytes = Buffer.from(await records.arrayBuffer())
    expect([bytes[0], bytes.readInt32BE(1)]).toEqual([100, bytes.length - 1 - 7])
    const record = bytes.subarray(5)
    expect([record.readInt16BE(0), record.readBigInt64BE(6), record.readInt16BE(30)]).toEqual([5, 1n, 1])
    expect(record.subarray(36, 43).toString()).toBe('value 1')
    expect(bytes.subarray(-7)).toEqual(Buffer.from([100, 0, 0, 0, 6, 0xff, 0xff]))
  })

  test.each([
    ['state', { at: 'yesterday' }, 400, 'query_malformed'],
    ['state', { at: '2026-02-31T00:00:00Z' }, 400, 'query_malformed'],
    ['state', { at: '2999-01-01T00:00:00Z' }, 400, 'moment_in_future'],
    ['state', { at: '2025-12-31T23:59:59.999999Z' }, 410, 'before_horizon'],
    ['state', { after: '-1' }, 400, 'query_malformed'],
    ['state', { keys: 'abc' }, 400, 'query_malformed'],
    ['state', { space: 'f'.repeat(32) }, 404, 'space_unknown'],
    ['history', { limit: '1001' }, 400, 'query_malformed'],
    ['history', { to: '2999-01-01T00:00:00Z' }, 400, 'moment_in_future'],
    ['history', { from: '2025-01-01T00:00:00Z' }, 410, 'before_horizon'],
    ['history', { surplus: '1' }, 400, 'query_malformed'],
  ])('for %s with %o is %d %s', async (path, query, status, code) => {
    const answer = await ask(path, query)
    expect([answer.status, await answer.json()]).toEqual([status, { code }])
  })

  test('requires a token of a member of the same mesh', async () => {
    const stranger = await HttpPeer.enter(await world.enrol(await world.mesh()))
    const foreign = await ask('state', {}, { headers: stranger.headers })
    expect([foreign.status, await foreign.json()]).toEqual([404, { code: 'space_unknown' }])
    expect((await ask('state', {}, { headers: { Authorization: 'Bearer spt_x' } })).status).toBe(401)
  })
})

describe('a reader that', () => {
  /** The message with the header before the records. */
  const HEADER = Uint8Array.of(100, 0, 0, 0, 23, ...new Array(19).fill(0))
  const WRITTEN = Array.from({ length: MANY }, (_, i) => `value ${i + 1}.`.padEnd(VALUE_BYTES, 'x'))
  const records = (encoding = 'identity') =>
    ask('state', { at: momentOf(MANY) }, { headers: { Accept: 'application/octet-stream', 'Accept-Encoding': encoding } }) // biome-ignore format: one thing
  const valuesIn = (chunks: readonly Uint8Array[]): string[] => {
    const values: string[] = []
    new CopyRowReader().take(Buffer.concat(chunks), ({ value }) => values.push(value.toString()))
    return values
  }

  const running = async () =>
    (await run<{ n: number }>(`select count(*)::int as n from pg_stat_activity where application_name = 'sealpost replay' and state = 'active' and datname = current_database()`))[0]!.n // biome-ignore format: one thing

  /** Counts replay statements that wait for the client to read. */
  const stalled = async () =>
    (await run<{ n: number }>(`select count(*)::int as n from pg_stat_activity where application_name = 'sealpost replay' and wait_event = 'ClientWrite' and datname = current_database()`))[0]!.n // biome-ignore format: one thing

  test('does not read holds up only itself, and its statement ends when it is cut', async () => {
    const before = await memory()
    const silent = await unread()
    expect(await running()).toBe(1)
    expect((await memory()) - before).toBeLessThan(64 * 2 ** 20)
    const next = lines('state', { at: momentOf(3) })
    await expect.poll(waiting).toBe(1)
    const others = Array.from({ length: 12 }, () => ask('state', { at: momentOf(3) }))
    const [refused] = await Promise.race(others.map(async (other) => [await other]))
    expect([refused!.status, await refused!.json()]).toMatchObject([503, { code: 'replay_busy' }])
    silent.destroy()
    expect(between(await next)).toHaveLength(3)
    expect((await Promise.all(others)).filter(({ status }) => status === 200)).toHaveLength(11)
    await expect.poll(running).toBe(0)
  })

  test('disconnects before the first byte occupies no slot', async () => {
    for (let i = 0; i < 40; i++) {
      const socket = connect(Number(new URL(url).port), '127.0.0.1')
      await new Promise<void>((written) => socket.write(stateRequest(), () => written()))
      if (i % 2 === 1) await figure('sealpost_replays_waiting') // this one may have a slot
      socket.destroy()
    }
    await expect.poll(() => figure('sealpost_replays_running')).toBe(0)
    expect((await lines('state', { after: MANY })).at(-1)).toMatchObject({ end: true })
  })

  test('resumes late gets every byte', async () => {
    const reader = (await records()).body!.getReader()
    const chunks = [HEADER, (await reader.read()).value!.slice()]
    // Large socket buffers may hold the rest, which ends the statement.
    await expect.poll(async () => (await stalled()) === 1 || (await running()) === 0).toBe(true)
    for (let next = await reader.read(); !next.done; next = await reader.read()) chunks.push(next.value.slice())
    expect(valuesIn(chunks)).toEqual(WRITTEN)
  })

  test.each(['gzip', 'zstd'])('requests records in %s gets the same records', async (encoding) => {
    const answer = await records(encoding)
    expect(answer.headers.get('content-encoding')).toBe(encoding)
    expect(valuesIn([HEADER, await answer.bytes()])).toEqual(WRITTEN)
  })

  test('keeps the connection open receives new events, and can disconnect at any time', async () => {
    const end = new AbortController()
    const answer = await ask(
      'history',
      { after: MANY + 1, follow: 1 },
      { signal: end.signal, headers: { 'Accept-Encoding': 'gzip' } },
    )
    const heard = reading(answer)
    expect(await heard()).toMatchObject({ start: true })
    expect(await heard()).toMatchObject({ seq: MANY + 2, kind: 2 })
    await run(
      `with turn as (update space set last_seq = last_seq + 1, last_at = clock_timestamp() where mesh_id = '${world.meshId}' returning *)
       insert into history_event (mesh_id, space_id, seq, at, kind, author, record, body)
       select mesh_id, space_id, last_seq, last_at, 3, owner, 'a record', 'a body' from turn`,
    )
    const line = (await heard()) as Line & { body: string }
    expect([line.seq, line.kind, textOf(line), Buffer.from(line.body, 'base64').toString()]).toEqual([MANY + 3, 3, 'a record', 'a body']) // biome-ignore format: one thing
    expect(await figure('sealpost_followers')).toBe(1)
    end.abort()
    await expect.poll(() => figure('sealpost_followers')).toBe(0)
  })

  /** Returns a function that returns the next line of the response. */
  function reading(answer: Response): () => Promise<Line> {
    const chunks = (answer.body as unknown as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]()
    let rest = ''
    return async () => {
      while (!rest.includes('\n')) {
        const { done, value } = await chunks.next()
        if (done) throw new Error('the answer ended')
        rest += Buffer.from(value).toString()
      }
      const [line, ...others] = rest.split('\n')
      rest = others.join('\n')
      return JSON.parse(line!)
    }
  }

  const stateRequest = () =>
    `GET /v1/meshes/${world.meshId}/state?space=${world.meshId} HTTP/1.1\r\nHost: ${new URL(url).host}\r\nAuthorization: ${peer.headers.Authorization}\r\n\r\n`

  async function unread() {
    const socket = connect(Number(new URL(url).port), '127.0.0.1')
    socket.write(stateRequest())
    await new Promise((resolve) => socket.once('readable', resolve))
    return socket
  }

  const waiting = () => figure('sealpost_replays_waiting')
  const memory = () => figure('sealpost_memory_bytes')

  async function figure(name: string): Promise<number> {
    const text = await (await fetch(`${world.broker.adminUrl}/metrics`)).text()
    return Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1] ?? Number.NaN)
  }
})
