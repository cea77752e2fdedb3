/** Builds and runs the image for tests with podman, without a registry, on this machine's glibc. */
import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { type Ended, Machine } from '@sealpost/cli/testing'
import { ROOT } from '../deploy/sources.ts'
import { binaryName, ownPlatform } from './build.ts'

const BASE = 'localhost/base'
export const IMAGE = 'localhost/sealpost'

/** crun refuses hybrid cgroups, so podman sees their first half. */
const WITH_CGROUPS =
  'umount /sys/fs/cgroup/unified 2>/dev/null; exec podman --root "$HOME/root" --runroot "$HOME/run" "$@"'
/** Options for sandboxes that forbid podman's default limits. */
export const IN_SANDBOX = [
  '--cgroups=disabled',
  '--network=host',
  '--ulimit=nofile=4096:4096',
  '--ulimit=nproc=4096:4096',
]

export type Podman = Machine

export function openPodman(): Promise<Podman> {
  return Machine.make(['unshare', '--mount', 'sh', '-c', WITH_CGROUPS, 'podman'])
}

/** Builds the image. Returns why containers can't run here, or null. */
export async function buildImage(podman: Podman, binary: string): Promise<string | null> {
  if (process.getuid?.() !== 0) return 'podman needs more settings for an account other than root'
  if (!Bun.which('podman')) return 'podman is not installed'
  const trial = await tryBase(podman, binary)
  if (trial.code !== 0) return `podman can't run a container: ${trial.stderr.trim()}`
  const context = mkdtempSync(join(podman.folder, 'image-'))
  copyFileSync(join(ROOT, 'LICENSE'), join(context, 'LICENSE'))
  mkdirSync(join(context, 'dist'))
  copyFileSync(binary, join(context, 'dist', binaryName(ownPlatform())))
  const file = [`--file=${join(ROOT, 'Dockerfile')}`, `--build-arg=BASE=${BASE}`]
  const platform = `--platform=linux/${process.arch === 'x64' ? 'amd64' : process.arch}` // podman 4 sets TARGETARCH only with it
  succeeded(await build(podman, [...file, platform, `--tag=${IMAGE}`, context]))
  return null
}

/** Makes a base from this machine's glibc, and runs its loader in a container. */
async function tryBase(podman: Podman, binary: string): Promise<Ended> {
  const context = mkdtempSync(join(podman.folder, 'base-'))
  const libraries = String(spawnSync('ldd', [binary]).stdout).match(/\/lib\S+/g)!
  for (const path of libraries) {
    mkdirSync(dirname(join(context, path)), { recursive: true })
    copyFileSync(path, join(context, path))
  }
  const file = join(podman.folder, 'Containerfile')
  writeFileSync(file, 'FROM scratch\nCOPY . /\n')
  const built = await build(podman, [`--file=${file}`, `--tag=${BASE}`, context])
  if (built.code !== 0) return built
  const loader = libraries.find((path) => path.includes('/ld-'))!
  return podman.run(['run', '--rm', ...IN_SANDBOX, BASE, loader, '--version'])
}

/** Only the `docker` format has health checks. */
const build = (podman: Podman, words: readonly string[]): Promise<Ended> =>
  podman.run(['build', '--format=docker', '--network=none', '--pull=never', ...words])

export const succeeded = ({ code, stdout, stderr }: Ended): string => {
  if (code !== 0) throw new Error(`${code}: ${stderr}`)
  return stdout.trim()
}
