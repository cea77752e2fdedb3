/** Tests commands over HTTP with a suspended broker, which never responds. */
import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { AS_ALICE, Machine, startUp, type Up } from './cli.ts'

let machine: Machine
let up: Up

const stop = () => process.kill(up.brokerPid(), 'SIGSTOP')
const resume = () => process.kill(up.brokerPid(), 'SIGCONT')

beforeAll(async () => {
  machine = await Machine.make()
  up = await startUp(machine, AS_ALICE)
  await machine.run(['space', 'open'])
  await machine.run(['state', 'set', 'topic', 'tea'])
})
beforeEach(() => resume())
afterAll(async () => {
  resume()
  await machine[Symbol.asyncDispose]()
})

test('a command ends with unreachable after its time limit', async () => {
  stop()
  const { code, stderr } = await machine.run(['state', 'get', 'topic', '--json'])
  expect([code, JSON.parse(stderr).error.code]).toEqual([7, 'connection_lost'])
})

/** Listens like a suspended broker: the kernel accepts connections. */
function listenSilently() {
  const heard: string[] = []
  const server = Bun.listen({
    ...{ hostname: '127.0.0.1', port: 0 },
    socket: { data: (_, bytes) => void heard.push(bytes.toString()) },
  })
  return { heard, url: `ws://127.0.0.1:${server.port}`, [Symbol.dispose]: () => server.stop(true) }
}

/** Creates another profile with Alice's keys. */
async function copyProfile(name: string, changed: object): Promise<void> {
  const [from, to] = ['default', name].map((each) => join(machine.folder, 'profiles', each))
  await cp(from!, to!, { recursive: true })
  const path = join(to!, 'membership.json')
  await Bun.write(path, JSON.stringify({ ...(await Bun.file(path).json()), ...changed }))
}

test('the first signal ends a command that waits for a response', async () => {
  using silent = listenSilently()
  await copyProfile('stuck', { url: silent.url })
  for (const words of [['state', 'get', 'topic'], ['state', 'watch', '--quiet'], ['history'], ['space', 'open']]) {
    const before = silent.heard.length
    const running = machine.start([...words, '--profile', 'stuck', '--json'])
    await expect.poll(() => silent.heard.length, { timeout: 30_000 }).toBeGreaterThan(before)
    running.child.kill('SIGTERM')
    expect(await running.ended()).toMatchObject({ code: 130, stderr: '' })
  }
})

test('if one address does not respond, the command tries the next known one', async () => {
  using silent = listenSilently()
  await copyProfile('moved', { cell: [silent.url] })
  const got = await machine.run(['state', 'get', 'topic', '--profile', 'moved'])
  expect(got).toMatchObject({ code: 0, stdout: 'tea\n' })
  expect(silent.heard[0]).toContain('POST /v1/token/challenge')
})
