/** What a browser loads to be a peer: its size has a bar, and nothing of a server is in it. */
import { join } from 'node:path'
import { expect, test } from 'vitest'

/** Without libsodium, which an application may share with other uses. */
const GZIPPED_BYTES_MAX = 40 * 1024
const ENTRIES = ['index.ts', 'stores/web/indexeddb-store.ts']

test('the SDK for browsers, with its IndexedDB store, is at most 40 KB', async () => {
  const { outputs } = await Bun.build({
    entrypoints: ENTRIES.map((path) => join(import.meta.dirname, path)),
    target: 'browser',
    minify: true,
    splitting: true,
    external: ['libsodium-wrappers'],
  })
  const chunks = await Promise.all(outputs.map(async (output) => new Uint8Array(await output.arrayBuffer())))
  const gzippedBytes = chunks.reduce((sum, chunk) => sum + Bun.gzipSync(chunk).length, 0)
  process.stdout.write(`the SDK for browsers: ${(gzippedBytes / 1024).toFixed(1)} KB gzipped without libsodium\n`)
  expect(gzippedBytes).toBeGreaterThan(10 * 1024) // an empty bundle would pass, too
  expect(gzippedBytes).toBeLessThanOrEqual(GZIPPED_BYTES_MAX)
})
