import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Database } from '@sealpost/pg'
import { expect, test } from 'vitest'
import { temporaryFolder } from '../test/world.ts'
import { Cells } from './cells.ts'

const NO_DATABASE = {} as Database

test("a broker knows its own cell's addresses, and its cell must be in the file of cells", async () => {
  const folder = await temporaryFolder()
  try {
    const path = join(folder, 'cells.json')
    await writeFile(path, JSON.stringify({ cells: [{ name: 'north', urls: ['wss://a.example', 'wss://b.example'] }] }))
    const read = (own: string) => Cells.read(NO_DATABASE, { path, own })
    expect((await read('north')).ownUrls).toEqual(['wss://a.example', 'wss://b.example'])
    expect((await read('')).ownUrls).toEqual([])
    await expect(read('west')).rejects.toMatchObject({ code: 'cell_unknown' })
    await expect(Cells.read(NO_DATABASE, { path: '', own: 'north' })).rejects.toMatchObject({ code: 'cell_unknown' })
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})
