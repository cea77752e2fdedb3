/**
 * Measures the rate of batches of a file store: with secret records, with the same records as public ones, and with a
 * journal that is rewritten once per second instead. A batch stores 32 entries of an outbox, deletes 32, and replaces four
 * records as large as those of ratchets. The variants take turns after each batch, so that other load affects them alike.
 * Run: `bun packages/sdk/src/stores/file/secret-segments.bench.ts [SECONDS]`; TMPDIR chooses the disk.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { put, unsealed } from '../../test/secret-records.ts'
import { SECRET_PREFIX, type StoreChange } from '../store.ts'
import { nodeFiles } from './files.ts'
import { StoreJournal } from './journal.ts'

const RUN_MS = Number(process.argv[2] ?? 5) * 1_000
const ERASE_EVERY_MS = 1_000
const OUT = 'out '
const OUTBOX_PER_BATCH = 32
const IN_FLIGHT = 10 * OUTBOX_PER_BATCH
const OUTBOX_BYTES = 500
const RATCHETS_PER_BATCH = 4
const RATCHET_BYTES = 1_500

interface World {
  /** Entries of the outbox: sealed ones, which stay in the store, or unsealed ones, which the batches seal in order. */
  readonly backlog: number
  readonly isUnsealed?: boolean
  readonly ratchets: number
}

interface Variant {
  readonly name: string
  readonly prefix: string
  /** Runs once per second. */
  erase(journal: StoreJournal): Promise<void>
}

const VARIANTS: readonly Variant[] = [
  { name: 'public', prefix: '', erase: async () => undefined },
  { name: 'secret', prefix: SECRET_PREFIX, erase: (journal) => journal.eraseObsoleteSecrets() },
  // biome-ignore lint/complexity/useLiteralKeys: the method is private
  { name: 'rewritten', prefix: '', erase: async (journal) => journal['writeAnew']() },
]

for (const world of [
  { backlog: 0, ratchets: 16 },
  { backlog: 0, ratchets: 1_000 },
  { backlog: 100_000, ratchets: 16 },
  { backlog: 100_000, ratchets: 10_000 },
  { backlog: 100_000, ratchets: 16, isUnsealed: true },
])
  await measure(world)

async function measure(world: World): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-bench-'))
  try {
    const runs: Run[] = []
    for (const variant of VARIANTS) runs.push(await begin(variant, world, join(folder, variant.name)))
    while (runs.some(({ spentMs }) => spentMs < RUN_MS)) for (const run of runs) await batch(run, world)
    const [first] = runs
    const rateOf = ({ batches, spentMs }: Run) => (batches / spentMs) * 1_000
    const rates = runs.map(
      (run) => `${run.variant.name} ${rateOf(run).toFixed(0)} (${(rateOf(run) / rateOf(first!)).toFixed(2)})`,
    )
    console.log(
      `${world.backlog} ${world.isUnsealed ? 'unsealed' : 'sealed'} entries, ${world.ratchets} ratchets: ${rates.join(', ')} batches/s`,
    )
    for (const { journal } of runs) await journal.close()
  } finally {
    await rm(folder, { recursive: true })
  }
}

interface Run {
  readonly variant: Variant
  readonly journal: StoreJournal
  batches: number
  spentMs: number
  erasedAtMs: number
}

async function begin(variant: Variant, { backlog, ratchets, isUnsealed }: World, path: string): Promise<Run> {
  const journal = await StoreJournal.open(nodeFiles, path)
  await journal.write(Array.from({ length: ratchets }, (_, i) => put(`${variant.prefix}${i}`, 1, RATCHET_BYTES)))
  const entry = isUnsealed ? unsealed : put
  for (let from = 0; from < backlog; from += 1_000)
    await journal.write(Array.from({ length: 1_000 }, (_, i) => entry(`${OUT}${from + i}`, 1, OUTBOX_BYTES)))
  return { variant, journal, batches: 0, spentMs: 0, erasedAtMs: 0 }
}

async function batch(run: Run, world: World): Promise<void> {
  const changes = batchOf(run.batches, world, run.variant.prefix)
  const startMs = performance.now()
  await run.journal.write(changes)
  run.batches += 1
  if (run.spentMs - run.erasedAtMs >= ERASE_EVERY_MS) {
    await run.variant.erase(run.journal)
    run.erasedAtMs = run.spentMs
  }
  run.spentMs += performance.now() - startMs
}

function batchOf(no: number, { backlog, ratchets, isUnsealed }: World, prefix: string): StoreChange[] {
  const changes: StoreChange[] = []
  const first = (isUnsealed ? 0 : backlog) + no * OUTBOX_PER_BATCH
  for (let i = first; i < first + OUTBOX_PER_BATCH; i++) {
    changes.push(put(`${OUT}${i}`, no & 0xff, OUTBOX_BYTES))
    if (i - IN_FLIGHT >= first - no * OUTBOX_PER_BATCH) changes.push({ key: `${OUT}${i - IN_FLIGHT}`, record: null })
  }
  for (let i = 0; i < RATCHETS_PER_BATCH; i++)
    changes.push(put(`${prefix}${(no * RATCHETS_PER_BATCH + i) % ratchets}`, no & 0xff, RATCHET_BYTES))
  return changes
}
