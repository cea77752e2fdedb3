/** Builds the k6 scripts as their page describes, and runs them with stand-ins for k6's modules. */
import { spawnSync } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { World } from '@sealpost/broker/testing'
import { expect, onTestFinished, test } from 'vitest'

const K6 = join(import.meta.dirname, '../docs/k6')
const STAND_IN = join(import.meta.dirname, 'test/k6-stand-in.ts')

test('both scripts send and settle', { timeout: 120_000 }, async () => {
  await using world = await World.open()
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-k6-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  const peers = join(folder, 'peers.json')
  const run = (words: string[], env: Record<string, string> = {}) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, words, {
      env: { ...process.env, DATABASE_URL: world.databaseUrl, ...env },
      encoding: 'utf8',
    })
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    return stdout
  }
  const play = (name: string, env: Record<string, string>) => {
    const words = ['--preload', STAND_IN, '-e', `runScript(await import('${join(folder, name)}.js'))`]
    return JSON.parse(run(words, { PEERS: peers, ...env }))
  }
  run([join(K6, 'prepare.ts'), `ws://127.0.0.1:${world.broker.port}`, '3', peers])
  const scripts = ['http', 'websocket'].map((name) => join(K6, `${name}.ts`))
  run(['build', ...scripts, '--external', 'k6*', '--outdir', folder])
  const { checks } = play('http', {})
  expect(checks).toEqual({ stored: [true, true, true], fetched: [true, true, true], settled: [true, true, true] })
  const { metrics } = play('websocket', { SECONDS: '1' })
  expect(metrics.sealpost_refused ?? []).toEqual([])
  expect(metrics.sealpost_ack_ms.length).toBeGreaterThan(0)
  expect(metrics.sealpost_push_ms.length).toBeGreaterThan(0)
})
