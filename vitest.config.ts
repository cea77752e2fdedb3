import { accessSync, constants, statfsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

const folders = ['apps', 'packages', 'scripts']
const ofKind = (suffix: string) => folders.map((folder) => `${folder}/**/*${suffix}.test.ts`)
const needsServices = [...ofKind('.pg'), ...ofKind('.e2e')]
const simulated = ['packages/sim/**/*.test.ts']

/** Test files that take more than half a minute, longest first: if one began last, it would run alone at the end. */
const LONG = [
  'apps/torture/src/torture.e2e',
  'apps/loadtest/src/load-test.e2e',
  'apps/loadtest/src/load-test-scenarios.e2e',
  'apps/cli/src/test/up.e2e',
  'apps/cli/src/test/mcp.e2e',
  'apps/drills/src/failover.e2e',
  'scripts/packages/cli.e2e',
  'apps/torture/src/mutations/planted.e2e',
  'apps/broker/src/test/demo.e2e',
  'apps/broker/src/test/hung-http.e2e',
  'apps/broker/src/shards/cells.e2e',
  'packages/sim/src/sim.test',
]

/** A test machine has 24 GiB of shared memory, and a run takes 3 at most. */
const MEMORY_BYTES_MIN = 8 * 2 ** 30

/**
 * Puts every temporary folder, and so the databases too, into memory if there is enough. A new database then costs 30
 * ms of processor time rather than 140, and no commit waits for a disk; the servers still sync. Set TMPDIR to choose a
 * disk.
 */
function useMemory(): void {
  if (process.env.TMPDIR) return
  const memory = '/dev/shm'
  try {
    accessSync(memory, constants.W_OK)
    const { bavail, bsize } = statfsSync(memory)
    if (bavail * bsize >= MEMORY_BYTES_MIN) process.env.TMPDIR = memory
  } catch {
    // Not Linux, or no shared memory: use the default folder.
  }
}
useMemory()

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files)
    const placeOf = ({ moduleId }: TestSpecification) => {
      const place = LONG.findIndex((path) => moduleId.includes(path))
      return place < 0 ? LONG.length : place
    }
    return sorted.toSorted((a, b) => placeOf(a) - placeOf(b))
  }
}

/**
 * Groups the tests by what they need; see the table in CONTRIBUTING.md. A setup runs only when a test of its group
 * does.
 */
export default defineConfig({
  test: {
    pool: 'threads', // the forks pool breaks under Bun
    // A worker keeps its modules from file to file: otherwise, a third of the processor time went into evaluating them
    // again.
    isolate: false,
    // Most of a run is spent waiting for processes and timers, so each core can serve several workers.
    maxWorkers: Math.max(6, availableParallelism()),
    sequence: { sequencer: LongestFirst },
    // The timeouts only end tests that hang: a test of 10 s has taken a minute on two cores that other work used too.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    expect: { poll: { timeout: 60_000 } },
    projects: [
      {
        extends: true,
        test: {
          name: 'services',
          include: needsServices,
          exclude: ['**/node_modules/**'],
          globalSetup: ['./packages/schema/src/test/server.ts', './scripts/test/binary.ts'],
        },
      },
      {
        extends: true,
        test: { name: 'simulator', include: simulated, exclude: ['**/node_modules/**'] },
      },
      {
        extends: true,
        test: {
          name: 'pure',
          include: ofKind(''),
          exclude: ['**/node_modules/**', ...needsServices, ...simulated],
        },
      },
    ],
  },
})
