/** Tests the parser of blocks, and checks commands and settings that pages mention. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { sealpostFor } from '@sealpost/cli/program'
import { allPages, ROOT } from '@sealpost/docs/pages'
import type { CommanderError } from 'commander'
import { expect, test } from 'vitest'
import { blocksOf, commandsOf, expectedOf, isAs, programOf } from './doc-blocks/blocks.ts'

const fence = '```'

test('a block runs unless its fence opts out in a known way', () => {
  const page = `${fence}sh\nls\n${fence}\n\n${fence}sh no-run\nrm\n${fence}\n${fence}json\n{}\n${fence}\n`
  expect(blocksOf(page).map(({ kind, line }) => [kind, line])).toEqual([
    ['run', 1],
    ['no-run', 5],
    ['words', 8],
  ])
  expect(() => blocksOf(`${fence}bash\nls\n${fence}\n`)).toThrow('line 1')
  expect(() => blocksOf(`a\n${fence}\nbun x\n${fence}\n`)).toThrow('line 2')
})

test('the blocks of a page form one program with an expected output', () => {
  const page = `${fence}ts\nimport { a } from 'a'\na()\n${fence}\n\n${fence}ts\nimport { b } from 'b'\nconsole.log(b) // 2\n${fence}\n`
  const program = programOf(blocksOf(page))
  expect(program.split('\n').slice(0, 3)).toEqual(["import { a } from 'a'", "import { b } from 'b'", 'a()'])
  expect(expectedOf(program)).toEqual(['2'])
})

test('output is compared completely, except for varying parts', () => {
  expect(isAs('port 7450\nready\n', 'port …\nready')).toBe(true)
  expect(isAs('port 7450\nnot ready\n', 'port …\nready')).toBe(false)
  expect(isAs('port (1)\n', 'port 1')).toBe(false)
})

test('commands are found within other shell code', () => {
  const text = 'git diff | sealpost request reviewer # asks\nA=b sealpost send "x y" \'it\' > f\nsealpost a \\\n  --b\n'
  expect(commandsOf(text)).toEqual([
    ['request', 'reviewer'],
    ['send', 'x y', 'it'],
    ['a', '--b'],
  ])
})

const pages = ['README.md', ...allPages().map(({ path }) => path)].map((path) => ({
  path,
  text: readFileSync(join(ROOT, path), 'utf8'),
}))
const examples = pages.flatMap(({ path, text }) =>
  blocksOf(text)
    .filter(({ kind }) => kind === 'no-run')
    .flatMap((block) => commandsOf(block.text).map((words) => ({ place: `${path}:${block.line}`, words }))),
)
/** Commands in prose, possibly without arguments. */
const mentions = pages.flatMap(({ path, text }) =>
  [...text.replace(/^```[\s\S]*?^```/gm, '').matchAll(/`(sealpost [^`]+)`/g)].map(([, command]) => ({
    place: path,
    words: commandsOf(command!)[0]!,
  })),
)
const NO_FAULT = ['commander.helpDisplayed', 'commander.help', 'commander.version']
const INCOMPLETE = ['commander.missingArgument', 'commander.missingMandatoryOptionValue']

/** Replaces placeholders with a mesh id. */
const withIds = (words: readonly string[]) =>
  words.map((word) => (/^(?:MESH|[0-9a-f]+…)$/.test(word) ? '0f'.repeat(16) : word))

/** Returns a command line's error, if it has one. */
async function faultOf(words: readonly string[], allowed: readonly string[]): Promise<string | undefined> {
  const silent = { write: () => true } as unknown as NodeJS.WriteStream
  const program = await sealpostFor(words, () => async () => undefined, { out: silent, err: silent })
  const error: CommanderError | null = await program.parseAsync(withIds(words), { from: 'user' }).then(
    () => null,
    (cause) => cause,
  )
  return error && !allowed.includes(error.code) ? error.message : undefined
}

test('each command that a page names, or shows and does not run, exists with its options', async () => {
  const wrong: string[] = []
  const all = [
    ...examples.map((each) => ({ ...each, allowed: NO_FAULT })),
    ...mentions.map((each) => ({ ...each, allowed: [...NO_FAULT, ...INCOMPLETE] })),
  ]
  for (const { place, words, allowed } of all) {
    const fault = await faultOf(words, allowed)
    if (fault !== undefined) wrong.push(`${place}: ${words.join(' ')}: ${fault}`)
  }
  expect(wrong).toEqual([])
  expect(examples.length).toBeGreaterThan(80)
  expect(mentions.length).toBeGreaterThan(40)
})

test('each setting that a page names exists', () => {
  const known = pages
    .filter(({ path }) => path.startsWith('docs/reference/'))
    .flatMap(({ text }) => [...text.matchAll(/`([A-Z][A-Z0-9_]+)`/g)].map(([, name]) => name!))
  const named = pages
    .filter(({ path }) => !/CHANGELOG|ARCHITECTURE|\/adr\//.test(path)) // these pages mention constants in the code
    .flatMap(({ path, text }) =>
      [...text.matchAll(/`([A-Z][A-Z0-9]*_[A-Z0-9_]+)[=`]/g)].map(([, name]) => ({ path, name: name! })),
    )
  // Returns whether the tables must contain a variable: not those of the platform, of OpenTelemetry and of `listen
  // --exec`.
  const isOurs = ({ name }: { name: string }) => !/^(?:OTEL|SEALPOST|BUN|MIMALLOC)_/.test(name)
  expect(named.filter(isOurs).filter(({ name }) => !known.includes(name))).toEqual([])
  expect(named.length).toBeGreaterThan(80)
})
