/** Starts a NATS server for tests on a free loopback port, and can restart it there. */
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setImmediate } from 'node:timers/promises'

const PLACES = ['/usr/sbin/nats-server', '/usr/bin/nats-server', '/usr/local/bin/nats-server']
const PROGRAM = PLACES.find((path) => existsSync(path)) ?? null
export const hasNats = PROGRAM !== null
/** A command prefix that makes the kernel end the server when its test is killed. */
const DIE_WITH_PARENT = existsSync('/usr/bin/setpriv') ? ['/usr/bin/setpriv', '--pdeathsig', 'KILL'] : []

export class NatsServer {
  readonly url: string
  readonly #args: readonly string[]
  #child: ChildProcess

  private constructor(child: ChildProcess, port: string, args: readonly string[]) {
    this.#child = child
    this.#args = args
    this.url = `nats://peer:secret@127.0.0.1:${port}`
  }

  static async start(): Promise<NatsServer> {
    const args = ['--addr', '127.0.0.1', '--user', 'peer', '--pass', 'secret']
    const { child, port } = await started([...args, '--port', '-1'])
    return new NatsServer(child, port, [...args, '--port', port])
  }

  /** Stops replies, until `stop` ends the server. Resolves when the kernel has stopped each thread (Linux). */
  async pause(): Promise<void> {
    this.#child.kill('SIGSTOP')
    const threads = `/proc/${this.#child.pid}/task`
    const isStopped = (thread: string) => readFileSync(`${threads}/${thread}/stat`, 'utf8').includes(') T ')
    while (existsSync(threads) && !readdirSync(threads).every(isStopped)) await setImmediate()
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once('exit', resolve))
    this.#child.kill('SIGKILL')
    await ended
  }

  async restart(): Promise<void> {
    this.#child = (await started(this.#args)).child
  }
}

async function started(args: readonly string[]): Promise<{ child: ChildProcess; port: string }> {
  const [program, ...rest] = [...DIE_WITH_PARENT, PROGRAM!, ...args]
  const child = spawn(program!, rest, { stdio: ['ignore', 'ignore', 'pipe'] })
  let port = ''
  const lines: string[] = []
  for await (const line of createInterface({ input: child.stderr! })) {
    lines.push(line)
    port = /Listening for client connections on 127\.0\.0\.1:(\d+)/.exec(line)?.[1] ?? port
    if (line.includes('Server is ready')) break
  }
  if (!port) throw new Error(`nats-server did not start: ${lines.join('\n')}`)
  child.stderr!.resume()
  return { child, port }
}
