/** Sets up a run's stage: Postgres, brokers, peers and ledgers. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { identityOf, type MeshMembers } from '@sealpost/harness/members/mesh'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { writeKeyFile } from '@sealpost/identity/key-file'
import type { Database } from '@sealpost/pg'
import { migrate } from '@sealpost/schema'
import { clockMs } from '@sealpost/sdk'
import { OperatingError, type Random } from '@sealpost/std'
import { addMembers, createMesh } from '@sealpost/store'
import { LedgerWriter } from '../judgement/ledger.ts'
import { type Invited, invite, Population, type PopulationMember, type PopulationSetting } from '../peers/population.ts'
import { type BrokerSetting, Brokers } from './brokers.ts'
import { Postgres, type PostgresSetting } from './postgres.ts'

export interface TortureClusterOptions extends BrokerSetting, PopulationSetting {
  readonly postgres: PostgresSetting
  /** Messages per second, if the peers keep up. */
  readonly rate: number
  readonly bodyBytes: number
  readonly seed: number
  /** A path that the scenario created. */
  readonly place?: string | undefined
}

/** The run's form, on which durations and amounts depend. */
export type Measure = 'short' | 'full'

/** The time without a moved message, or in `WAITED_TOO_LONG_MS` with an unmet condition, after which a run is stuck. */
const STUCK_AFTER_MS = 90_000
const WAITED_TOO_LONG_MS = 300_000
const LOOK_MS = 20
const CHUNK = 1000

export class TortureCluster {
  readonly postgres: Postgres
  readonly brokers: Brokers
  readonly population: Population
  readonly ledger: LedgerWriter
  readonly ledgerFiles: readonly string[]
  readonly random: Random
  readonly measure: Measure
  readonly #setting: TortureClusterOptions
  readonly #meshes: readonly MeshMembers[]

  private constructor(
    parts: Pick<TortureCluster, 'postgres' | 'brokers' | 'population' | 'ledger' | 'ledgerFiles'>,
    { setting, meshes }: { setting: TortureClusterOptions; meshes: readonly MeshMembers[] },
    chance: Pick<TortureCluster, 'random' | 'measure'>,
  ) {
    this.postgres = parts.postgres
    this.brokers = parts.brokers
    this.population = parts.population
    this.ledger = parts.ledger
    this.ledgerFiles = parts.ledgerFiles
    this.random = chance.random
    this.measure = chance.measure
    this.#setting = setting
    this.#meshes = meshes
  }

  static async open(
    setting: TortureClusterOptions,
    chance: Pick<TortureCluster, 'random' | 'measure'>,
    teardown: Teardown,
  ): Promise<TortureCluster> {
    const folder = await mkdtemp(join(tmpdir(), 'sealpost-torture-'))
    teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
    const { seed, bodyBytes, casts } = setting
    const ledgerFiles = casts.map((_, program) => join(folder, `peers-${program}.ndjson`))
    const ownFile = join(folder, 'faults.ndjson')
    const ledger = new LedgerWriter(ownFile)
    const postgres = await Postgres.open(setting.postgres, teardown)
    const invited = await invite(setting)
    await enrol(postgres, invited)
    const keyFile = join(folder, 'broker.json')
    const brokers = await Brokers.open({ ...setting, postgres, keyFile, programs: casts.length, ledger }, teardown)
    const urls = casts.map(({ isDirect }, program) => (isDirect ? brokers.urlFor(program) : brokers.frontUrl(program)))
    const around = { urls, brokerKey: brokers.key, ledgerFiles, bodyBytes, seed }
    const population = await Population.open(invited, around, teardown)
    const parts = { postgres, brokers, population, ledger, ledgerFiles: [ownFile, ...ledgerFiles] }
    return new TortureCluster(parts, { setting, meshes: invited.meshes }, chance)
  }

  get place(): string | undefined {
    return this.#setting.place
  }

