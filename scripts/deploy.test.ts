/** Checks that settings, names, ports and paths in the deployment files exist. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { readConfig, settings } from '@sealpost/broker/config'
import { DockerfileParser, type Instruction } from 'dockerfile-ast'
import { describe, expect, test } from 'vitest'
import { platforms } from './binary/build.ts'
import { CHART, renderChart } from './deploy/chart.ts'
import { FORMULA, formulaOf } from './deploy/formula.ts'
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
    named('ENV').flatMap((each) => words(each).map((word) => word.split('=') as [string, string])),
  )

  test('contains the binary of its processor and the licence, and nothing else can get into the build', () => {
    const copied = named('COPY').map((each) => words(each)[0]!)
    const binaries = platforms.filter((name) => name.startsWith('linux')).map((name) => `dist/sealpost-${name}`)
    expect(copied.toSorted()).toEqual([...binaries, '/sealpost', 'LICENSE'].toSorted())
    for (const path of ['LICENSE', ...binaries]) expect([path, isIgnored(path)]).toEqual([path, false])
    const kept = ['.git/config', '.sealpost/broker.json', 'apps/broker/.sealpost/broker.json', 'dist/broker.json']
    for (const path of kept) expect([path, isIgnored(path)]).toEqual([path, true])
  })

  test('sets only settings that the broker knows, and exposes its ports', () => {
    expect(Object.keys(env)).toContain('ADMIN_PORT')
    expect(unknownNames(Object.keys(env))).toEqual([])
    expect(faultsOf(env)).toEqual([])
    expect(words(named('EXPOSE')[0]!)).toEqual([env.PORT, env.ADMIN_PORT])
  })

  test('has the user that Kubernetes gives it, who owns the folder of the key', () => {
    const keywords = instructions.map((each) => each.getKeyword())
    expect(keywords.indexOf('USER')).toBeLessThan(keywords.indexOf('WORKDIR'))
    const [{ spec }] = yamlOf('docs/deploy/kubernetes/brokers.yaml') as [any]
    const { runAsUser, runAsGroup } = spec.template.spec.securityContext
    expect(words(named('USER')[0]!)).toEqual([`${runAsUser}:${runAsGroup}`])
  })
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

  test('has the version of this repository', () => {
    const [{ images }] = yamlOf(`${folder}/kustomization.yaml`) as [{ images: { newTag: string }[] }]
    const [chart] = yamlOf(`${CHART}/Chart.yaml`) as [Record<string, string>]
    for (const version of [images[0]!.newTag, chart.version, chart.appVersion])
      expect(version).toBe(packageManifest.version)
  })

  test('the chart renders the same objects', () => {
    const plain = manifests.filter(({ kind }) => kind !== 'Namespace')
    const { spec } = plain.find(({ kind }) => kind === 'StatefulSet') as any
    Object.assign(spec.template.metadata.annotations, { 'checksum/settings': expect.any(String) })
    Object.assign(spec.template.spec, { nodeSelector: {}, tolerations: [] })
    Object.assign(spec.template.spec.containers[0], {
      image: `sealpost:${packageManifest.version}`,
      imagePullPolicy: 'IfNotPresent',
    })
    expect(renderChart()).toEqual(plain)
  })

  test('the chart renders other values, and its schema names every value', () => {
    const [values] = yamlOf(`${CHART}/values.yaml`) as [Record<string, object>]
    const off = { ingress: { enabled: false }, networkPolicy: { enabled: false } }
    const tolerations = [{ key: 'dedicated', operator: 'Exists' }]
    const rendered = renderChart({ ...off, tolerations, image: { ...values.image, repository: 'a/b', tag: '1' } })
    const kinds = manifests.map(({ kind }) => kind)
    expect(rendered.map(({ kind }) => kind)).toEqual(
      kinds.filter((kind) => !['Namespace', 'Ingress', 'NetworkPolicy'].includes(kind)),
    )
    for (const each of rendered) expect(faultOfManifest(each)).toBe(null)
    const { spec } = (rendered.find(({ kind }) => kind === 'StatefulSet') as any).spec.template
    expect([spec.containers[0].image, spec.tolerations]).toEqual(['a/b:1', tolerations])
    const { properties } = JSON.parse(textOf(`${CHART}/values.schema.json`))
    expect(Object.keys(properties).filter((name) => name !== 'global')).toEqual(Object.keys(values))
    for (const [name, { properties: known }] of Object.entries<any>(properties))
      if (known) expect(Object.keys(known)).toEqual(Object.keys(values[name]!))
  })

  test('Helm accepts the chart and renders the same objects', ({ skip }) => {
    if (!Bun.which('helm')) return skip('helm is not installed')
    const helm = (...words: string[]) => {
      const { stdout, stderr, exitCode } = Bun.spawnSync(['helm', ...words], { cwd: join(ROOT, CHART) })
      expect([exitCode, exitCode === 0 ? '' : `${stdout}${stderr}`]).toEqual([0, ''])
      return `${stdout}`
    }
    const version = ['--kube-version', '1.30.0']
    helm('lint', '--strict', ...version)
    const text = helm('template', 'sealpost', '.', '--namespace', 'sealpost', ...version)
    const documents = Bun.YAML.parse(text) as Manifest[]
    const ordered = (list: Manifest[]) => list.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
    const keyOf = ({ kind, metadata }: Manifest) => `${kind} ${metadata.name}`
    expect(ordered(documents)).toEqual(ordered(renderChart()))
  })

  test('mounts only existing volumes, and gives a broker time to shut down', () => {
    const volumes = brokers.template.spec.volumes.map(({ name }: { name: string }) => name)
    expect(container.volumeMounts.filter(({ name }: { name: string }) => !volumes.includes(name))).toEqual([])
    const { terminationGracePeriodSeconds } = brokers.template.spec
    expect(terminationGracePeriodSeconds).toBeGreaterThan(container.lifecycle.preStop.sleep.seconds + 10)
  })
})

describe('the Homebrew formula', () => {
  const formula = formulaOf('1.2.3', (name) => new Bun.CryptoHasher('sha256').update(name).digest('hex'))

  test('has the version and the checksum of each binary that Homebrew can install', () => {
    const installed = platforms.filter((name) => !name.startsWith('win32')).map((name) => `sealpost-${name}`)
    const parts = [...formula.matchAll(/\/#\{version\}\/(\S+)"\n\s+sha256 "(\w+)"/g)]
    expect(parts.map(([, name]) => name).toSorted()).toEqual(installed)
    for (const [, name, sum] of parts) expect(sum).toBe(new Bun.CryptoHasher('sha256').update(name!).digest('hex'))
    expect(formula).toContain('  version "1.2.3"\n')
    expect(textOf(FORMULA)).toContain(`  version "${packageManifest.version}"\n`)
  })

  test('is Ruby', ({ skip }) => {
    if (!Bun.which('ruby')) return skip('ruby is not installed')
    const { exitCode, stdout, stderr } = Bun.spawnSync(['ruby', '-wc'], { stdin: Buffer.from(formula), stderr: 'pipe' })
    expect([exitCode, `${stdout}`, `${stderr}`]).toEqual([0, 'Syntax OK\n', ''])
  })
})

describe('systemd', () => {
  const unit = textOf('docs/deploy/systemd/sealpost.service')
  const valuesOf = (key: string) => [...unit.matchAll(new RegExp(`^${key}=(.*)$`, 'gm'))].map(([, value]) => value!)

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

/** Returns whether Docker ignores the path, by the last matching line of .dockerignore. */
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
