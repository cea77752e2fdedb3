import { availableParallelism } from 'node:os'
import { defineConfig } from 'vitest/config'

const needsPostgres = ['**/*.pg.test.ts', '**/*.e2e.test.ts']
const folders = ['apps', 'packages', 'scripts']

/** Two projects, since a project's setup only runs when a test of it does: pure tests start no Postgres. */
export default defineConfig({
  test: {
    pool: 'threads', // the forks pool breaks under Bun
    // Most of a run is spent waiting for processes and timers, so two cores serve more workers than one each.
    maxWorkers: Math.max(4, availableParallelism()),
    // They only end what hangs: a test of 10 s has taken a minute on two cores that others used, too.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    expect: { poll: { timeout: 60_000 } },
    projects: [
      {
        extends: true,
        test: {
          name: 'pure',
          include: folders.map((folder) => `${folder}/**/*.test.ts`),
          exclude: ['**/node_modules/**', ...needsPostgres],
        },
      },
      {
        extends: true,
        test: {
          name: 'postgres',
          include: folders.flatMap((folder) => needsPostgres.map((pattern) => `${folder}/${pattern}`)),
          exclude: ['**/node_modules/**'],
          globalSetup: './packages/db/src/testing-server.ts',
        },
      },
    ],
  },
})
