/** Tests that hostile inputs leak no memory over twenty rounds. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { Arena, type HostileRow } from './hostile.ts'
import { hostileInputs } from './hostile-inputs.ts'
import { until } from './process.ts'

const ROUNDS = 20
/** The number of concurrent rows, which mostly wait for commits. */
const AT_A_TIME = 16
/** The number of members enrolled in advance, about a round's worth. */
const ENROLLED_AHEAD = 160
const GROWTH_MAX_MB = 64
/** The number of rounds that fill caches and compile code, before memory is measured. */
const WARM_UP_ROUNDS = 2

test.skipIf(process.platform !== 'linux')(
  `running the table ${ROUNDS} times makes the broker grow by ${GROWTH_MAX_MB} MB at most`,
  { timeout: 600_000 },
  async () => {
    await using arena = await Arena.open()
    const { pid } = arena.world.broker
    for (let i = 0; i < WARM_UP_ROUNDS; i++) await runAll(arena)
    const before = residentMb(pid)
    for (let i = 0; i < ROUNDS; i++) await runAll(arena)
    await arena.checkUnharmed()
    const growth = () => residentMb(pid) - before
    await until(`it grew by less than ${GROWTH_MAX_MB} MB, not ${growth()}`, () => growth() <= GROWTH_MAX_MB, 60_000)
  },
)

async function runAll(arena: Arena): Promise<void> {
  await arena.world.enrolAhead(ENROLLED_AHEAD)
  const left = [...hostileInputs]
  const worker = async () => {
    for (let row = left.shift(); row; row = left.shift()) await tryRow(arena, row)
  }
  await Promise.all(Array.from({ length: AT_A_TIME }, worker))
}

async function tryRow(arena: Arena, row: HostileRow): Promise<void> {
  expect(await row.act(arena), `${row.id}: ${row.input}`).toBe(row.answer)
}

function residentMb(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024
}
