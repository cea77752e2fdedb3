/**
 * CPU, memory and descriptors of a running program: from /proc on Linux, elsewhere CPU and memory from `ps`. A function
 * returns null when there is no such program or another account owns it.
 */
import { readdirSync, readFileSync } from 'node:fs'

export interface ProcessFacts {
  readonly cpuSeconds: number
  readonly rssMb: number
  /** Null when unknown. */
  readonly descriptors: number | null
}

/** Ticks per second in /proc/…/stat: 100 on every Linux platform that Bun runs on. */
const TICKS = 100
const isLinux = process.platform === 'linux'

export function processFacts(pid: number): ProcessFacts | null {
  if (!isLinux) return factsFromPs(pid)
  const stat = statOf(pid)
  const kilobytes = memoryOf(pid)
  if (!stat || !kilobytes) return null
  return { cpuSeconds: stat.ownTicks / TICKS, rssMb: kilobytes.rss / 1024, descriptors: descriptorsOf(pid) }
}

/** The highest memory of the program since its start. */
export function peakRssMb(pid: number): number | null {
  const kilobytes = isLinux ? memoryOf(pid) : null
  return kilobytes && kilobytes.peak / 1024
}

/**
 * A Postgres server as one program: its postmaster and all backends, also those that exited. Shared memory, which each
 * of them reports, counts once.
 */
export function postgresFacts(postmaster: number): ProcessFacts | null {
  if (!isLinux) return factsFromPs(postmaster)
  const own = statOf(postmaster)
  if (!own) return null
  let ticks = own.ownTicks + own.endedChildrenTicks
  let privateKb = 0
  let sharedKb = 0
  for (const pid of [postmaster, ...childrenOf(postmaster)]) {
    if (pid !== postmaster) ticks += statOf(pid)?.ownTicks ?? 0
    const memory = memoryOf(pid)
    privateKb += memory?.private ?? 0
    sharedKb = Math.max(sharedKb, memory?.shared ?? 0)
  }
  return { cpuSeconds: ticks / TICKS, rssMb: (privateKb + sharedKb) / 1024, descriptors: null }
}

/** The parent of a backend, if it is a Postgres server on this machine. */
export function postmasterOf(backendPid: number): number | null {
  const parent = isLinux ? statOf(backendPid) : null
  return parent && statOf(parent.parentPid)?.name.startsWith('postgres') ? parent.parentPid : null
}

/** Seconds that all cores together were busy since the machine started. */
export function machineBusySeconds(): number | null {
  const [, ...ticks] = text('/proc/stat')?.split('\n', 1)[0]?.trim().split(/\s+/) ?? []
  if (ticks.length < 8) return null
  const [user, nice, system, , , irq, softIrq] = ticks.map(Number)
  return (user! + nice! + system! + irq! + softIrq!) / TICKS
}

function statOf(pid: number) {
  const stat = text(`/proc/${pid}/stat`)
  if (!stat) return null
  const nameEnd = stat.lastIndexOf(')') // a name may contain spaces and parentheses
  const fields = stat.slice(nameEnd + 2).split(' ')
  const ticks = (at: number) => Number(fields[at])
  return {
    name: stat.slice(stat.indexOf('(') + 1, nameEnd),
    parentPid: Number(fields[1]),
    ownTicks: ticks(11) + ticks(12),
    endedChildrenTicks: ticks(13) + ticks(14),
  }
}

function memoryOf(pid: number) {
  const status = text(`/proc/${pid}/status`)
  if (!status?.includes('VmRSS')) return null
  const kilobytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? 0)
  return {
    rss: kilobytes('VmRSS'),
    peak: kilobytes('VmHWM'),
    private: kilobytes('RssAnon'),
    shared: kilobytes('RssFile') + kilobytes('RssShmem'),
  }
}

function childrenOf(pid: number): number[] {
  const listed = text(`/proc/${pid}/task/${pid}/children`)
  if (listed !== null) return listed.trim().split(' ').filter(Boolean).map(Number)
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
  return pids.map(Number).filter((child) => statOf(child)?.parentPid === pid)
}

function descriptorsOf(pid: number): number | null {
  try {
    return readdirSync(`/proc/${pid}/fd`).length
  } catch {
    return null // another account owns the program
  }
}

function text(path: string): string | null {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return null // the program exited, or this system has no such file
  }
}

function factsFromPs(pid: number): ProcessFacts | null {
  const listed = Bun.spawnSync(['ps', '-o', 'rss=,time=', '-p', String(pid)], { stderr: 'ignore' })
  const [rss, time] = listed.stdout.toString().trim().split(/\s+/)
  if (!listed.success || !rss || !time) return null
  const cpuSeconds = time.split(/[:-]/).reduce((total, part) => total * 60 + Number(part), 0)
  return { cpuSeconds, rssMb: Number(rss) / 1024, descriptors: null }
}
