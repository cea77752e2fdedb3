/**
 * Writes a bill of materials (CycloneDX 1.6, JSON) from `bun.lock`: `bun scripts/sbom.ts > sbom.json`. Development
 * packages have the scope `excluded`.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import manifest from '../package.json'
import { billOf, type Lock } from './sbom/cyclonedx.ts'

const ROOT = join(import.meta.dirname, '..')

type Listed = Readonly<Record<string, readonly { readonly name: string; readonly versions: readonly string[] }[]>>

const lock = Bun.JSONC.parse(readFileSync(join(ROOT, 'bun.lock'), 'utf8')) as Lock
const { name, version } = manifest
console.log(JSON.stringify(billOf(lock, { name, version, licenses: installedLicenses() }), null, 2))

function installedLicenses(): Map<string, string> {
  const listed = Bun.spawnSync([process.execPath, 'pm', 'licenses', '--json'], { cwd: ROOT, stderr: 'inherit' })
  if (!listed.success) process.exit(1)
  const byLicense = JSON.parse(listed.stdout.toString()) as Listed
  const pairs = Object.entries(byLicense).flatMap(([license, packages]) =>
    packages.flatMap((one) => one.versions.map((its) => [`${one.name}@${its}`, license] as const)),
  )
  return new Map(pairs)
}
