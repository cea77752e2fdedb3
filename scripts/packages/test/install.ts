/** Installs a packed SDK as an application would, without a registry. */
import { cpSync, existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { run } from '../../run.ts'
import { ROOT } from '../sdk.ts'

const LIBRARIES = ['libsodium', 'libsodium-sumo', 'libsodium-wrappers', 'libsodium-wrappers-sumo', '@noble/hashes']

/** Unpacks the package and its dependencies into the project in `folder`. */
export function installSdk(tarball: string, folder: string): void {
  const modules = join(folder, 'node_modules')
  unpack(tarball, join(modules, '@sealpost/sdk'))
  const own = join(ROOT, 'packages/identity/node_modules')
  const beside = ['libsodium-wrappers', 'libsodium-wrappers-sumo'].map((name) =>
    join(realpathSync(join(own, name)), '..'),
  )
  for (const library of LIBRARIES) {
    const from = [own, ...beside].map((modules) => join(modules, library)).find(existsSync)
    cpSync(realpathSync(from!), join(modules, library), { recursive: true, dereference: true })
  }
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
}

/** Unpacks an npm package without the folder that its tarball begins with. */
export function unpack(tarball: string, folder: string): void {
  mkdirSync(folder, { recursive: true })
  run(['tar', 'xzf', tarball, '--strip-components=1', '-C', folder], folder)
}

/** Writes the JavaScript of TypeScript modules into one folder. The modules import one another from the same folder. */
export function transpile(sources: readonly string[], folder: string): void {
  const typescript = new Bun.Transpiler({ loader: 'ts', target: 'node' })
  for (const source of sources) {
    const code = typescript.transformSync(readFileSync(source, 'utf8'))
    const name = source.slice(source.lastIndexOf('/') + 1).replace(/\.ts$/, '.js')
    writeFileSync(join(folder, name), code.replace(/(['"]\.\/[\w-]+)\.ts(['"])/g, '$1.js$2'))
  }
}
