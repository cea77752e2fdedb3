import { expect, test } from 'vitest'
import { instrument, stackReporter } from './instrument.ts'

/** Instruments and runs the source. Returns its calls, as `caller>callee`, and its value. */
async function callsOf(source: string): Promise<{ calls: string[]; result: unknown }> {
  const names: string[] = []
  const made: string[] = []
  const calls: string[] = []
  const { reporter, stack } = stackReporter((functionId, caller) => {
    calls.push(`${caller ? made[caller.call] : ''}>${names[functionId]}`)
    return made.push(names[functionId]!) - 1
  })
  const code = instrument(source, (name) => names.push(name) - 1)
  const plain = new Bun.Transpiler({ loader: 'ts' }).transformSync(code)
  const result = await new Function('__trace', `${plain}\nreturn main()`)(reporter)
  expect(stack).toEqual([])
  return { calls, result }
}

test('functions, methods, accessors and arrow functions are recorded as calls of their caller', async () => {
  const { calls, result } = await callsOf(`
    class Counter {
      #at = 0
      readonly twice = (n: number): number => n * 2
      get at(): number { return this.#at }
      #step() { this.#at += 1 }
      step() { this.#step(); return this }
    }
    const object = { make: () => ({ value: 1 }), method() { return 2 } }
    function main() {
      const counter = new Counter().step()
      return [counter.at, counter.twice(3), object.make().value, object.method()]
    }`)
  expect(result).toEqual([1, 6, 1, 2])
  expect(calls).toEqual(['>main', 'main>step', 'step>step', 'main>at', 'main>twice', 'main>make', 'main>method'])
})

test('after an await, calls are attributed to the function that awaited', async () => {
  const { calls, result } = await callsOf(`
    const tick = () => Promise.resolve(1)
    const after = (n: number) => n + 1
    async function one() { const n = await (tick()); return after(n) }
    async function other() { try { await Promise.reject(new Error('no')) } catch { return after(5) } }
    async function main() { return Promise.all([one(), other()]) }`)
  expect(result).toEqual([2, 6])
  expect(calls).toEqual(['>main', 'main>one', 'one>tick', 'main>other', 'one>after', '>after'])
})

test('types, overloads and generators are unchanged', async () => {
  const { calls, result } = await callsOf(`
    function pick(n: number): number
    function pick(n: string): string
    function pick(n: unknown) { return n }
    type Make = (n: number) => string
    function* steps() { yield pick(1); yield* [pick(2)] }
    const main = () => [...steps()] as readonly unknown[]`)
  expect(result).toEqual([1, 2])
  expect(calls.filter((call) => call.endsWith('>pick'))).toEqual(['steps>pick', 'steps>pick'])
})
