/** For tests: a NATS server of one's own, on a free port of the loopback, that can be ended and started again on it. */
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { createInterface } from 'node:readline'

const PLACES = ['/usr/sbin/nats-server', '/usr/bin/nats-server', '/usr/local/bin/nats-server']
const PROGRAM = PLACES.find((path) => existsSync(path)) ?? null
export const isNatsHere = PROGRAM !== null
/** Where there is `setpriv`, the kernel ends what a test that ran out of time left behind. */
const LEASH = existsSync('/usr/bin/setpriv') ? ['/usr/bin/setpriv', '--pdeathsig', 'KILL'] : []

export class NatsServer {
  readonly url: string
  private readonly words: readonly string[]
  private child: ChildProcess

  private constructor(child: ChildProcess, port: string, words: readonly string[]) {
    this.child = child
    this.words = words
    this.url = `nats://peer:secret@127.0.0.1:${port}`
  }

  static async start(): Promise<NatsServer> {
    const words = ['--addr', '127.0.0.1', '--user', 'peer', '--pass', 'secret']
    const { child, port } = await started([...words, '--port', '-1'])
    return new NatsServer(child, port, [...words, '--port', port])
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolve) => this.child.once('exit', resolve))
    this.child.kill('SIGKILL')
    await ended
  }

  async startAgain(): Promise<void> {
    this.child = (await started(this.words)).child
  }
}

async function started(words: readonly string[]): Promise<{ child: ChildProcess; port: string }> {
  const [program, ...rest] = [...LEASH, PROGRAM!, ...words]
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
