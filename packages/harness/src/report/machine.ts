/** The machine and the commit that figures were measured on. */
import { arch, cpus, platform, release, totalmem } from 'node:os'

export interface Machine {
  readonly cores: number
  readonly cpu: string
  readonly memoryGb: number
  readonly system: string
  readonly bun: string
  /** Of the checkout; null outside a checkout. */
  readonly gitSha: string | null
  /** UTC. */
  readonly date: string
}

export function thisMachine(): Machine {
  const revision = Bun.spawnSync(['git', 'rev-parse', '--short=12', 'HEAD'], {
    cwd: import.meta.dirname,
    stderr: 'ignore',
  })
  return {
    cores: cpus().length,
    cpu: cpus()[0]?.model.trim() || 'unknown',
    memoryGb: Math.round(totalmem() / 2 ** 30),
    system: `${platform()} ${release().split('-')[0]} ${arch()}`,
    bun: Bun.version,
    gitSha: revision.success ? revision.stdout.toString().trim() : null,
    date: new Date().toISOString().slice(0, 10),
  }
}
