/** Creates the environment of documentation blocks: a home folder, `sealpost` and `bun` on the PATH, and a mesh. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { generateIdentity, normalizeAuthority, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { join as joinMesh } from '@sealpost/sdk/join'

const ROOT = join(import.meta.dirname, '../..')
const MAIN = join(ROOT, 'apps/cli/src/main.ts')
/** Matches what a command prints when it is ready. */
const IS_READY = /[Pp]ress Ctrl-C/

interface Running {
  readonly child: ChildProcess
  readonly closed: Promise<unknown>
  output(): string
}

export interface Ended {
  readonly code: number | null
  /** Both streams combined, as a terminal shows them. */
  readonly output: string
}

export class DocWorld implements AsyncDisposable {
  /** A folder inside the repository, so that programs find the repository's packages. */
  readonly folder: string
  readonly #running: Running[] = []

  private constructor(folder: string) {
    this.folder = folder
  }

  static async make(): Promise<DocWorld> {
    await mkdir(join(ROOT, '.sealpost'), { recursive: true, mode: 0o700 })
    const world = new DocWorld(await mkdtemp(join(ROOT, '.sealpost/blocks-')))
    await mkdir(join(world.folder, 'bin'))
    await world.#command('bun', `"${process.execPath}"`)
    await world.#command('sealpost', `"${process.execPath}" "${MAIN}"`)
    return world
  }

  /** Runs a shell script to its end, in the root of the repository. */
  async run(text: string): Promise<Ended> {
    const running = this.#start(['sh', '-e', '-c', text], ROOT)
    await running.closed
    return { code: running.child.exitCode, output: running.output() }
  }

  /** Starts a command that keeps running. Resolves with its output when it is ready. */
  async keep(text: string): Promise<Ended> {
    const running = this.#start(['sh', '-e', '-c', text], ROOT)
    this.#running.push(running)
    const ready = Promise.withResolvers<void>()
    running.child.stdout!.on('data', () => IS_READY.test(running.output()) && ready.resolve())
    await Promise.race([ready.promise, running.closed])
    return { code: running.child.exitCode, output: running.output() }
  }

  /** Runs a TypeScript program in this folder, with an invite. */
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

  /** Writes the key files of two members, like `bun scripts/dev.ts`, for the examples. */
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

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { child, closed } of this.#running.reverse()) {
      if (child.exitCode === null && child.signalCode === null) process.kill(-child.pid!, 'SIGINT')
      await closed
    }
    await rm(this.folder, { recursive: true, force: true })
  }

  async #command(name: string, words: string): Promise<void> {
    const path = join(this.folder, 'bin', name)
    await writeFile(path, `#!/bin/sh\nexec ${words} "$@"\n`)
    await chmod(path, 0o755)
  }

  #start(words: readonly string[], cwd: string, env: Record<string, string> = {}): Running {
    const path = [join(this.folder, 'bin'), '/usr/local/bin', '/usr/bin', '/bin'].join(':')
    // A single pipe for both streams keeps their order.
    const child = spawn('sh', ['-c', 'exec "$@" 2>&1', 'sh', ...words], {
      cwd,
      env: { PATH: path, HOME: this.folder, NO_COLOR: '1', ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
      detached: true, // a separate process group, which can be ended as a whole
    })
    let output = ''
    child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      output += text
    })
    return { child, closed: once(child, 'close'), output: () => output }
  }
}
