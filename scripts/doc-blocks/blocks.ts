/**
 * Parses a page's fenced blocks. A test runs `sh` and `ts` blocks unless their fence says otherwise:
 *     ```sh                  run, and must succeed
 *     ```sh keeps-running    run in the background of the following blocks
 *     ```sh no-run           an example: its `sealpost` commands must exist
 *     ```ts                  part of the page's one program
 *     ```text output         the output of the previous block, with … for varying parts
 *
 */

export type BlockKind = 'run' | 'keeps-running' | 'no-run' | 'program' | 'output' | 'words'

export interface Block {
  readonly kind: BlockKind
  /** The fence's line, from 1. */
  readonly line: number
  readonly info: string
  readonly text: string
}

const KINDS: Readonly<Record<string, BlockKind>> = {
  '': 'words',
  sh: 'run',
  'sh keeps-running': 'keeps-running',
  'sh no-run': 'no-run',
  ts: 'program',
  'ts no-run': 'no-run',
  'text output': 'output',
  text: 'words',
  json: 'words',
  sql: 'words',
}

/** Returns whether the block is a shell script that a test runs. */
export const isRun = ({ kind }: Block): boolean => kind === 'run' || kind === 'keeps-running'

/** @throws Error for a block of unknown kind */
export function blocksOf(markdown: string): Block[] {
  const blocks: Block[] = []
  for (const match of markdown.matchAll(/^```(.*)\n([\s\S]*?)^```$/gm)) {
    const [, info = '', text = ''] = match
    const line = markdown.slice(0, match.index).split('\n').length
    const kind = Object.hasOwn(KINDS, info) ? KINDS[info] : undefined
    const isHidden = info === '' && /^(?:sealpost|bun) /m.test(text)
    if (kind === undefined || isHidden)
      throw new Error(`line ${line}: a block that says \`${info}\` is neither run nor left out`)
    blocks.push({ kind, line, info, text })
  }
  return blocks
}

/** Joins the `ts` blocks of a page into one program, imports first. */
export function programOf(blocks: readonly Block[]): string {
  const lines = blocks.filter(({ kind }) => kind === 'program').flatMap(({ text }) => text.split('\n'))
  const isImport = (line: string) => line.startsWith('import ')
  return [...lines.filter(isImport), ...lines.filter((line) => !isImport(line)), 'export {}', ''].join('\n')
}

/** Returns the expected output, from comments after `console.log`. */
export const expectedOf = (program: string): string[] =>
  [...program.matchAll(/^ *(?:\w+\.on\w+.*|.*)console\.log\(.*\)\s*\/\/ (.+)$/gm)].map(([, expected]) => expected!)

/** Returns whether the output matches an `output` block. */
export function isAs(output: string, expected: string): boolean {
  const pattern = expected.trim().split('…').map(RegExp.escape).join('.*')
  return new RegExp(`^${pattern}$`).test(output.trim())
}

/** Returns the arguments of each `sealpost` command in a shell script. */
export function commandsOf(text: string): string[][] {
  const whole = text.replaceAll('\\\n', ' ')
  return [
    ...whole.matchAll(/(?:^|[|;]\s*|\w=\S+ |exec \S+ |"\$\()sealpost((?:"[^"\n]*"|'[^'\n]*'|[^|;#<>&)\n"'])*)/gm),
  ].map(([, words]) =>
    [...words!.matchAll(/(?:"[^"]*"|'[^']*'|[^\s"'])+/g)].map(([word]) => word.replaceAll(/["']/g, '')),
  )
}
