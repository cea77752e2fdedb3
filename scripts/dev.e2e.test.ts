/** Runs `scripts/dev.ts` and the examples in an empty folder, as a new user would. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readKeyFile } from '@sealpost/identity/key-file'
import { type Database, openDatabase } from '@sealpost/pg'
import { afterEach, beforeEach, expect, test } from 'vitest'

const DEV = join(import.meta.dirname, 'dev.ts')
const EXAMPLES = join(import.meta.dirname, '../docs/examples')

let folder: string
let dev: Dev | undefined

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-dev-test-'))
})
afterEach(async () => {
  await dev?.stop()
  await rm(folder, { recursive: true, force: true })
})

interface Dev {
  readonly child: ChildProcess
  /** Returns stdout and stderr so far. */
  output(): string
  stop(): Promise<number | null>
}

function program(file: string, env: Record<string, string> = {}): ChildProcess {
  return spawn(process.execPath, [file], {
    cwd: folder,
    env: { ...process.env, NO_COLOR: '1', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
}

/** Starts the program and waits until it has printed how to stop it. */
async function startDev(): Promise<Dev> {
  const child = program(DEV, { PORT: '0' })
  let output = ''
  const ready = Promise.withResolvers<void>()
  for (const stream of [child.stdout!, child.stderr!]) {
    stream.on('data', (bytes) => {
      output += String(bytes)
      if (output.includes('Press Ctrl-C to stop everything')) ready.resolve()
    })
  }
  const closed = once(child, 'close')
  const stop = async () => {
    child.kill('SIGINT')
    await closed
    return child.exitCode
  }
  dev = { child, output: () => output, stop }
  void closed.then(() => ready.reject(new Error(`It ended before it was ready:\n${output}`)))
  await ready.promise
  return dev
}

async function runExample(
  name: string,
  env: Record<string, string> = {},
): Promise<{ code: number | null; output: string }> {
  const child = program(join(EXAMPLES, name), env)
  let output = ''
  for (const stream of [child.stdout!, child.stderr!]) stream.on('data', (bytes) => (output += String(bytes)))
  await once(child, 'close')
  return { code: child.exitCode, output }
}

const passwordOf = async () => (await readFile(join(folder, '.sealpost/postgres/password'), 'utf8')).trim()

/** Returns the printed URL of the database. */
async function databaseUrlOf({ output }: Dev): Promise<string> {
  const words = /psql (".*")/.exec(output())![1]!
  const shell = spawn('sh', ['-c', `printf %s ${words}`], { cwd: folder, stdio: ['ignore', 'pipe', 'inherit'] })
  let url = ''
  shell.stdout!.on('data', (bytes) => (url += String(bytes)))
  await once(shell, 'close')
  return url
}

const databaseOf = async (running: Dev): Promise<Database> =>
  openDatabase(await databaseUrlOf(running), { connections: 1 })

/** Returns the number of queued messages, once settles are committed. */
async function countLeft(db: Database): Promise<number> {
  const giveUpMs = performance.now() + 60_000
  for (;;) {
    const [row] = await db.run((sql) => sql<{ left: number }[]>`select count(*)::int as left from message_queue`)
    if (row!.left === 0 || performance.now() > giveUpMs) return row!.left
    await Bun.sleep(20)
  }
}

const aliceFile = () => join(folder, '.sealpost/alice.json')
const authorityOf = async () => {
  const { contents } = await readKeyFile(aliceFile())
  return contents.kind === 'peer' ? contents.enrolment?.authority : undefined
}

const HELLO = 'alice: Are you there?\n'
const SENT = 'recipient online: true\nPlease pay.\nconfirmed, signed by the recipient: true\n'
const FORWARD = 'Only the two of us.\nforward secrecy: true\n'
const ORDER = `shop: new row for relation "orders" violates check constraint "orders_item_check"
warehouse: pack one chair
shop: ordered one chair
`
const STATE = 'then: topic is tea\nsince: topic is coffee\n'

test('the example works on each run and on any port, and leaves an empty queue', async () => {
  const ports: string[] = []
  for (let start = 1; start <= 2; start++) {
    const running = await startDev()
    const authority = /ws:\/\/(\S+?)\/v1/.exec(running.output())![1]!
    ports.push(authority)
    expect(await authorityOf()).toBe(authority)
    expect((await stat(aliceFile())).mode & 0o777).toBe(0o600)
    for (let run = 1; run <= 2; run++) expect(await runExample('hello.ts')).toEqual({ code: 0, output: HELLO })
    expect(await runExample('state.ts')).toEqual({ code: 0, output: STATE })
    expect(await runExample('sent.ts')).toEqual({ code: 0, output: SENT })
    for (let run = 1; run <= 2; run++) expect(await runExample('forward.ts')).toEqual({ code: 0, output: FORWARD })
    const env = { DATABASE_URL: await databaseUrlOf(running) }
    expect(await runExample('order-service.ts', env)).toEqual({ code: 0, output: ORDER })
    const db = await databaseOf(running)
    expect(await countLeft(db)).toBe(0)
    await db.close()
    expect(running.output()).not.toContain(await passwordOf())
    expect(await running.stop()).toBe(0)
  }
  expect(new Set(ports).size).toBe(2) // otherwise, the second start would prove nothing
})
