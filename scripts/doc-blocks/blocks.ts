/**
 * The fenced blocks of a page. What is `sh` or `ts` is run by a test unless its first line says otherwise:
 *
 *     ```sh                  run, and must end well
 *     ```sh keeps-running    run beside those that follow
 *     ```sh no-run           an example: its `sealpost` commands must be ones that exist
 *     ```ts                  part of the one program that the blocks of a page make
 *     ```text output         what the block before it prints, with … for what differs from time to time
 */

export type BlockKind = 'run' | 'keeps-running' | 'no-run' | 'program' | 'output' | 'words'

export interface Block {
  readonly kind: BlockKind
  /** Of the fence, from 1. */
  readonly line: number
  /** What stands behind the fence. */
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

/** @throws Error for a block that says in no known way what it is */
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

/** The program that the `ts` blocks of a page make together: what they import comes first. */
export function programOf(blocks: readonly Block[]): string {
  const lines = blocks.filter(({ kind }) => kind === 'program').flatMap(({ text }) => text.split('\n'))
  const isImport = (line: string) => line.startsWith('import ')
  return [...lines.filter(isImport), ...lines.filter((line) => !isImport(line)), 'export {}', ''].join('\n')
}

/** What the program says it prints: the comments behind its calls of `console.log`, in their order. */
export const expectedOf = (program: string): string[] =>
  [...program.matchAll(/^ *(?:\w+\.on\w+.*|.*)console\.log\(.*\)\s*\/\/ (.+)$/gm)].map(([, expected]) => expected!)

/** Whether the output is that of an `output` block. */
export function isAs(output: string, expected: string): boolean {
  const pattern = expected.trim().split('…').map(RegExp.escape).join('.*')
  return new RegExp(`^${pattern}$`).test(output.trim())
}

/** The words of each `sealpost` command in a text for a shell, without the shell's own. */
export function commandsOf(text: string): string[][] {
  const whole = text.replaceAll('\\\n', ' ')
  return [
    ...whole.matchAll(/(?:^|[|;]\s*|\w=\S+ |exec \S+ |"\$\()sealpost((?:"[^"\n]*"|'[^'\n]*'|[^|;#<>&)\n"'])*)/gm),
  ].map(([, words]) =>
    [...words!.matchAll(/(?:"[^"]*"|'[^']*'|[^\s"'])+/g)].map(([word]) => word.replaceAll(/["']/g, '')),
  )
}
