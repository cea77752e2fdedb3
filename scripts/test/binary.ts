/** Builds the binary once per run, when a test first needs it; a `globalSetup` of vitest. */
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { inject } from 'vitest'
import type { TestProject } from 'vitest/node'

declare module 'vitest' {
  interface ProvidedContext {
    /** The URL that responds with the binary's path. */
    sealpostBinary: string
  }
}

export default async function setup(project: TestProject): Promise<() => void> {
  const folder = mkdtempSync(join(tmpdir(), 'sealpost built '))
  let building: Promise<Built> | undefined
  const server = createServer((_, response) => {
    building ??= build(folder)
    void building.then(({ status, text }) => response.writeHead(status).end(text))
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  project.provide('sealpostBinary', `http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  return () => {
    server.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

interface Built {
  readonly status: number
  /** The path of the binary, or an error. */
  readonly text: string
}

async function build(folder: string): Promise<Built> {
  const command = [process.execPath, join(import.meta.dirname, '../binary.ts'), '--out', folder, '--level', '9']
  const child = Bun.spawn(command, { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
  const [report, errors] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()])
  return (await child.exited) === 0 ? { status: 200, text: report.split('  ')[0]! } : { status: 500, text: errors }
}

/** Returns the path of the binary for this machine, which tests must not change. A release is tested with its own. */
export async function testBinary(): Promise<string> {
  const { RELEASE_FOLDER } = process.env
  if (RELEASE_FOLDER) {
    // Imported late, because the setup of every test run loads this file.
    const { binaryName, ownPlatform } = await import('../binary/build.ts')
    return join(RELEASE_FOLDER, binaryName(ownPlatform()))
  }
  const response = await fetch(inject('sealpostBinary'), { signal: AbortSignal.timeout(170_000) })
  const text = await response.text()
  if (!response.ok) throw new Error(text)
  return text
}
