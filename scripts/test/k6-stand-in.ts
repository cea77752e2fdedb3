/**
 * Provides tests with k6's modules in Bun, preloaded before a script, and prints its checks and measurements. k6's
 * `http` is synchronous, so each request runs a program.
 */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { plugin } from 'bun'

const checks: Record<string, boolean[]> = {}
const metrics: Record<string, number[]> = {}
let worker = 0

class Metric {
  readonly #values: number[]
  constructor(name: string) {
    this.#values = metrics[name] ??= []
  }
  add(value: number): void {
    this.#values.push(value)
  }
}

type Answer = { readonly status: number; readonly body: string; json(): unknown }
type Given = { readonly headers: Record<string, string> }

const FETCH = `const [url, init] = JSON.parse(process.argv[1]); const answer = await fetch(url, init)
process.stdout.write(JSON.stringify({ status: answer.status, body: await answer.text() }))`

function ask(url: string, init: object): Answer {
  const { stdout } = spawnSync(process.execPath, ['-e', FETCH, JSON.stringify([url, init])], { encoding: 'utf8' })
  const { status, body } = JSON.parse(stdout) as { readonly status: number; readonly body: string }
  return { status, body, json: () => JSON.parse(body) }
}

const modules: Record<string, Record<string, unknown>> = {
  k6: {
    check: (value: unknown, asked: Record<string, (value: unknown) => boolean>) => {
      const found = Object.entries(asked).map(([name, holds]) => {
        const isMet = holds(value)
        checks[name] = [...(checks[name] ?? []), isMet]
        return isMet
      })
      return found.every(Boolean)
    },
  },
  'k6/data': {
    SharedArray: function SharedArray(_: string, make: () => unknown[]) {
      return make()
    },
  },
  'k6/encoding': {
    default: {
      b64decode: (text: string) => new Uint8Array(Buffer.from(text, 'base64url')).buffer,
      b64encode: (bytes: ArrayBuffer) => Buffer.from(bytes).toString('base64url'),
    },
  },
  'k6/execution': {
    default: {
      vu: {
        get idInTest() {
          return worker
        },
        get idInInstance() {
          return worker
        },
      },
    },
  },
  'k6/http': {
    default: {
      post: (url: string, body: string, { headers }: Given) => ask(url, { method: 'POST', body, headers }),
      get: (url: string, { headers }: Given) => ask(url, { headers }),
    },
  },
  'k6/metrics': { Counter: Metric, Trend: Metric },
  'k6/websockets': { WebSocket },
}

plugin({
  name: 'k6',
  setup(build) {
    for (const [name, exports] of Object.entries(modules)) build.module(name, () => ({ exports, loader: 'object' }))
  },
})

Object.assign(globalThis, { __ENV: process.env, open: (file: string) => readFileSync(file, 'utf8'), runScript })

/** Each peer in the file is a worker with one iteration. */
function runScript(script: Record<string, unknown>): void {
  const { peers } = JSON.parse(readFileSync(process.env.PEERS!, 'utf8')) as { readonly peers: readonly unknown[] }
  for (const name of ['send', 'fetchMail', 'default']) {
    const act = script[name]
    if (typeof act !== 'function') continue
    for (worker = 1; worker <= peers.length; worker++) act()
  }
}

process.on('exit', () => process.stdout.write(JSON.stringify({ checks, metrics })))
