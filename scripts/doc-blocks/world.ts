/** Creates the blocks' environment: a home folder, `sealpost` and `bun` on the PATH, and a mesh. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, chown, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateIdentity, normalizeAuthority, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { join as joinMesh } from '@sealpost/sdk/join'
import { expect } from 'vitest'
import { type Block, isAs, isRun } from './blocks.ts'

const ROOT = join(import.meta.dirname, '../..')
const MAIN = join(ROOT, 'apps/cli/src/main.ts')
/** Matches the text of a command that is ready. */
const IS_READY = /[Pp]ress Ctrl-C|broker\.ready/

interface Running {
  readonly child: ChildProcess
  readonly closed: Promise<unknown>
  output(): string
}

export interface Ended {
  readonly code: number | null
  /** Both streams, as on a terminal. */
  readonly output: string
}

/** An ordinary user: `nobody`. */
const USER = 65_534
const isRoot = process.getuid?.() === 0
const AS_USER = isRoot ? ['setpriv', `--reuid=${USER}`, `--regid=${USER}`, '--clear-groups'] : []

interface Place {
  /** The home folder. */
  readonly folder: string
  /** The folder in which shell scripts run. */
  readonly cwd: string
  /** The command that runs a shell. */
  readonly prefix: readonly string[]
}

export class DocWorld implements AsyncDisposable {
  readonly folder: string
  readonly #place: Place
  readonly #running: Running[] = []

  private constructor(place: Place) {
    this.folder = place.folder
    this.#place = place
  }

  /** Makes a folder inside the repository, where programs find its packages. */
  static async make(): Promise<DocWorld> {
    await mkdir(join(ROOT, '.sealpost'), { recursive: true, mode: 0o700 })
    const folder = await mkdtemp(join(ROOT, '.sealpost/blocks-'))
    const world = new DocWorld({ folder, cwd: ROOT, prefix: [] })
    await mkdir(join(world.folder, 'bin'))
    await world.#command('bun', `"${process.execPath}"`)
    await world.#command('sealpost', `"${process.execPath}" "${MAIN}"`)
    return world
  }

  /** Makes the machine of an ordinary user with Node, npm and this registry. */
  static async ofUser(registry: string): Promise<DocWorld> {
    const folder = await mkdtemp(join(tmpdir(), 'sealpost user '))
    const settings = [
      `registry=${registry}`,
      `${registry.replace('http:', '')}:_authToken=none`,
      `prefix=${folder}`, // the folder of global packages, whose commands are in `bin`
      'fetch-retries=0',
      'audit=false',
      'update-notifier=false',
    ]
    await writeFile(join(folder, '.npmrc'), settings.join('\n'))
    for (const path of isRoot ? [folder, join(folder, '.npmrc')] : []) await chown(path, USER, USER)
    return new DocWorld({ folder, cwd: folder, prefix: AS_USER })
  }

  async run(text: string): Promise<Ended> {
    const running = this.#shell(text)
    await running.closed
    return { code: running.child.exitCode, output: running.output() }
  }

  /** Starts a command. Resolves with its output once it is ready. */
  async keep(text: string): Promise<Ended> {
    const running = this.#shell(text)
    this.#running.push(running)
    const ready = Promise.withResolvers<void>()
    running.child.stdout!.on('data', () => IS_READY.test(running.output()) && ready.resolve())
    await Promise.race([ready.promise, running.closed])
    return { code: running.child.exitCode, output: running.output() }
  }

  async program(name: string, text: string): Promise<Ended> {
    const file = join(this.folder, `${name}.ts`)
    await writeFile(file, text)
    const invite = await this.run('sealpost invite create --uses 9 --quiet')
    const running = this.#start([process.execPath, file], this.folder, { INVITE: invite.output.trim() })
    await running.closed
    return { code: running.child.exitCode, output: running.output() }
  }

  async types(): Promise<Ended> {
    const tsconfig = { extends: '../../tsconfig.base.json', compilerOptions: { types: ['bun'] }, include: ['*.ts'] }
    await writeFile(join(this.folder, 'tsconfig.json'), JSON.stringify(tsconfig))
    return this.run(`bun --bun run tsc -p "${this.folder}"`)
  }

  /** Writes two members' key files, as `bun scripts/dev.ts` does. */
  async keyFiles(): Promise<void> {
    await ready()
    await mkdir(join(this.folder, '.sealpost'), { mode: 0o700 })
    const { output } = await this.run('sealpost invite create --uses 2 --quiet')
    for (const name of ['alice', 'bob']) {
      const identity = generateIdentity()
      const { url, meshId, brokerKey } = await joinMesh({
        invite: output.trim(),
        identity,
        name: `${name} of the files`,
      })
      const enrolment = { meshId, brokerKey, authority: normalizeAuthority(url) }
      const contents = { kind: 'peer' as const, identity, formerBoxKeys: [], enrolment }
      await writeKeyFile(join(this.folder, `.sealpost/${name}.json`), contents)
    }
  }

  /**
   * Runs the page's shell blocks in order, and compares their outputs with the blocks that follow. Returns the number
   * of blocks.
   */
  async walk(blocks: readonly Block[]): Promise<number> {
    for (const [i, block] of blocks.entries()) {
      if (!isRun(block)) continue
      const keeps = block.kind === 'keeps-running'
      const { code, output } = await (keeps ? this.keep(block.text) : this.run(block.text))
      expect(code, `line ${block.line}:\n${output}`).toBe(keeps ? null : 0)
      const next = blocks[i + 1]
      if (next?.kind === 'output')
        expect(isAs(output, next.text), `line ${next.line}, but it said:\n${output}`).toBe(true)
    }
    return blocks.filter(isRun).length
  }

  /**
   * Signals the first process of each running command, from index `from`, or like a terminal all of its processes.
   * Resolves with the output when all have ended.
   */
  async stop(signal: NodeJS.Signals, to: 'first' | 'all', from = 0): Promise<Ended[]> {
    const all = this.#running.splice(from).reverse()
    for (const { child, closed } of all) {
      if (child.exitCode === null && child.signalCode === null)
        process.kill(to === 'all' ? -child.pid! : child.pid!, signal)
      await closed
    }
    return all.map(({ child, output }) => ({ code: child.exitCode, output: output() }))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop('SIGINT', 'all')
    await rm(this.folder, { recursive: true, force: true })
  }

  async #command(name: string, words: string): Promise<void> {
    const path = join(this.folder, 'bin', name)
    await writeFile(path, `#!/bin/sh\nexec ${words} "$@"\n`)
    await chmod(path, 0o755)
  }

  #shell(text: string): Running {
    const { prefix, cwd } = this.#place
    return this.#start([...prefix, 'sh', '-e', '-c', text], cwd)
  }

  #start(words: readonly string[], cwd: string, env: Record<string, string> = {}): Running {
    const path = [join(this.folder, 'bin'), '/usr/local/bin', '/usr/bin', '/bin'].join(':')
    // A single pipe keeps both streams in order.
    const child = spawn('sh', ['-c', 'exec "$@" 2>&1', 'sh', ...words], {
      cwd,
      env: { PATH: path, HOME: this.folder, NO_COLOR: '1', ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
      detached: true, // a process group, to be ended as a whole
    })
    let output = ''
    child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      output += text
    })
    return { child, closed: once(child, 'close'), output: () => output }
  }
}
