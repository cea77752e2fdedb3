/**
 * The pages of the documentation in their order, once: the sidebar, `llms.txt` and what is laid out for the
 * build come from here. A page of `docs/` that stands in no section fails a test of `scripts/docs.test.ts`.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'

export const ROOT = join(import.meta.dirname, '../../..')

export interface DocPage {
  /** From the root of the repository. */
  readonly path: string
  readonly name: string
  /** What a reader finds there, in half a line. */
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
      page('docs/CONCEPTS.md', 'Concepts', 'the words, the way of a message, and what may go wrong on it'),
      page('docs/GLOSSARY.md', 'Glossary', 'each word of the product and the code, defined once'),
      page('docs/PROMISES.md', 'Promises', 'each promise, and the test that would falsify it'),
    ],
  },
  {
    name: 'Build',
    pages: [
      page('docs/SDK.md', 'SDK guide', 'send, receive, ask, groups, pools, devices and errors, in TypeScript'),
      page('docs/reference/stores.md', 'Stores of a peer', 'an outbox and an inbox that outlive their process'),
      page('docs/ATTACHMENTS.md', 'Attachments', 'files of any size beside a message, sealed and resumed'),
      page('docs/STATE.md', 'State and history', 'values that a mesh or a group shares, and what happened to them'),
      page('docs/MCP.md', 'AI agents', '`sealpost mcp`, a server of the Model Context Protocol'),
    ],
  },
  {
    name: 'Reference',
    pages: [
      page('docs/reference/cli.md', 'Commands', 'every command of `sealpost`, its options, exit codes and examples'),
      page('docs/reference/config.md', 'Settings', 'every setting of a broker, with its unit and default'),
      page('docs/reference/metrics.md', 'Metrics', 'every series that a broker shows to Prometheus'),
      page('docs/CLIENTS.md', 'Writing a client', 'the protocol for client authors, step by step'),
      page('docs/PROTOCOL.md', 'Protocol', 'frames, handshake, sealing and HTTP: enough to write a client'),
    ],
  },
  {
    name: 'Operate',
    pages: [
      page('docs/deploy/README.md', 'Deployment', 'an image, compose, Kubernetes, systemd and TLS'),
      page(
        'docs/OPERATIONS.md',
        'Operations',
        'limits, alarms, backups, upgrades, scaling, and what to do in an incident',
      ),
      page('docs/CAPACITY.md', 'Capacity', 'how many brokers, databases and disks a load needs'),
      page('docs/CELLS.md', 'Cells', 'several Postgres servers, and how a mesh moves between them'),
    ],
  },
  {
    name: 'Trust',
    pages: [
      page('docs/SECURITY.md', 'Security', 'what each adversary can do, and what it can not'),
      page('SECURITY.md', 'Reporting a fault', 'how to report a fault of security'),
      page('docs/BENCHMARKS.md', 'Benchmarks', 'what was measured, and the commands that measure it again'),
      page('docs/k6/README.md', 'Load by k6', 'scripts for k6, for those who trust their own tool'),
    ],
  },
  {
    name: 'Inside',
    pages: [
      page('docs/ARCHITECTURE.md', 'Architecture', 'where things are in the code, and why they are apart'),
      page('CONTRIBUTING.md', 'Contributing', 'how to build, test and change it'),
      page('CHANGELOG.md', 'Changes', 'what changed for those who use it'),
    ],
  },
  { name: 'Decisions', pages: pagesOf('docs/adr', 'a decision and its measurements') },
  { name: 'Benchmark notes', pages: pagesOf('docs/benchmarks/notes', 'profiles and trials of one subject') },
]

/** Files that are no pages and that readers and machines are sent to. */
export const machineFiles: readonly DocPage[] = [
  page('docs/reference/asyncapi.json', 'AsyncAPI 3', 'the socket protocol'),
  page('docs/reference/frames.schema.json', 'JSON Schema', 'the frames in their JSON form'),
  page('docs/reference/openapi.json', 'OpenAPI 3.1', 'the interface for clients over HTTP'),
  page('docs/reference/admin-openapi.json', 'OpenAPI 3.1 for operators', 'the interface of the private port'),
]

export const allPages = (): readonly DocPage[] => sections.flatMap(({ pages }) => pages)

/** The pages of a folder, each named by its title. */
function pagesOf(folder: string, about: string): readonly DocPage[] {
  const names = readdirSync(join(ROOT, folder)).filter((name) => name.endsWith('.md'))
  return names.sort().map((name) => {
    const title = /^# (.+)$/m.exec(readFileSync(join(ROOT, folder, name), 'utf8'))?.[1] ?? name
    return page(`${folder}/${name}`, title, about)
  })
}

/** Where a page stands on the site, without its ending: `docs/deploy/README.md` is `deploy/index`. */
export function placeOf(path: string): string {
  if (path === 'SECURITY.md') return 'reporting' // `security` is the page about what each adversary can do
  const place = path.replace(/^docs\//, '').replace(/\.md$/, '')
  const folder = dirname(place) === '.' ? '' : `${dirname(place)}/`
  const name = basename(place).toLowerCase()
  return folder + (name === 'readme' ? 'index' : name)
}
