/** Runs a local registry for tests, without access to any other one. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from '@sealpost/embedded-pg'
import { run } from '../../run.ts'

const PROGRAM = join(import.meta.dirname, '../registry')
const SETTINGS = `
storage: ./storage
web: { enable: false }
packages: { '**': { access: $all, publish: $all } }
max_body_size: 500mb
log: { type: stdout, format: json, level: warn }
`

export interface Registry extends AsyncDisposable {
  readonly url: string
}

export async function startRegistry(): Promise<Registry> {
  run([process.execPath, 'install', '--frozen-lockfile', '--ignore-scripts'], PROGRAM)
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-registry-'))
  await writeFile(join(folder, 'config.yaml'), SETTINGS)
  const listen = `127.0.0.1:${await freePort()}`
  const words = [join(PROGRAM, 'node_modules/verdaccio/bin/verdaccio'), '--config', 'config.yaml', '--listen', listen]
  const child = spawn(process.execPath, words, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] })
  const closed = once(child, 'close')
  const ready = Promise.withResolvers<void>()
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text
      if (output.includes('http address')) ready.resolve()
    })
  void closed.then(() => ready.reject(new Error(`The registry ended: ${output}`)))
  await ready.promise
  return {
    url: `http://${listen}/`,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await closed
      await rm(folder, { recursive: true, force: true })
    },
  }
}
