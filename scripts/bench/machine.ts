/** On what the figures were measured. */
import { arch, cpus, platform, release, totalmem } from 'node:os'

export interface Machine {
  readonly cores: number
  readonly cpu: string
  readonly memoryGb: number
  readonly system: string
  readonly bun: string
  /** Of the checkout; null outside of one. */
  readonly gitSha: string | null
  /** The day, UTC. */
  readonly date: string
}

export function thisMachine(): Machine {
  const asked = Bun.spawnSync(['git', 'rev-parse', '--short=12', 'HEAD'], {
    cwd: import.meta.dirname,
    stderr: 'ignore',
  })
  return {
    cores: cpus().length,
    cpu: cpus()[0]?.model.trim() || 'unknown',
    memoryGb: Math.round(totalmem() / 2 ** 30),
    system: `${platform()} ${release().split('-')[0]} ${arch()}`,
    bun: Bun.version,
    gitSha: asked.success ? asked.stdout.toString().trim() : null,
    date: new Date().toISOString().slice(0, 10),
  }
}
