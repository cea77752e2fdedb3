/** Tests that hostile inputs leak no memory: the broker hardly grows while the whole table runs twenty times. */
import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { Arena, type HostileRow } from './hostile.ts'
import { hostileInputs } from './hostile-inputs.ts'
import { until } from './process.ts'

const ROUNDS = 20
/** Rows mostly wait for commits, so they run concurrently. */
const AT_A_TIME = 16
/** About as many members as one round needs. */
const ENROLLED_AHEAD = 160
const GROWTH_MAX_MB = 64
/** Memory grows permanently during the first rounds: through compiled code, full caches, and the rows' members. */
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
