/**
 * Runs the commands of each page about deployment, up to a message between two clients. Stand-ins replace `docker`,
 * `kubectl` and addresses.
 */
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type BrokerProgram, startBroker } from '@sealpost/broker-program'
import { startEmbedded } from '@sealpost/embedded-pg'
import { scratchDatabase } from '@sealpost/schema/testing'
import { expect, test } from 'vitest'
import { ROOT, textOf, yamlOf } from './deploy/sources.ts'
import { blocksOf } from './doc-blocks/blocks.ts'

type Environment = Readonly<Record<string, string>>

/** Returns the shell blocks of a section. */
function blocksBelow(path: string, heading: string): string[] {
  const [, section] = `\n${textOf(path)}`.split(`\n## ${heading}\n`)
  return blocksOf(section!.split('\n## ')[0]!).map(({ text }) => text)
}

/** An operator's machine: a folder, commands on the PATH, and brokers. */
class Site implements AsyncDisposable {
  readonly folder: string
  readonly #ends: (() => Promise<unknown>)[] = []

  private constructor(folder: string) {
    this.folder = folder
    this.#ends.push(() => rm(folder, { recursive: true, force: true }))
  }

  static async make(): Promise<Site> {
    const site = new Site(await mkdtemp(join(tmpdir(), 'sealpost-deploy-')))
    await mkdir(join(site.folder, 'bin'))
    await site.command('sealpost', `exec "${process.execPath}" "${ROOT}/apps/cli/src/main.ts" "$@"`)
    return site
  }

  get environment(): Environment {
    const path = [join(this.folder, 'bin'), '/usr/local/bin', '/usr/bin', '/bin'].join(':')
    return { PATH: path, HOME: this.folder, NO_COLOR: '1' }
  }

  async command(name: string, script: string): Promise<void> {
    const path = join(this.folder, 'bin', name)
    await writeFile(path, `#!/bin/sh\n${script}\n`)
    await chmod(path, 0o755)
  }

  /** Creates a stand-in that runs the arguments after `mark` in the container's environment. */
  containers(name: string, mark: string, env: Environment): Promise<void> {
    const all = { ...env, PATH: this.environment.PATH! }
    const words = Object.entries(all).map(([key, value]) => `'${key}=${value}'`)
    return this.command(name, `while [ "$1" != ${mark} ]; do shift; done; shift; exec env -i ${words.join(' ')} "$@"`)
  }

  async database(): Promise<string> {
    const scratch = await scratchDatabase()
    this.#ends.push(() => scratch.drop())
    return scratch.url
  }

  async ownServer() {
    const server = await startEmbedded()
    this.#ends.push(() => server.stop())
    return server
  }

  async broker(environment: Environment): Promise<BrokerProgram> {
    const anywhere = { HOST: '127.0.0.1', PORT: '0', ADMIN_HOST: '127.0.0.1', ADMIN_PORT: '0' }
    const broker = await startBroker({ environment: { ...this.environment, ...environment, ...anywhere } })
    this.#ends.push(() => broker.stop())
    return broker
  }

  /** Runs a page's block with some words replaced. @returns its output */
  async run(block: string, replaced: Environment = {}, env: Environment = {}): Promise<string> {
    const text = Object.entries(replaced).reduce((all, [from, to]) => all.replaceAll(from, to), block)
    const child = Bun.spawn(['sh', '-e', '-c', text], {
      cwd: this.folder,
      env: { ...this.environment, ...env },
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
    })
    const [output, errors] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()])
    expect(await child.exited, `${text}\n${output}${errors}`).toBe(0)
    return output
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const end of this.#ends.reverse()) await end()
  }
}

const dialled = ({ url }: BrokerProgram): string => `ws://${new URL(url).host}`
const DATABASE_URL = 'postgres://user:password@host/database'
const KEY_FILE = 'broker.json'
const ARRIVED = /alice \([\w-]{9}\) {2}Are you there\?\n/

/** Parses `NAME=value` lines. */
const variablesOf = (text: string): Environment =>
  Object.fromEntries([...text.matchAll(/^(\w+)=(.*)$/gm)].map(([, name, value]) => [name!, value!]))

const imageEnvironment = (): Environment =>
  Object.fromEntries(
    [...textOf('Dockerfile').matchAll(/^(?:ENV| {4})\s?([A-Z]\w+)=(\S+?)(?: \\)?$/gm)].map(([, name, value]) => [
      name!,
      value!,
    ]),
  )

test('docs/OPERATIONS.md, The first mesh', async () => {
  await using site = await Site.make()
  const url = await site.database()
  await site.run(`sealpost shard keygen ${KEY_FILE}`)
  const broker = await site.broker({ DATABASE_URL: url, BROKER_KEY_FILE: join(site.folder, KEY_FILE) })
  const names = { [DATABASE_URL]: url, 'ws://127.0.0.1:7450': dialled(broker) }
  expect(await site.run(blocksBelow('docs/OPERATIONS.md', 'The first mesh').at(-1)!, names)).toMatch(ARRIVED)
})

