/** Writes the SDK's API reference: each entry's declarations and comments. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildSdk } from './sdk.ts'
import { blocksIn } from './types.ts'

const INTRODUCTION = `# SDK reference

Every declaration of the package \`@sealpost/sdk\`. The [SDK guide](/sdk) explains how to use them.
`

export function sdkReference(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sealpost-reference-'))
  try {
    buildSdk(folder)
    return referenceOf(join(folder, 'dist/types'))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** `types`: the folder of declarations. */
export function referenceOf(types: string): string {
  const blocks = new Map(blocksIn(readFileSync(join(types, 'all.d.ts'), 'utf8')).map(({ name, text }) => [name, text]))
  const seen = new Set<string>()
  const sectionOf = (file: string) => {
    const exported = [...readFileSync(join(types, file), 'utf8').matchAll(/(?:type )?(\w+)(?=,| \})/g)]
    const names = exported.flatMap(([, name]) => [name!, BASE.exec(blocks.get(name!) ?? '')?.[1] ?? name!])
    const own = [...new Set(names)].filter((name) => blocks.has(name) && !seen.has(name))
    for (const name of own) seen.add(name)
    const parts = own.map((name) => `### ${name}\n\n\`\`\`ts\n${blocks.get(name)!.trim()}\n\`\`\``)
    return [`## ${specifierOf(file)}`, ...parts].join('\n\n')
  }
  const files = readdirSync(types).filter((file) => file !== 'all.d.ts')
  const first = (file: string) => Number(file !== 'index.d.ts')
  const sections = files.sort((a, b) => first(a) - first(b) || (a < b ? -1 : 1)).map(sectionOf)
  return `${[INTRODUCTION.trim(), ...sections].join('\n\n')}\n`
}

/** Matches the superclass, which an entry may not export. */
const BASE = /^export declare (?:abstract )?class \w+ extends (\w+)/m

/** Returns an entry's specifier from its file of declarations. */
export const specifierOf = (file: string): string =>
  file === 'index.d.ts' ? '@sealpost/sdk' : `@sealpost/sdk/${file.replace(/\.d\.ts$/, '')}`
