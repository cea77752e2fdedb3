/**
 * Writes the package's declarations into one file, so that a class has one declaration, and a short file per entry. The
 * interface report is the same without comments.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Extractor, ExtractorConfig, type ExtractorLogLevel } from '@microsoft/api-extractor'

export interface Declarations {
  /** The folder of the compiler's declarations. */
  readonly folder: string
  /** Each entry with the file that declares it. */
  readonly entries: readonly (readonly [entry: string, file: string])[]
  /** The name of the package. */
  readonly manifest: string
}

export interface Interface {
  /** The text of the file with all declarations. */
  readonly declarations: string
  /** The text of each entry's file, next to `all.d.ts`. */
  readonly entries: ReadonlyMap<string, string>
  /** The public interface, for reviewers. */
  readonly report: string
  /** The path of the documentation model. */
  readonly model: string
}

/** @throws an Error with API Extractor's messages */
export function rollUp({ folder, entries, manifest }: Declarations): Interface {
  const all = join(folder, 'all.d.ts')
  const modules = entries.map(([, file]) => `export * from './${file.replace(/\.d\.ts$/, '.js')}'`)
  writeFileSync(all, `${modules.join('\n')}\n`)
  const out = join(folder, 'extracted')
  mkdirSync(out)
  extract({ folder, all, out, manifest })
  const declarations = reachable(readFileSync(join(out, 'all.d.ts'), 'utf8').replace(EXCLUDED, ''))
  const names = entries.map(([entry, file]) => [entry, namesOf(join(folder, file), declarations)] as const)
  const list = names.map(([entry, exported]) => `- \`@sealpost/sdk${entry.slice(1)}\`: ${exported.join(', ')}`)
  return {
    declarations,
    entries: new Map(names.map(([entry, exported]) => [entry, `export { ${exported.join(', ')} } from './all.js'\n`])),
    report: reportOf(list, declarations),
    model: join(out, 'sdk.api.json'),
  }
}

function extract({ folder, all, out, manifest }: { folder: string; all: string; out: string; manifest: string }): void {
  const silent = { logLevel: 'none' as ExtractorLogLevel }
  const config = ExtractorConfig.prepare({
    configObject: {
      projectFolder: folder,
      mainEntryPointFilePath: all,
      newlineKind: 'lf',
      compiler: { overrideTsconfig: { compilerOptions: COMPILER, files: [all] } },
      apiReport: { enabled: false },
      docModel: { enabled: true, apiJsonFilePath: join(out, 'sdk.api.json') },
      dtsRollup: { enabled: true, untrimmedFilePath: '', publicTrimmedFilePath: join(out, 'all.d.ts') },
      messages: {
        compilerMessageReporting: { default: { logLevel: 'error' as ExtractorLogLevel } },
        // Declarations without a tag are public.
        extractorMessageReporting: {
          default: { logLevel: 'error' as ExtractorLogLevel },
          'ae-missing-release-tag': silent,
          'ae-undocumented': silent,
          'ae-forgotten-export': silent,
          'ae-internal-missing-underscore': silent,
        },
        tsdocMessageReporting: { default: silent },
      },
    },
    configObjectFullPath: undefined,
    packageJsonFullPath: manifest,
  })
  const messages: string[] = []
  const { errorCount } = Extractor.invoke(config, {
    localBuild: true,
    messageCallback: (message) => {
      message.handled = true
      if (message.logLevel === 'error') messages.push(message.formatMessageWithLocation(folder))
    },
  })
  if (errorCount > 0) throw new Error(`API Extractor:\n${messages.join('\n')}`)
}

const COMPILER = {
  target: 'ES2022',
  module: 'ESNext',
  moduleResolution: 'bundler',
  lib: ['ESNext', 'DOM', 'DOM.Iterable', 'DOM.AsyncIterable'],
  types: [],
  strict: true,
  skipLibCheck: true,
}

/** Matches API Extractor's comment in place of an internal member. */
const EXCLUDED = /^ *\/\* Excluded from this release type: \w+ \*\/\n/gm

/** Matches the start of a declaration with its comment. */
const BLOCKS = /\n\n(?=\/\*\*|export |declare )/
const NAME = /^(?:export )?(?:declare )?(?:abstract )?(?:class|function\*?|const|interface|type|let) (\w+)/m

interface Block {
  readonly text: string
  /** Undefined for other text, such as the file's beginning. */
  readonly name: string | undefined
}

/** Splits a rollup into declarations with their comments. */
export function blocksIn(rollup: string): Block[] {
  return rollup.split(BLOCKS).map((text) => ({ text, name: NAME.exec(codeOf(text))?.[1] }))
}

/** Omits declarations to which only internal members refer. */
function reachable(rollup: string): string {
  const blocks = blocksIn(rollup).map((block) => ({ ...block, words: new Set(codeOf(block.text).match(WORD)) }))
  const open = blocks.filter(({ text, name }) => name === undefined || /^export /m.test(text))
  const seen = new Set(open)
  for (const { words } of open) {
    for (const block of blocks) {
      if (seen.has(block) || !words.has(block.name!)) continue
      seen.add(block)
      open.push(block)
    }
  }
  const kept = blocks.filter((block) => seen.has(block))
  return kept.map(({ text }) => text).join('\n\n')
}

/** Matches a name that is no property's. */
const WORD = /\b\w+\b(?!\??:)/g

const codeOf = (text: string): string => text.replace(/\/\*[\s\S]*?\*\//g, '')

/** Returns the interface without comments. */
function reportOf(entries: readonly string[], declarations: string): string {
  const code = codeOf(declarations)
    .replace(/\s*$/gm, '')
    .replace(/\n{2,}/g, '\n')
    .trim()
  return `# Public API of @sealpost/sdk\n\n${entries.join('\n')}\n\n\`\`\`ts\n${code}\n\`\`\`\n`
}

const LIST = /^export (type )?\{([^}]*)\}/gm
const DECLARED = /^export (?:declare )?(?:abstract )?(class|function\*?|const|interface|type) (\w+)/gm

/** Returns a module's public names, types marked with `type`. */
function namesOf(file: string, rollup: string): string[] {
  const text = readFileSync(file, 'utf8')
  const isPublic = new Set([...rollup.matchAll(DECLARED)].map(([, , name]) => name))
  const names = new Map<string, string>()
  for (const [, isType, list] of text.matchAll(LIST)) {
    for (const item of list!.split(',').map((one) => one.trim())) {
      const name = item.replace(/^type /, '')
      if (name !== '') names.set(name, isType || item !== name ? `type ${name}` : name)
    }
  }
  for (const [, kind, name] of text.matchAll(DECLARED)) {
    names.set(name!, kind === 'interface' || kind === 'type' ? `type ${name}` : name!)
  }
  return [...names]
    .filter(([name]) => isPublic.has(name))
    .map(([, item]) => item)
    .sort(byName)
}

const byName = (a: string, b: string): number => a.replace('type ', '').localeCompare(b.replace('type ', ''), 'en')
