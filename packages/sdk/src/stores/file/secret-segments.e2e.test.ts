/** Kills a process at each file system operation of a store, and looks for erased versions in the files that it leaves. */
import { mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { stolenFrom, versionsIn } from '../../test/secret-records.ts'
import { openFileStore } from './file-store.ts'

const PROGRAM = join(import.meta.dirname, '../../test/store-process.ts')

async function run(folder: string, killAt: number): Promise<string[]> {
  await mkdir(folder)
  const child = Bun.spawn([process.execPath, PROGRAM, join(folder, 'peer.store'), String(killAt)])
  const lines = (await new Response(child.stdout).text()).split('\n').filter((line) => line !== '')
  await child.exited
  return lines
}

async function filesIn(folder: string): Promise<Uint8Array[]> {
  return Promise.all((await readdir(folder)).map(async (name) => new Uint8Array(await readFile(join(folder, name)))))
}

test('a process that is killed at any file system operation loses no batch and leaves no former version', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-test-'))
  try {
    const whole = await run(join(folder, 'whole'), 0)
    const operations = Number.parseInt(whole.at(-1)!, 10)
    expect(operations).toBeGreaterThan(30)
    let leftBehind = 0
    for (let killAt = 1; killAt <= operations; killAt++) {
      const place = join(folder, `killed-${killAt}`)
      const confirmed = (await run(place, killAt)).length
      if (stolenFrom(await filesIn(place)).length > 1) leftBehind += 1
      const store = await openFileStore(join(place, 'peer.store'))
      const newest = (await versionsIn(store)).filter((version) => version < 100)
      await store.close()
      const possible = [confirmed, confirmed + 1].map((version) => (version === 0 ? [] : [version]))
      expect(possible, `killed at operation ${killAt}`).toContainEqual(newest)
      expect(stolenFrom(await filesIn(place)), `killed at operation ${killAt}`).toEqual(newest)
    }
    expect(leftBehind).toBeGreaterThan(5)
  } finally {
    await rm(folder, { recursive: true })
  }
})
