/** Checks the deployment files: their settings, names, ports and paths must exist. */
import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { readConfig, settings } from '@sealpost/broker/config'
import { DockerfileParser, type From, type Instruction } from 'dockerfile-ast'
import { describe, expect, test } from 'vitest'
import { faultOfManifest, type Manifest } from './deploy/manifests.ts'
import { manifest as packageManifest, ROOT, textOf, yamlOf } from './deploy/sources.ts'

/** Settings of the platform, not of the broker. */
const PLATFORM = ['NODE_ENV']
const DATABASE = { DATABASE_URL: 'postgres://user:word@database/sealpost' }

const unknownNames = (names: Iterable<string>) =>
  [...names].filter(
    (name) => !(name in settings) && !(name.replace(/_FILE$/, '') in settings) && !PLATFORM.includes(name),
  )

const faultsOf = (env: Record<string, string>) => {
  const read = readConfig({ ...DATABASE, ...env })
  return read.ok ? [] : read.errors
}

describe('the image', () => {
  const instructions = DockerfileParser.parse(textOf('Dockerfile')).getInstructions()
  const named = (keyword: string) => instructions.filter((each) => each.getKeyword() === keyword)
  const words = (each: Instruction) => each.getArguments().map((word) => word.getValue())
  const env = Object.fromEntries(
    [...textOf('Dockerfile').matchAll(/^(?:ENV|\s{3})\s?(\w+)=(\S+?)(?: \\)?$/gm)].map(([, name, value]) => [
      name!,
      value!,
    ]),
  )

  test('copies only existing files, and every manifest before it installs', () => {
    const copied = named('COPY').filter(
      (each) => !each.getRange().toString().includes('--from') && !textAt(each).includes('--from='),
    )
    const sources = copied.flatMap((each) => words(each).slice(0, -1))
    expect(sources.filter((path) => !existsSync(join(ROOT, path)) || isIgnored(path))).toEqual([])
    const manifests = globSync('{apps,packages}/*/package.json', { cwd: ROOT })
    expect(manifests.filter((path) => !sources.includes(path))).toEqual([])
  })

  test('leaves keys, tests and installed packages out', () => {
    for (const path of ['.git/config', '.sealpost/broker.json', 'node_modules/x', 'apps/broker/.sealpost/broker.json'])
      expect(isIgnored(path)).toBe(true)
    expect(isIgnored('packages/core/src/shards/placement.test.ts')).toBe(true)
    for (const path of ['packages/schema/migrations/meta/_journal.json', 'packages/demo/src/page/index.html'])
      expect(isIgnored(path)).toBe(false)
  })

  test('has the Bun version that the repository requires, in each stage', () => {
    expect(`bun@${words(named('ARG')[0]!)[0]!.split('=')[1]}`).toBe(packageManifest.packageManager)
    const stages = named('FROM') as From[]
    const images = stages
      .map((from) => from.getImage())
      .filter((image) => !stages.some((from) => from.getBuildStage() === image))
    expect(images.length).toBeGreaterThan(0)
    for (const image of images) expect(image).toBe(`oven/bun:\${BUN_VERSION}-slim`)
  })

  test('sets only settings that the broker knows, and exposes its ports', () => {
    expect(Object.keys(env)).toContain('ADMIN_PORT')
    expect(unknownNames(Object.keys(env))).toEqual([])
    expect(faultsOf(env)).toEqual([])
    expect(words(named('EXPOSE')[0]!)).toEqual([env.PORT, env.ADMIN_PORT])
  })

  test('starts the broker as an unprivileged user, and contains the command', () => {
    expect(words(named('USER').at(-1)!)).toEqual(['bun'])
    const paths = [...textOf('Dockerfile').matchAll(/\/app\/(apps\/[\w/.-]+\.ts)/g)].map(([, path]) => path!)
    expect(paths).toEqual(['apps/cli/src/main.ts', 'apps/broker/src/main.ts'])
    expect(paths.filter((path) => !existsSync(join(ROOT, path)))).toEqual([])
  })

  const textAt = (each: Instruction) => textOf('Dockerfile').split('\n')[each.getRange().start.line]!
})

