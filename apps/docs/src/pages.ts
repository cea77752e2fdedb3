/**
 * Lists the documentation's pages in order. `scripts/docs.test.ts` fails if one is missing. Defines the names of pages,
 * headings and links.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, posix } from 'node:path'

export const ROOT = join(import.meta.dirname, '../../..')

export interface DocPage {
  /** The path from the root of the repository. */
  readonly path: string
  readonly name: string
  readonly about: string
}

export interface Section {
  readonly name: string
  readonly pages: readonly DocPage[]
}

const page = (path: string, name: string, about: string): DocPage => ({ path, name, about })

export const sections: readonly Section[] = [
  {
    name: 'Begin',
    pages: [
      page('docs/START.md', 'Five-minute start', 'a broker, two peers and a message, by commands'),
      page('docs/CONCEPTS.md', 'Concepts', 'the terms, the path of a message, and its failures'),
      page('docs/GLOSSARY.md', 'Glossary', 'each word of the product and the code, defined once'),
      page('docs/PROMISES.md', 'Promises', 'each promise, and the test that would falsify it'),
    ],
  },
  {
    name: 'Build',
    pages: [
      page('docs/SDK.md', 'SDK guide', 'send, receive, request, groups, pools, devices and errors, in TypeScript'),
      page('docs/reference/stores.md', 'Peer stores', 'an outbox and an inbox that survive a restart'),
      page(
        'docs/MESSAGES.md',
        'Messages on the command line',
        'recipients, delays, schedules, files, pools and the inbox',
      ),
      page('docs/KEYS.md', 'Keys', 'encrypt keys, keep them in a keychain, back them up and restore them'),
      page('docs/ATTACHMENTS.md', 'Attachments', 'files of any size with a message, sealed and resumable'),
      page('docs/STATE.md', 'State and history', 'values that a mesh or a group shares, and their history'),
      page('docs/GATEWAY.md', 'Gateway', '`sealpost gateway`, HTTP and webhooks on your machine'),
      page('docs/MCP.md', 'AI agents', '`sealpost mcp`, an MCP server'),
      page('docs/WORK.md', 'Agents that answer', '`sealpost work`, one turn of an agent per message'),
    ],
  },
  {
    name: 'Reference',
    pages: [
      page('docs/reference/cli.md', 'Commands', 'every command of `sealpost`, its options, exit codes and examples'),
      page('docs/reference/config.md', 'Settings', 'every setting of a broker, with its unit and default'),
      page('docs/reference/metrics.md', 'Metrics', 'every metric that a broker exposes to Prometheus'),
      page('docs/CLIENTS.md', 'Writing a client', 'the protocol for client authors, step by step'),
      page('docs/PROTOCOL.md', 'Protocol', 'frames, handshake, sealing and HTTP: enough to write a client'),
      page('docs/RATCHETS.md', 'Ratchets', 'the state machines of the agreement and the ratchet'),
    ],
  },
  {
    name: 'Operate',
    pages: [
      page('docs/deploy/README.md', 'Deployment', 'an image, compose, Kubernetes, systemd and TLS'),
      page('docs/OPERATIONS.md', 'Operations', 'limits, alerts, backups, upgrades, scaling and runbooks'),
      page('docs/CAPACITY.md', 'Capacity', 'how many brokers, databases and disks a load needs'),
      page('docs/CELLS.md', 'Cells', 'several Postgres servers, and moving a mesh between them'),
    ],
  },
  {
    name: 'Trust',
    pages: [
      page('docs/SECURITY.md', 'Security', "what each adversary can and can't do"),
      page('docs/REVIEW.md', 'Reviewing', 'for external reviewers: scope, constructions, checks and known limits'),
      page('SECURITY.md', 'Reporting a vulnerability', 'how to report a vulnerability'),
      page('docs/BENCHMARKS.md', 'Benchmarks', 'measurements, and the commands that reproduce them'),
      page('docs/k6/README.md', 'Load tests with k6', 'scripts for k6'),
    ],
  },
  {
    name: 'Internals',
    pages: [
      page('docs/ARCHITECTURE.md', 'Architecture', 'a map of the code'),
      page('CONTRIBUTING.md', 'Contributing', 'how to build, test and change it'),
      page('docs/RELEASING.md', 'Releasing', 'how to build, check and publish a version'),
      page('CHANGELOG.md', 'Changes', 'changes that users notice'),
    ],
  },
  { name: 'Decisions', pages: pagesOf('docs/adr', 'a decision and its measurements') },
  { name: 'Benchmark notes', pages: pagesOf('docs/benchmarks/notes', 'profiles and experiments on one subject') },
]

/** The machine-readable files. */
export const machineFiles: readonly DocPage[] = [
  page('docs/reference/asyncapi.json', 'AsyncAPI 3', 'the socket protocol'),
  page('docs/reference/frames.schema.json', 'JSON Schema', 'the frames in their JSON form'),
  page('docs/reference/openapi.json', 'OpenAPI 3.1', 'the HTTP API for clients'),
  page('docs/reference/admin-openapi.json', 'OpenAPI 3.1 for operators', 'the API of the private port'),
]

export const allPages = (): readonly DocPage[] => sections.flatMap(({ pages }) => pages)

/** Returns a folder's pages with their titles. */
function pagesOf(folder: string, about: string): readonly DocPage[] {
  const names = readdirSync(join(ROOT, folder)).filter((name) => name.endsWith('.md'))
  return names.sort().map((name) => {
    const title = /^# (.+)$/m.exec(readFileSync(join(ROOT, folder, name), 'utf8'))?.[1] ?? name
    return page(`${folder}/${name}`, title, about)
  })
}

/** Returns a page's path on the site: `docs/deploy/README.md` is `deploy/index`. */
export function placeOf(path: string): string {
  if (path === 'SECURITY.md') return 'reporting' // `security` is already the page about what each adversary can do
  const place = path.replace(/^docs\//, '').replace(/\.md$/, '')
  const folder = dirname(place) === '.' ? '' : `${dirname(place)}/`
  const name = basename(place).toLowerCase()
  return folder + (name === 'readme' ? 'index' : name)
}

/** Returns a heading's anchor by GitHub's rule, for links that work in both places. */
export const anchorOf = (title: string): string =>
  title
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')

/** Matches code, in which brackets are no links. */
const CODE = /^```[\s\S]*?^```|`[^`\n]*`/gm
const LINK = /(\]\()([^)\s#]+)((?:#[^)\s]*)?\))/g

/** Replaces the targets of links within the repository by `moved`. Both are paths from its root. */
export function withLinks(text: string, path: string, moved: (target: string) => string): string {
  const parts: string[] = []
  let end = 0
  for (const code of text.matchAll(CODE)) {
    parts.push(relinked(text.slice(end, code.index), path, moved), code[0])
    end = code.index + code[0].length
  }
  return [...parts, relinked(text.slice(end), path, moved)].join('')
}

const relinked = (prose: string, path: string, moved: (target: string) => string): string =>
  prose.replace(LINK, (link, before: string, target: string, after: string) =>
    /^[a-z]+:/.test(target) ? link : before + moved(posix.join(posix.dirname(path), target)) + after,
  )
