/**
 * Writes the declarations of the published package into one file that refers to no other package, so that a class has
 * one declaration whichever entry exports it. Each entry gets a short file with its own names. The interface report is
 * the same file without comments.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Extractor, ExtractorConfig, type ExtractorLogLevel } from '@microsoft/api-extractor'

export interface Declarations {
  /** The folder with the declarations that the compiler emitted, whose specifiers refer to each other. */
  readonly folder: string
  /** Maps each entry to the file below `folder` that declares it. */
  readonly entries: readonly (readonly [entry: string, file: string])[]
  /** The name of the package. */
  readonly manifest: string
}

export interface Interface {
  /** The text of the file with all declarations. */
  readonly declarations: string
  /** Maps each entry to the text of its file, which expects the file with all declarations beside it as `all.d.ts`. */
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

/** API Extractor leaves such a comment in place of each internal member. */
const EXCLUDED = /^ *\/\* Excluded from this release type: \w+ \*\/\n/gm

/** A declaration with its comment. API Extractor starts each declaration on a new line, after an empty line. */
const BLOCKS = /\n\n(?=\/\*\*|export |declare )/
const NAME = /^(?:export )?(?:declare )?(?:abstract )?(?:class|function\*?|const|interface|type|let) (\w+)/m

interface Block {
  readonly text: string
  /** Undefined if the text is no declaration, such as the beginning of the file. */
  readonly name: string | undefined
}

/** Splits a rollup into its declarations, each with its comment. */
export function blocksIn(rollup: string): Block[] {
  return rollup.split(BLOCKS).map((text) => ({ text, name: NAME.exec(codeOf(text))?.[1] }))
}

/** Omits declarations to which only internal members refer; API Extractor keeps them. */
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

/** Matches a name that is not the name of a property. */
const WORD = /\b\w+\b(?!\??:)/g

const codeOf = (text: string): string => text.replace(/\/\*[\s\S]*?\*\//g, '')

/** Returns the whole interface without its comments. */
function reportOf(entries: readonly string[], declarations: string): string {
  const code = codeOf(declarations)
    .replace(/\s*$/gm, '')
    .replace(/\n{2,}/g, '\n')
    .trim()
  return `# Public API of @sealpost/sdk\n\n${entries.join('\n')}\n\n\`\`\`ts\n${code}\n\`\`\`\n`
}

const LIST = /^export (type )?\{([^}]*)\}/gm
const DECLARED = /^export (?:declare )?(?:abstract )?(class|function\*?|const|interface|type) (\w+)/gm

/** Returns a module's exported names, with `type` before names without a value. Omits internal names. */
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
