/**
 * Creates a CycloneDX 1.6 bill of materials from the lock file. The document is a single object, for which the library
 * and its parser, validator and XML writer are not needed.
 */

/** `bun.lock`, whose packages are `[name@version, registry, facts, integrity]`; a workspace has only the first. */
export interface Lock {
  readonly workspaces: Readonly<Record<string, Dependencies & { readonly name: string; readonly version?: string }>>
  readonly packages: Readonly<
    Record<string, readonly [id: string, registry?: string, facts?: Dependencies, integrity?: string]>
  >
}
interface Dependencies {
  readonly dependencies?: Readonly<Record<string, string>>
  readonly optionalDependencies?: Readonly<Record<string, string>>
}

export interface Component {
  readonly type: 'library'
  readonly 'bom-ref': string
  readonly name: string
  readonly version: string
  readonly purl: string
  readonly scope: 'required' | 'excluded'
  readonly licenses?: readonly { readonly expression: string }[]
  readonly hashes?: readonly { readonly alg: string; readonly content: string }[]
}

export interface Facts {
  readonly name: string
  readonly version: string
  /** SPDX expressions by `name@version`, of installed packages. */
  readonly licenses: ReadonlyMap<string, string>
}

export function billOf(lock: Lock, { name, version, licenses }: Facts) {
  const needed = neededBy(lock)
  const components = new Map<string, Component>()
  for (const [key, [id, , , integrity]] of Object.entries(lock.packages)) {
    if (integrity === undefined) continue // only workspaces lack facts
    const scope = needed.has(key) || components.get(id)?.scope === 'required' ? 'required' : 'excluded'
    components.set(id, componentOf(id, { scope, integrity, license: licenses.get(id) }))
  }
  const sorted = [...components.values()].sort((a, b) => (a.purl < b.purl ? -1 : 1))
  const metadata = { component: { type: 'application', 'bom-ref': name, name, version } }
  return { bomFormat: 'CycloneDX', specVersion: '1.6', version: 1, metadata, components: sorted }
}

interface Found {
  readonly scope: Component['scope']
  readonly integrity: string
  readonly license: string | undefined
}

function componentOf(id: string, { scope, integrity, license }: Found): Component {
  const at = id.lastIndexOf('@')
  const [name, version] = [id.slice(0, at), id.slice(at + 1)]
  const purl = `pkg:npm/${name.replace(/^@/, '%40')}@${encodeURIComponent(version)}`
  return {
    type: 'library',
    'bom-ref': purl,
    name,
    version,
    purl,
    scope,
    ...(license !== undefined && { licenses: [{ expression: license }] }),
    hashes: [hashOf(integrity)],
  }
}

function hashOf(integrity: string): { alg: string; content: string } {
  const [algorithm = '', base64 = ''] = integrity.split('-', 2)
  return { alg: algorithm.toUpperCase().replace('SHA', 'SHA-'), content: Buffer.from(base64, 'base64').toString('hex') }
}

/** Returns the keys of workspaces' runtime dependencies. */
function neededBy({ workspaces, packages }: Lock): Set<string> {
  const needed = new Set<string>()
  const walk = (from: string, of: Dependencies) => {
    for (const name of Object.keys({ ...of.dependencies, ...of.optionalDependencies })) {
      const key = keyOf(packages, from, name)
      if (key === undefined || needed.has(key)) continue
      needed.add(key)
      walk(key, packages[key]![2] ?? {})
    }
  }
  for (const workspace of Object.values(workspaces)) walk(workspace.name, workspace)
  return needed
}

/** Resolves a package to the nearest one above, like the module loader. */
function keyOf(packages: Lock['packages'], from: string, name: string): string | undefined {
  const above = from.match(/(?:@[^/]+\/)?[^/@][^/]*/g) ?? []
  for (let depth = above.length; depth >= 0; depth--) {
    const key = [...above.slice(0, depth), name].join('/')
    if (packages[key]) return key
  }
  return undefined
}
