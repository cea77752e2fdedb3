/** What a browser loads to be a peer: its size has a bar, and nothing of a server is in it. */
import { join } from 'node:path'
import { expect, test } from 'vitest'

/** Without libsodium, which an application may share with other uses. */
const GZIPPED_BYTES_MAX = 40 * 1024
/** As an application is built: all of the SDK, and where it keeps mail, in one file. */
const EVERYTHING = ['index.ts', 'stores/web/indexeddb-store.ts'].map((path) => join(import.meta.dirname, path))
const APPLICATION = join(import.meta.dirname, 'application-of-a-test.ts')

test('the SDK for browsers, with its IndexedDB store, is at most 40 KB', async () => {
  const { outputs } = await Bun.build({
    entrypoints: [APPLICATION],
    files: { [APPLICATION]: EVERYTHING.map((path) => `export * from '${path}'`).join('\n') },
    target: 'browser',
    minify: true,
    external: ['libsodium-wrappers'],
  })
  const gzippedBytes = Bun.gzipSync(new Uint8Array(await outputs[0]!.arrayBuffer()), { level: 9 }).length
  process.stdout.write(`the SDK for browsers: ${(gzippedBytes / 1024).toFixed(1)} KB gzipped without libsodium\n`)
  expect(gzippedBytes).toBeGreaterThan(10 * 1024) // an empty bundle would pass, too
  expect(gzippedBytes).toBeLessThanOrEqual(GZIPPED_BYTES_MAX)
})