describe('compose.yaml', () => {
  interface Service {
    image: string
    build?: string
    environment?: Record<string, string>
    ports?: string[]
    volumes?: string[]
    networks: string[]
    depends_on?: Record<string, unknown>
    read_only?: boolean
    cap_drop?: string[]
  }
  const [compose] = yamlOf('compose.yaml') as [Record<'services' | 'volumes' | 'networks', Record<string, Service>>]
  const services = Object.entries(compose.services)
  const brokers = services.filter(([name]) => name.startsWith('broker'))

  test('gives brokers valid settings', () => {
    expect(brokers).toHaveLength(2)
    for (const [, { environment }] of brokers) {
      expect(unknownNames(Object.keys(environment!))).toEqual([])
      expect(faultsOf({ ...environment, ...DATABASE })).toEqual([])
    }
  })

  test('runs brokers with a read-only root file system and no privileges', () => {
    for (const [, broker] of brokers) expect(broker).toMatchObject({ read_only: true, cap_drop: ['ALL'], build: '.' })
  })

  test('opens ports only on this machine, and for a broker the one it listens on', () => {
    const ports = services.flatMap(([name, { ports = [] }]) => ports.map((port) => [name, port] as const))
    expect(ports.filter(([, port]) => !port.startsWith('127.0.0.1:'))).toEqual([])
    for (const [name, { environment, ports }] of brokers)
      expect([name, ports]).toEqual([name, [`127.0.0.1:${environment!.PORT}:${environment!.PORT}`]])
  })

  test('names only existing services, volumes and files', () => {
    for (const [, service] of services) {
      const { depends_on: needed = {}, networks, volumes = [], image } = service
      expect(Object.keys(needed).filter((name) => !(name in compose.services))).toEqual([])
      expect(networks.filter((name) => !(name in compose.networks))).toEqual([])
      const sources = volumes.map((volume) => volume.split(':')[0]!)
      expect(
        sources.filter((from) => (from.startsWith('.') ? !existsSync(join(ROOT, from)) : !(from in compose.volumes))),
      ).toEqual([])
      expect(image).toMatch(/:[\w.-]+$/)
    }
  })

  test('scrapes metrics where the brokers serve them', () => {
    const [scrape] = yamlOf('docs/grafana/prometheus.yaml') as [
      { scrape_configs: { static_configs: { targets: string[] }[] }[] },
    ]
    const targets = scrape.scrape_configs.flatMap((job) => job.static_configs.flatMap((each) => each.targets))
    expect(targets).toEqual(brokers.map(([name]) => `${name}:7451`))
  })
})

