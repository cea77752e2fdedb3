import { accessSync, constants, statfsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'
import { BaseSequencer, type TestSpecification } from 'vitest/node'

const folders = ['apps', 'packages', 'scripts']
const ofKind = (suffix: string) => folders.map((folder) => `${folder}/**/*${suffix}.test.ts`)
const needsServices = [...ofKind('.pg'), ...ofKind('.e2e')]
const simulated = ['packages/sim/**/*.test.ts']

/** Long test files, the longest first, so that none runs alone at the end. The last two only compute. */
const LONG = [
  'apps/torture/src/torture.e2e',
  'apps/loadtest/src/load-test-scenarios.e2e',
  'apps/cli/src/test/mcp.e2e',
  'apps/loadtest/src/load-test.e2e',
  'scripts/packages/cli.e2e',
  'apps/drills/src/failover.e2e',
  'apps/cli/src/test/up.e2e',
  'apps/cli/src/test/group.e2e',
  'apps/broker/src/test/hung-http.e2e',
  'apps/cli/src/test/received-files.e2e',
  'apps/bench/src/figures/bench.e2e',
  'scripts/binary.e2e',
  'apps/torture/src/mutations/planted.e2e',
  'apps/docs/src/site.e2e',
  'scripts/packages/sdk.e2e',
  'scripts/upgrade/upgrade.e2e',
  'scripts/release/release.e2e',
  'packages/sim/src/mutants/mutants.test',
  'packages/sim/src/sim.test',
]

/** The free shared memory required to run in memory. A run uses at most 3 GiB. */
const MEMORY_BYTES_MIN = 8 * 2 ** 30

/**
 * Puts temporary folders, and so databases, into memory if there is enough. A new database then costs 30 ms instead of
 * 140, and no commit waits for a disk. TMPDIR overrides this.
 */
function useMemory(): void {
  if (process.env.TMPDIR) return
  const memory = '/dev/shm'
  try {
    accessSync(memory, constants.W_OK)
    const { bavail, bsize } = statfsSync(memory)
    if (bavail * bsize >= MEMORY_BYTES_MIN) process.env.TMPDIR = memory
  } catch {
    // Not Linux, or no shared memory, so use the default folder.
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

/** Groups the tests by what they need (see CONTRIBUTING.md). A group's setup runs only with its tests. */
export default defineConfig({
  test: {
    pool: 'threads', // the forks pool breaks under Bun
    // Modules stay loaded between files; evaluating them again took a third of the processor time.
    isolate: false,
    // Tests mostly wait, so each core serves several workers.
    maxWorkers: Math.max(6, availableParallelism()),
    sequence: { sequencer: LongestFirst },
    // Only for tests that hang: one of 10 s has taken a minute on two busy cores.
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
