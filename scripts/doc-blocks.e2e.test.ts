/** Runs the blocks in the documentation, page by page, against one broker. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { allPages, ROOT } from '@sealpost/docs/pages'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Block, blocksOf, expectedOf, isAs, programOf } from './doc-blocks/blocks.ts'
import { DocWorld } from './doc-blocks/world.ts'

const paths = ['README.md', ...allPages().map(({ path }) => path)]
const pages = paths.map((path) => ({ path, blocks: blocksOf(readFileSync(join(ROOT, path), 'utf8')) }))
const isRun = ({ kind }: Block) => kind === 'run' || kind === 'keeps-running'
const START = 'docs/START.md'

let world: DocWorld
let blocksRun = 0
beforeAll(async () => {
  world = await DocWorld.make()
})
afterAll(() => world[Symbol.asyncDispose]())

/** Runs shell blocks in order, and compares the output of each with the block that follows. */
async function walk(blocks: readonly Block[]): Promise<void> {
  for (const [i, block] of blocks.entries()) {
    if (!isRun(block)) continue
    const keeps = block.kind === 'keeps-running'
    const { code, output } = await (keeps ? world.keep(block.text) : world.run(block.text))
    expect(code, `line ${block.line}:\n${output}`).toBe(keeps ? null : 0)
    const next = blocks[i + 1]
    if (next?.kind === 'output')
      expect(isAs(output, next.text), `line ${next.line}, but it said:\n${output}`).toBe(true)
    blocksRun += 1
  }
}

const others = pages.filter(({ path, blocks }) => path !== START && blocks.some(isRun))
const programs = pages.filter(({ blocks }) => blocks.some(({ kind }) => kind === 'program'))

// The first page starts the broker that all other pages use.
test('the five-minute start', async () => {
  await walk(pages.find(({ path }) => path === START)!.blocks)
  await world.keyFiles()
})

test.each(others)('the commands of $path', ({ blocks }) => walk(blocks))

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