describe('Kubernetes', () => {
  const folder = 'docs/deploy/kubernetes'
  const files = readdirSync(join(ROOT, folder)).filter((name) => name !== 'kustomization.yaml')
  const manifests = files.flatMap((name) => yamlOf(`${folder}/${name}`) as Manifest[])
  const only = (kind: string) => manifests.find((each) => each.kind === kind)! as any
  const brokers = only('StatefulSet').spec
  const [container] = brokers.template.spec.containers

  test.each(manifests.map((each) => [each.kind, each] as const))("%s is valid by the API's schema", (_, manifest) => {
    expect(faultOfManifest(manifest)).toBe(null)
  })

  test('wrong types, missing fields and unknown fields are detected', () => {
    const [good] = [only('PodDisruptionBudget')]
    for (const spec of [{ maxUnavailable: [] }, { selektor: {} }])
      expect(faultOfManifest({ ...good, spec: { ...good.spec, ...spec } })).not.toBe(null)
    const { selector: _, ...rest } = brokers
    expect(faultOfManifest({ ...only('StatefulSet'), spec: rest })).toMatch(/selector/)
  })

  test('the kustomization lists each file', () => {
    const [{ resources }] = yamlOf(`${folder}/kustomization.yaml`) as [{ resources: string[] }]
    expect(resources.toSorted()).toEqual(files.toSorted())
  })

  test('gives brokers valid settings', () => {
    const { data } = only('ConfigMap')
    const named = container.env.map(({ name }: { name: string }) => name)
    expect(unknownNames([...Object.keys(data), ...named])).toEqual([])
    expect(faultsOf(data)).toEqual([])
    expect(container.envFrom).toEqual([{ configMapRef: { name: only('ConfigMap').metadata.name } }])
  })

  test('selects the brokers everywhere, and names their ports', () => {
    const { labels } = brokers.template.metadata
    const selectors = [
      brokers.selector.matchLabels,
      only('PodDisruptionBudget').spec.selector.matchLabels,
      only('NetworkPolicy').spec.podSelector.matchLabels,
      ...manifests.filter(({ kind }) => kind === 'Service').map(({ spec }: any) => spec.selector),
    ]
    for (const selector of selectors) expect(labels).toMatchObject(selector)
    const ports = new Map(container.ports.map((port: any) => [port.name, port.containerPort]))
    expect([...ports.values()]).toEqual([7450, 7451])
    for (const service of manifests.filter(({ kind }) => kind === 'Service') as any[])
      for (const { targetPort } of service.spec.ports) expect(ports.has(targetPort)).toBe(true)
  })

  test('mounts only existing volumes, and gives a broker time to shut down', () => {
    const volumes = brokers.template.spec.volumes.map(({ name }: { name: string }) => name)
    expect(container.volumeMounts.filter(({ name }: { name: string }) => !volumes.includes(name))).toEqual([])
    const { terminationGracePeriodSeconds } = brokers.template.spec
    expect(terminationGracePeriodSeconds).toBeGreaterThan(container.lifecycle.preStop.sleep.seconds + 10)
  })
})

describe('systemd', () => {
  const unit = textOf('docs/deploy/systemd/sealpost.service')
  const valuesOf = (key: string) => [...unit.matchAll(new RegExp(`^${key}=(.*)$`, 'gm'))].map(([, value]) => value!)

  test('starts a file of the repository', () => {
    const [start] = valuesOf('ExecStart')
    expect(existsSync(join(ROOT, start!.split('/opt/sealpost/')[1]!))).toBe(true)
  })

  test('gives the broker valid settings', () => {
    const lines = textOf('docs/deploy/systemd/broker.env')
      .split('\n')
      .filter((line) => /^\w/.test(line))
    const env = Object.fromEntries(lines.map((line) => line.split('=') as [string, string]))
    expect(unknownNames([...Object.keys(env), ...valuesOf('Environment').map((word) => word.split('=')[0]!)])).toEqual(
      [],
    )
    expect(faultsOf(env)).toEqual([])
  })

  test('passes the credentials that it names', () => {
    const given = valuesOf('LoadCredential').map((value) => value.split(':')[0])
    const named = valuesOf('Environment').flatMap((value) => /%d\/(.+)$/.exec(value)?.[1] ?? [])
    expect(named).toEqual(given)
  })
})

test('Caddy probes the brokers of the other recipes on a path that they serve', () => {
  const text = textOf('docs/deploy/caddy/Caddyfile')
  const upstreams = [...text.matchAll(/reverse_proxy (.+) \{/g)].map(([, words]) => words)
  expect(upstreams).toEqual(['127.0.0.1:7450 127.0.0.1:7460', '127.0.0.1:7450', '127.0.0.1:7460'])
  expect(/health_uri (\S+)/.exec(text)![1]).toBe('/readyz')
  expect(text.split('{').length).toBe(text.split('}').length)
})

/** As in Docker, the last matching line of .dockerignore decides. */
function isIgnored(path: string): boolean {
  const lines = readFileSync(join(ROOT, '.dockerignore'), 'utf8')
    .split('\n')
    .filter((line) => line && !line.startsWith('#'))
  let ignored = false
  for (const line of lines) {
    const pattern = line.replace(/^!/, '')
    const fits = [pattern, `${pattern}/**`].some((each) => new Bun.Glob(each).match(path))
    if (fits) ignored = !line.startsWith('!')
  }
  return ignored
}