  get writers(): PopulationMember[] {
    return this.population.members.filter(({ isWriting, isSleeper }) => isWriting && !isSleeper)
  }
  get sleepers(): PopulationMember[] {
    return this.population.members.filter(({ isSleeper }) => isSleeper)
  }
  /** The silent peers, which join when a scenario needs them. */
  get crowd(): PopulationMember[] {
    return this.population.members.filter(({ isWriting }) => !isWriting)
  }

  /** Writes the key file of a member, for its program's broker. */
  async writeKeyFileOf({ no, meshNo, program }: PopulationMember, path: string): Promise<void> {
    const { meshId, secrets } = this.#meshes[meshNo]!
    const identity = identityOf(secrets[Math.floor(no / this.#meshes.length)]!)
    const authority = new URL(this.brokers.frontUrl(program)).host
    const enrolment = { meshId, authority, brokerKey: this.brokers.key }
    await writeKeyFile(path, { kind: 'peer', identity, formerBoxKeys: [], enrolment })
  }

  queuedFor({ key }: PopulationMember): Promise<number> {
    return this.postgres.countQueuedFor(key)
  }

  pick<T>(list: readonly T[]): T {
    return list[this.random.below(list.length)]!
  }

  /** Returns `short` in a short run, otherwise a random amount up to `full`. */
  amount(short: number, full: number): number {
    return this.measure === 'short' ? short : short + this.random.below(full - short + 1)
  }

  async begin(): Promise<void> {
    await this.population.join(this.writers)
    this.flow()
  }

  flow(): void {
    this.population.pace(this.#setting.rate)
  }

  /** Waits for this many more acks. @throws OperatingError `stuck` */
  acks(count: number): Promise<void> {
    const from = this.population.progress.acked
    return this.until(`${count} more messages are acked`, () => this.population.progress.acked >= from + count)
  }

  /** Waits until the condition is true. @throws OperatingError `stuck` */
  async until(claim: string, condition: () => boolean | Promise<boolean>): Promise<void> {
    let state = ''
    const endMs = clockMs() + WAITED_TOO_LONG_MS
    let movedAtMs = clockMs()
    for (;;) {
      if (await Promise.race([this.population.failed, condition()])) return
      const now = JSON.stringify(this.population.progress)
      if (now !== state) movedAtMs = clockMs()
      state = now
      const isStuck = clockMs() - movedAtMs > STUCK_AFTER_MS || clockMs() > endMs
      if (isStuck) throw new OperatingError('stuck', `Waited too long until ${claim}.`)
      await Bun.sleep(LOOK_MS)
    }
  }

  /** Stops the traffic and waits until the queue is empty. @returns what remains if it is stuck, otherwise null */
  async drain(): Promise<string | null> {
    const { population, postgres } = this
    try {
      population.pace(0)
      await population.join(this.sleepers)
      await this.until('every send has its reply', () => population.progress.pending === 0)
      let queued = Infinity
      let movedAtMs = clockMs()
      while (queued > 0 && clockMs() - movedAtMs < STUCK_AFTER_MS) {
        const now = await postgres.countQueued()
        if (now !== queued) movedAtMs = clockMs()
        queued = now
        if (queued > 0) await Bun.sleep(LOOK_MS * 5)
      }
      return queued === 0 ? null : `${queued} deliveries remain in the queue`
    } catch (error) {
      if (error instanceof OperatingError && error.code === 'stuck') return error.message
      throw error
    }
  }
}

async function enrol({ url, db }: Pick<Postgres, 'url' | 'db'>, { meshes }: Invited): Promise<void> {
  await migrate(url)
  for (const [i, mesh] of meshes.entries()) await enrolMesh(db, mesh, `torture ${i}`)
}

async function enrolMesh(db: Database, { meshId, bindings }: MeshMembers, name: string): Promise<void> {
  await createMesh(db, { meshId, name })
  for (let at = 0; at < bindings.length; at += CHUNK) await addMembers(db, meshId, bindings.slice(at, at + CHUNK))
}
