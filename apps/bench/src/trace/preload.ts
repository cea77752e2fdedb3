/**
 * Records a broker's functions when preloaded (`bun --preload`). `SIGUSR2` starts and stops a recording, which is
 * printed as JSON.
 */
import { readFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import { instrument, stackReporter } from './instrument.ts'

export type TracedCall = readonly [functionNo: number, callerNo: number]

export interface Recording {
  /** The functions that were entered. */
  readonly functions: readonly { readonly file: string; readonly name: string }[]
  /** The calls in order, with the indexes of function and caller; -1 for the runtime. */
  readonly calls: readonly TracedCall[]
}

const ROOT = join(import.meta.dirname, '../../../..')
const functions: { file: string; name: string }[] = []
let calls: TracedCall[] | null = null
let isInInterval = false

const { reporter, stack } = stackReporter((functionId, caller) =>
  calls === null || isInInterval ? -1 : calls.push([functionId, caller?.call ?? -1]) - 1,
)
Object.assign(globalThis, { __trace: reporter })

// Repeating timers don't belong to a message.
const { setInterval } = globalThis
globalThis.setInterval = ((run: (...args: unknown[]) => void, ...rest: unknown[]) =>
  Reflect.apply(setInterval, globalThis, [
    (...args: unknown[]) => {
      isInInterval = true
      try {
        run(...args)
      } finally {
        isInInterval = false
      }
    },
    ...rest,
  ])) as typeof setInterval

Bun.plugin({
  name: 'trace',
  setup(build) {
    build.onLoad({ filter: /\/(?:apps\/broker|packages\/[a-z-]+)\/src\/.*(?<!\.test)\.ts$/ }, ({ path }) => {
      const file = relative(ROOT, path)
      const contents = instrument(readFileSync(path, 'utf8'), (name) => functions.push({ file, name }) - 1)
      return { contents, loader: 'ts' }
    })
  },
})

process.on('SIGUSR2', () => {
  if (calls === null) {
    stack.length = 0 // removes the frames of earlier calls
    calls = []
  } else {
    process.stdout.write(`${JSON.stringify(recordingOf(calls))}\n`)
    calls = null
  }
})

function recordingOf(made: readonly TracedCall[]): Recording {
  const ids = [...new Set(made.map(([id]) => id))]
  const numbers = new Map(ids.map((id, i) => [id, i]))
  return {
    functions: ids.map((id) => functions[id]!),
    calls: made.map(([id, caller]) => [numbers.get(id)!, caller]),
  }
}
