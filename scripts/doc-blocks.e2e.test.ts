/** Runs the documentation's blocks, page by page, against one broker. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { allPages, ROOT } from '@sealpost/docs/pages'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { blocksOf, expectedOf, isRun, programOf } from './doc-blocks/blocks.ts'
import { DocWorld } from './doc-blocks/world.ts'

// `packages/cli.e2e.test.ts` runs README.md, with packages from npm.
const pages = allPages().map(({ path }) => ({ path, blocks: blocksIn(path) }))
const START = 'docs/START.md'

function blocksIn(path: string) {
  return blocksOf(readFileSync(join(ROOT, path), 'utf8'))
}

let world: DocWorld
let blocksRun = 0
beforeAll(async () => {
  world = await DocWorld.make()
})
afterAll(() => world[Symbol.asyncDispose]())

const others = pages.filter(({ path, blocks }) => path !== START && blocks.some(isRun))
const programs = pages.filter(({ blocks }) => blocks.some(({ kind }) => kind === 'program'))

// The first page starts the broker of all others.
test('the five-minute start', async () => {
  blocksRun += await world.walk(pages.find(({ path }) => path === START)!.blocks)
  await world.keyFiles()
})

test.each(others)('the commands of $path', async ({ blocks }) => {
  blocksRun += await world.walk(blocks)
})

test.each(programs)('the program of $path', async ({ path, blocks }) => {
  const program = programOf(blocks)
  const { code, output } = await world.program(path.replaceAll('/', '-'), program)
  expect(code, output).toBe(0)
  const lines = output.split('\n')
  for (const expected of expectedOf(program)) {
    expect(lines, output).toContain(expected)
    lines.splice(0, lines.indexOf(expected) + 1)
  }
  blocksRun += blocks.filter(({ kind }) => kind === 'program').length
})

test('the programs pass the type check', async () => {
  writeFileSync(join(world.folder, 'README.ts'), programOf(blocksIn('README.md')))
  expect(await world.types()).toEqual({ code: 0, output: '' })
})

describe('the report of blocks', () => {
  test('lists each block that can run as run, or as excluded by its fence', () => {
    const kinds = pages.flatMap(({ blocks }) => blocks).map(({ kind }) => kind)
    const runnable = kinds.filter((kind) => kind === 'run' || kind === 'keeps-running' || kind === 'program')
    expect(blocksRun).toBe(runnable.length)
    expect(blocksRun).toBeGreaterThan(20)
  })
})