test('docs/deploy/README.md, Compose', async () => {
  await using site = await Site.make()
  const server = await site.ownServer()
  const { password } = new URL(server.url)
  const passwords: Environment = { POSTGRES_PASSWORD: password, BROKER_PASSWORD: 'b1', OPERATOR_PASSWORD: 'o1' }
  const [compose] = yamlOf('compose.yaml') as [{ services: Record<string, { environment: Environment }> }]
  const environmentOf = (service: string): Environment => {
    const given = Object.entries({ ...imageEnvironment(), ...compose.services[service]!.environment })
    const filled = (text: string) =>
      text
        .replace(/\$\{(\w+):\?[^}]*\}/, (_, name: string) => passwords[name]!)
        .replace('@postgres:5432/sealpost', `@127.0.0.1:${server.port}/postgres`)
        .replace(/(ws:\/\/localhost):\d+/, '$1:0')
    return Object.fromEntries(given.filter(([name]) => name !== 'NATS_URL').map(([name, text]) => [name, filled(text)]))
  }
  await site.run('sealpost db prepare', {}, environmentOf('prepare'))
  await site.run(`sealpost shard keygen ${KEY_FILE}`) // both containers mount the file
  const keys = { BROKER_KEY_FILE: join(site.folder, KEY_FILE) }
  for (const service of ['broker-a', 'broker-b']) await site.broker({ ...environmentOf(service), ...keys })
  await site.containers('docker', 'broker-a', environmentOf('broker-a'))
  expect(await site.run(blocksBelow('docs/deploy/README.md', 'Compose').at(-1)!)).toMatch(ARRIVED)
  expect(environmentOf('broker-a').DATABASE_URL).toContain('//broker:b1@')
})

test('docs/deploy/README.md, Kubernetes', async () => {
  await using site = await Site.make()
  const blocks = blocksBelow('docs/deploy/README.md', 'Kubernetes')
  await site.run(blocks[0]!.split('\n').find((line) => line.startsWith('sealpost '))!)
  const [config] = yamlOf('docs/deploy/kubernetes/settings.yaml') as [{ data: Environment }]
  const [{ spec }] = yamlOf('docs/deploy/kubernetes/brokers.yaml') as [any]
  const mounted = (path: string) => path.replace('/etc/sealpost', site.folder)
  const named: [string, string][] = spec.template.spec.containers[0].env.map((each: any) => [
    each.name,
    mounted(each.value ?? 'sealpost-0'),
  ])
  const environment = { ...imageEnvironment(), ...config.data, ...Object.fromEntries(named) }
  await writeFile(join(site.folder, 'database-url'), await site.database())
  const broker = await site.broker(environment)
  await site.containers('kubectl', '--', environment)
  expect(await site.run(blocks.at(-1)!, { 'wss://broker.example': dialled(broker) })).toMatch(ARRIVED)
})

test('docs/deploy/README.md, systemd', async () => {
  await using site = await Site.make()
  const blocks = blocksBelow('docs/deploy/README.md', 'systemd')
  const here = { '/etc/sealpost': join(site.folder, 'etc') }
  const makesKey = blocks[0]!.split('\n').find((line) => line.includes('shard keygen'))!
  await site.run(makesKey, here)
  await writeFile(join(site.folder, 'etc/database-url'), await site.database())
  const unit = textOf('docs/deploy/systemd/sealpost.service').replaceAll('%d', join(site.folder, 'etc'))
  const given = [...unit.matchAll(/^Environment=(.*)$/gm)].map(([, variable]) => variable!).join('\n')
  const broker = await site.broker({ ...variablesOf(textOf('docs/deploy/systemd/broker.env')), ...variablesOf(given) })
  const names = { ...here, 'wss://broker.example': dialled(broker) }
  expect(await site.run(blocks.at(-1)!, names)).toMatch(ARRIVED)
})

test('docs/deploy/README.md, TLS: two brokers behind one name', async () => {
  await using site = await Site.make()
  const url = await site.database()
  await site.run(`sealpost shard keygen ${KEY_FILE}`)
  const settings = variablesOf(textOf('docs/deploy/systemd/broker.env'))
  const shared = { ...settings, DATABASE_URL: url, BROKER_KEY_FILE: join(site.folder, KEY_FILE) }
  const brokers: BrokerProgram[] = []
  for (const SHARD_NAME of ['a', 'b'])
    brokers.push(await site.broker({ ...shared, SHARD_NAME, PUBLIC_URL: 'ws://127.0.0.1:0' }))
  const names = { [DATABASE_URL]: url, 'wss://broker.example': dialled(brokers[1]!) }
  expect(await site.run(blocksBelow('docs/deploy/README.md', 'TLS').at(-1)!, names)).toMatch(ARRIVED)
})

test.skipIf(!Bun.which('systemd-analyze'))('systemd accepts the unit', async () => {
  const unit = textOf('docs/deploy/systemd/sealpost.service')
  const here = unit.replace('/usr/local/bin/sealpost', process.execPath) // systemd requires an existing program
  const folder = process.env.TMPDIR ?? '/tmp'
  const file = join(folder, `sealpost-${process.pid}.service`)
  await Bun.write(file, here)
  const { exitCode, stderr } = Bun.spawnSync(['systemd-analyze', 'verify', '--man=no', file], { stderr: 'pipe' })
  await Bun.file(file).delete()
  expect(`${stderr}`.split('\n').filter((line) => line.includes('sealpost-'))).toEqual([])
  expect(exitCode).toBe(0)
})
