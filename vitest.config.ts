import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    pool: 'threads', // the forks pool breaks under Bun
    include: ['apps/**/*.test.ts', 'packages/**/*.test.ts', 'scripts/**/*.test.ts'],
    testTimeout: 30_000,
  },
})
