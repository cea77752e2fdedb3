/**
 * Runs `sealpost schedule run` with a tick each second, while brokers and the command itself are killed and its clock
 * is set, and compares the received messages with the ticks. As a program: `bun apps/cli/src/test/schedule-kills.ts
 * KILLS`.
 */
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { AS_ALICE, letIn, Machine, type Running, startUp, type Up } from './cli.ts'

const LIBRARIES = ['/usr/lib/x86_64-linux-gnu', '/usr/lib/aarch64-linux-gnu', '/usr/lib64']
const FAKETIME = LIBRARIES.map((folder) => join(folder, 'faketime/libfaketime.so.1')).find(existsSync)
/** Why the clock can't be set, or null. */
export const clockObstacle = FAKETIME ? null : 'libfaketime (the Debian package faketime) is not installed'

const HOUR_S = 3600
const RUNNER_KILLED_EVERY = 3
const CLOCK_SET_EVERY = 2

export interface KillsReport {
  readonly received: number
  readonly repeated: number
  /** The gaps between consecutive ticks, in seconds. */
  readonly gaps: readonly number[]
  readonly brokerKills: number
  readonly runnerKills: number
  /** The steps of the clock to a later time than any before. Each leaves a gap, because ticks were missed. */
  readonly forwardSteps: number
  readonly backwardSteps: number
}

export async function runKills(kills: number): Promise<KillsReport> {
  await using machine = await Machine.make()
  const up = await startUp(machine, AS_ALICE)
  await letIn(machine, 'bob')
  const clock = new FakeClock(join(machine.folder, 'clock'))
  const added = await machine.run(['schedule', 'add', '* * * * * *', 'bob', '{tick}', '--json'])
  if (added.code !== 0) throw new Error(added.stderr)
  const bob = machine.start(['listen', '--json', '--profile', 'bob'])
  let runner = machine.start(['schedule', 'run'], clock.environment)
  let runnerKills = 0
  for (let kill = 1; kill <= kills; kill++) {
    await killBroker(up)
    if (kill % RUNNER_KILLED_EVERY === 0) {
      runner.child.kill('SIGKILL')
      await runner.ended()
      runnerKills += 1
      runner = machine.start(['schedule', 'run'], clock.environment)
    }
    if (kill % CLOCK_SET_EVERY === 0) clock.step()
    // Behind the latest tick, the clock reaches no tick, so nothing can arrive.
    if (clock.isAhead) await oneMore(bob)
  }
  if (!clock.isAhead) clock.step()
  await oneMore(bob)
  await runner.interrupt()
  const flushed = await machine.run(['send', 'bob', 'end'])
  if (flushed.code !== 0) throw new Error(flushed.stderr)
  await bob.until('the last message arrives', ({ stdout }) => stdout.includes('"text":"end"'))
  return { ...reportOf(ticksIn(bob)), brokerKills: kills, runnerKills, ...clock.steps }
}

class FakeClock {
  readonly #file: string
  #hours = 0
  #count = 0
  highest = 0
  readonly steps = { forwardSteps: 0, backwardSteps: 0 }

  constructor(file: string) {
    this.#file = file
    this.#write()
  }

  get environment(): Record<string, string> {
    if (!FAKETIME) return {}
    return {
      ...{ LD_PRELOAD: FAKETIME, FAKETIME_TIMESTAMP_FILE: this.#file },
      ...{ FAKETIME_NO_CACHE: '1', FAKETIME_DONT_FAKE_MONOTONIC: '1' },
    }
  }

  get isAhead(): boolean {
    return this.#hours === this.highest
  }

  /** Sets the clock an hour forward, back, and forward again, in turns, so that it advances an hour in three steps. */
  step(): void {
    if (!FAKETIME) return
    this.#count += 1
    const isBack = this.#count % 3 === 2
    this.#hours += isBack ? -1 : 1
    if (isBack) this.steps.backwardSteps += 1
    if (this.#hours > this.highest) this.steps.forwardSteps += 1
    this.highest = Math.max(this.#hours, this.highest)
    this.#write()
  }

  #write(): void {
    writeFileSync(this.#file, `+${this.#hours * HOUR_S}\n`)
  }
}

/** Kills the broker. Resolves when `up` has started another one. */
async function killBroker(up: Up): Promise<void> {
  const pid = up.brokerPid()
  process.kill(pid, 'SIGKILL')
  await up.process.until('another broker is ready', () => up.brokerPid() !== pid)
}

async function oneMore(bob: Running): Promise<void> {
  const { length } = bob.lines
  await bob.until('another tick arrives', ({ lines }) => lines.length > length)
}

const ticksIn = (bob: Running): number[] =>
  bob.lines.flatMap((line) => {
    const { text } = JSON.parse(line) as { text: string }
    return text === 'end' ? [] : [new Date(text).getTime() / 1000]
  })

function reportOf(ticks: readonly number[]): Pick<KillsReport, 'received' | 'repeated' | 'gaps'> {
  const sorted = [...new Set(ticks)].sort((a, b) => a - b)
  const gaps = sorted.slice(1).map((tick, i) => tick - sorted[i]!)
  return { received: ticks.length, repeated: ticks.length - sorted.length, gaps: gaps.filter((gap) => gap !== 1) }
}

if (import.meta.main) {
  const report = await runKills(Number(process.argv[2] ?? 100))
  process.stdout.write(`${JSON.stringify({ ...report, clockObstacle })}\n`)
}
