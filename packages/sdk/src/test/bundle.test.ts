/** Tests that the browser bundle of the SDK is small and contains no server code. */
import { join } from 'node:path'
import { expect, test } from 'vitest'

/** The maximum compressed size, without libsodium, which an application may share, and without the optional store. */
const GZIPPED_BYTES_MAX = 40_000

async function gzippedBytes(...entries: string[]): Promise<number> {
  const application = join(import.meta.dirname, 'application-of-a-test.ts')
  const { outputs } = await Bun.build({
    entrypoints: [application],
    files: { [application]: entries.map((path) => `export * from '${join(import.meta.dirname, path)}'`).join('\n') },
    target: 'browser',
    minify: true,
    external: ['libsodium-wrappers'],
  })
  const bytes = new Uint8Array(await outputs[0]!.arrayBuffer())
  expect(new TextDecoder().decode(bytes)).not.toContain('getBuiltinModule') // of the native cryptography
  return Bun.gzipSync(bytes, { level: 9 }).length
}

test('the SDK for browsers is at most 40 KB', async () => {
  const sdk = await gzippedBytes('../index.ts')
  const withStore = await gzippedBytes('../index.ts', '../stores/web/indexeddb-store.ts')
  const kb = (bytes: number) => (bytes / 1000).toFixed(1)
  process.stdout.write(
    `the SDK for browsers: ${kb(sdk)} KB gzipped without libsodium, ${kb(withStore)} with its store\n`,
  )
  expect(sdk).toBeGreaterThan(10 * 1024) // an empty bundle would be smaller
  expect(sdk).toBeLessThanOrEqual(GZIPPED_BYTES_MAX)
})
