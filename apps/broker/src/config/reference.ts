/** The reference page of the configuration and what `--help` prints, both made from its table. */
import { settings } from './config.ts'

export function configReference(): string {
  const rows = Object.entries(settings).map(([name, row]) => {
    const fallback = row.fallback === null ? 'must be set' : row.fallback === '' ? '' : `\`${row.fallback}\``
    return `| \`${name}\` | ${row.unit} | ${fallback} | ${row.meaning} |`
  })
  return `${[...HEAD, ...rows].join('\n')}\n`
}

/** For a terminal: a line for each setting, and the default after what it means. */
export function configHelp(): string {
  const width = Math.max(...Object.keys(settings).map((name) => name.length))
  const rows = Object.entries(settings).map(([name, { fallback, unit, meaning }]) => {
    const unset = fallback === null ? 'must be set' : fallback && `default ${fallback}`
    const remark = [unit, unset].filter(Boolean).join(', ')
    return `  ${name.padEnd(width)}  ${meaning.replaceAll('`', '')} (${remark})`
  })
  return [...HELP_HEAD, ...rows, ...HELP_FOOT].join('\n')
}

const HELP_HEAD = [
  'Usage: bun apps/broker/src/main.ts [--print-config | --help]',
  '',
  'The broker is configured by its environment:',
  '',
]
const HELP_FOOT = [
  '',
  'Each variable but a path may also be given as NAME_FILE, the path of a file that holds it.',
  '--print-config shows the values that hold, with secrets hidden.',
]

const HEAD = [
  '<!-- Made by `bun scripts/reference.ts` from apps/broker/src/config/config.ts; a test compares them. -->',
  '# Configuration',
  '',
  'The broker reads its configuration from the environment and from nowhere else. What is wrong is told all at once, one',
  'sentence each, and the broker does not start (exit code 2). `bun apps/broker/src/main.ts --print-config` shows the',
  'values that hold, with secrets hidden.',
  '',
  'Each variable but a path may also be given as `NAME_FILE`, the path of a file that holds it: `DATABASE_URL_FILE` suits',
  'a mounted secret. A variable that is empty counts as not given.',
  '',
  '| Variable | Unit | Default | Meaning |',
  '|---|---|---|---|',
]
