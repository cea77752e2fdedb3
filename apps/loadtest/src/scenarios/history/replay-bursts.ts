/** Concurrent answers: from a broker by HTTP, and the same rows out of Postgres when nobody does anything with them. */
import type { Readable } from 'node:stream'
import type { FilledSpace } from '@sealpost/harness/members/history-fixture'
import type { Reading } from '@sealpost/harness/members/http-reader'
import { processFacts } from '@sealpost/harness/programs/process-facts'
import { openPostgresJs } from '@sealpost/pg'
import { formatTimestamp, REPLAY_SESSION, stateAt } from '@sealpost/replay'
import type { Environment } from '../../environment/environment.ts'

/** Connections that a broker reads with. */
const LANES = 2

export interface Round {
  readonly space: FilledSpace
  readonly atOnce: number
  /** A small one that is read before: the first read pays for connections and code. */
  readonly warm: FilledSpace
}

export interface Burst {
  readonly ms: number
  readonly readings: readonly Reading[]
  readonly rssGrowthMb: number
}

export type HistoryForm = 'records' | 'lines'
const ACCEPT = { records: 'application/octet-stream', lines: 'application/x-ndjson' } as const

export async function readBurst(
  target: Environment,
  { space, atOnce, warm }: Round,
  form: HistoryForm,
): Promise<Burst> {
  const { readers } = space
  await Promise.all(Array.from({ length: LANES }, (_, lane) => warm.readers[lane]!.read(pathOf(warm), ACCEPT[form])))
  const pid = target.shards[0]!.pid
  const memory = () => (pid === null ? 0 : (processFacts(pid)?.rssMb ?? 0))
  const before = memory()
  let most = before
  const watch = setInterval(() => (most = Math.max(most, memory())), 50)
  const startMs = performance.now()
  const all = Array.from({ length: atOnce }, (_, i) => readers[i % readers.length]!.read(pathOf(space), ACCEPT[form]))
  const readings = await Promise.race([Promise.all(all), target.failed])
  const ms = performance.now() - startMs
  clearInterval(watch)
  return { ms, readings, rssGrowthMb: most - before }
}

function pathOf({ ref, at }: FilledSpace): string {
  const query = new URLSearchParams({ space: ref.spaceId, at: formatTimestamp(at) })
  return `/v1/meshes/${ref.meshId}/state?${query}`
}

/** The same rows, read by as many connections as the broker uses, and thrown away. */
export async function copyBurst({ databaseUrl }: Environment, { space, atOnce, warm }: Round): Promise<number> {
  const lanes = Math.min(LANES, atOnce)
  const sql = await openPostgresJs(databaseUrl, { connections: lanes, connection: REPLAY_SESSION })
  try {
    const copy = async (of: FilledSpace) => discard(await sql.unsafe(copyOf(of)).readable())
    await Promise.all(Array.from({ length: lanes }, () => copy(warm)))
    let left = atOnce
    const startMs = performance.now()
    const lane = async () => {
      while (left-- > 0) await copy(space)
    }
    await Promise.all(Array.from({ length: lanes }, lane))
    return performance.now() - startMs
  } finally {
    await sql.end({ timeout: 5 })
  }
}

const copyOf = ({ ref, at, base }: FilledSpace): string =>
  `copy (${stateAt({ space: ref, at, after: 0, base })}) to stdout (format binary)`

/** Nothing is held back: the driver pauses its connection for a stream that is full, and may never ask for more. */
const discard = (stream: Readable): Promise<void> =>
  new Promise((resolve, reject) => {
    stream.push = (chunk) => {
      if (chunk === null) resolve()
      return true
    }
    stream.on('end', resolve) // of a short one, which came before this
    stream.on('error', reject)
    stream.resume()
    stream._read(0) // paused by what came before this
  })
