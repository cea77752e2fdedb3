/**
 * Reports the use of each quota of a mesh, and who uses most of it. Reads as many rows as the quotas allow, so call it
 * rarely.
 */
import type { Quota, QuotaList } from '@sealpost/operator'
import type { Database } from '@sealpost/pg'
import type { SenderBacklog } from '@sealpost/protocol'
import type { Queue } from '@sealpost/queue'
import type { MeshId, Millis, PeerKey, PeerNo } from '@sealpost/std'
import {
  CENSUS_START,
  type CensusCursor,
  type CensusPage,
  countMembers,
  type DatabaseStats,
  findLargestUses,
  findMeshes,
  findPeers,
  type QuotaUse,
  type RecipientBacklog,
  readCensusPage,
  readDatabaseStats,
} from '@sealpost/store'
import { type Config, limitsOf } from '../../config/config.ts'

/**
 * The waiting deliveries of one recipient. A scan of the queue counts them, a few thousand rows at a time, and pauses
 * in between for fifty times as long, up to five seconds, so that it does not slow messages.
 */
export interface WaitingCount {
  readonly depth: number
  readonly held: number
  /** When the oldest delivery was enqueued, according to the database clock. */
  readonly oldestAtMs: Millis
}

export interface MeshWaiting {
  depth: number
  oldestAtMs: Millis
  recipientCount: number
  readonly recipients: Map<PeerNo, WaitingCount>
}

export interface Counted {
  readonly depth: number
  readonly recipientCount: number
  /** When the oldest delivery was enqueued; Infinity if none waits. */
  readonly oldestAtMs: Millis
  readonly meshes: ReadonlyMap<MeshId, MeshWaiting>
  /** When the last complete scan ended (monotonic clock); null before the first. */
  readonly countedAtMs: Millis | null
}

const ROWS = 5000
const PAUSE_MIN_MS = 1000
const PAUSE_MAX_MS = 5000
const PAUSE_FACTOR = 50
const RECIPIENTS_MAX = 50_000
const BLIND_AFTER_MS = 15_000
const NOTHING_COUNTED: Counted = { depth: 0, recipientCount: 0, oldestAtMs: Infinity, meshes: new Map(), countedAtMs: null } // biome-ignore format: one thing

export class Census {
  counted: Counted = NOTHING_COUNTED
  private lookedAtMs: Millis = -Infinity
  private readonly db: Database
  private readonly accepted: () => number
  private readonly failed: (error: unknown) => void
  private place: CensusCursor = CENSUS_START
  private seen: RecipientBacklog[] = []
  private timer: ReturnType<typeof setTimeout> | undefined
  private isStopped = false
  private isFailing = false
  private databaseAheadMs: Millis = 0
  private acceptedThen = 0

  /** `accepted` returns how many envelopes this broker has accepted. `failed` is called once per outage. */
  constructor(db: Database, accepted: () => number, failed: (error: unknown) => void) {
    this.db = db
    this.accepted = accepted
    this.failed = failed
    void this.walk()
  }

  get isBlind(): boolean {
    return performance.now() - this.lookedAtMs > BLIND_AFTER_MS
  }

  ageMs(atMs: Millis): Millis {
    return Number.isFinite(atMs) ? Math.max(0, Math.round(Date.now() + this.databaseAheadMs - atMs)) : 0
  }

  stop(): void {
    this.isStopped = true
    clearTimeout(this.timer)
  }

  private async walk(): Promise<void> {
    const startedAtMs = performance.now()
    if (this.isQuiet(startedAtMs)) return this.walkAfter(PAUSE_MIN_MS)
    this.acceptedThen = this.accepted()
    const look = await readCensusPage(this.db, this.place, ROWS).catch((error) => {
      if (!this.isFailing) this.failed(error)
      return null
    })
    this.isFailing = look === null
    if (look) this.take(look)
    if (this.isStopped) return
    const restMs = PAUSE_FACTOR * (performance.now() - startedAtMs)
    this.walkAfter(Math.min(PAUSE_MAX_MS, Math.max(PAUSE_MIN_MS, restMs)))
  }

  private walkAfter(pauseMs: Millis): void {
    this.timer = setTimeout(() => void this.walk(), pauseMs)
    this.timer.unref()
  }

  /** Returns whether the queue is empty and this broker accepts nothing, in which case scans are rare. */
  private isQuiet(nowMs: Millis): boolean {
    if (this.isFailing || this.place !== CENSUS_START || this.counted.depth > 0) return false
    return this.accepted() === this.acceptedThen && nowMs - this.lookedAtMs < PAUSE_MAX_MS
  }

  private take({ backlogs, next, nowMs }: CensusPage): void {
    this.lookedAtMs = performance.now()
    if (nowMs > 0) this.databaseAheadMs = nowMs - Date.now()
    for (const backlog of backlogs) this.seen.push(backlog)
    this.place = next ?? CENSUS_START
    if (next) return
    this.counted = countUp(this.seen, performance.now())
    this.seen = []
  }
}

function countUp(seen: readonly RecipientBacklog[], countedAtMs: Millis): Counted {
  const meshes = new Map<MeshId, MeshWaiting>()
  let [depth, recipientCount, oldest] = [0, 0, Infinity]
  for (const { meshId, recipient, depth: count, held, oldestAtMs } of seen) {
    const mesh = meshes.get(meshId) ?? { depth: 0, oldestAtMs: Infinity, recipientCount: 0, recipients: new Map() }
    meshes.set(meshId, mesh)
    const known = mesh.recipients.get(recipient)
    if (!known) recipientCount += 1
    if (!known) mesh.recipientCount += 1
    mesh.depth += count
    mesh.oldestAtMs = Math.min(mesh.oldestAtMs, oldestAtMs)
    depth += count
    oldest = Math.min(oldest, oldestAtMs)
    if (!known && recipientCount > RECIPIENTS_MAX) continue
    mesh.recipients.set(recipient, {
      depth: (known?.depth ?? 0) + count,
      held: (known?.held ?? 0) + held,
      oldestAtMs: Math.min(known?.oldestAtMs ?? Infinity, oldestAtMs),
    })
  }
  return { depth, recipientCount, oldestAtMs: oldest, meshes, countedAtMs }
}

export interface QuotaParts {
  readonly db: Database
  readonly queue: Pick<Queue, 'measure' | 'measureMesh'>
  readonly census: Census
  readonly config: Config
}

/** The number of rows at which counting stops without a quota. */
const ROWS_MAX = 100_000

type Use = readonly [name: Quota['name'], used: number, setting: keyof Config & string, peer: PeerNo | PeerKey | null]

export class QuotaView {
  readonly #parts: QuotaParts

  constructor(parts: QuotaParts) {
    this.#parts = parts
  }

  async of(meshId: MeshId): Promise<QuotaList | undefined> {
    const { db } = this.#parts
    if ((await findMeshes(db, [meshId])).length === 0) return undefined
    const [members, largest] = [await countMembers(db, meshId), await findLargestUses(db, meshId)]
    const uses: Use[] = [
      ['members', members, 'MEMBERS_MAX', null],
      ...(await this.#meshUses(meshId)),
      ...(await this.#mailboxUses(meshId)),
      ...OF_MEMBERS.map((row) => useOf(row, largest)),
    ]
    const numbers = uses.flatMap(([, , , peer]) => (typeof peer === 'number' ? [peer] : []))
    const peers = new Map((await findPeers(db, meshId, numbers)).map(({ peer, peerKey }) => [peer, peerKey]))
    return {
      quotas: uses.map(([name, used, setting, peer]) => ({
        ...{ name, used, setting, max: this.#maxOf(setting) },
        peerKey: typeof peer === 'number' ? (peers.get(peer) ?? null) : peer,
      })),
    }
  }

  async #meshUses(meshId: MeshId): Promise<Use[]> {
    const { queue, config } = this.#parts
    const measured = await queue.measureMesh(meshId, limitsOf(config).mesh?.countMax ?? ROWS_MAX)
    const [count, bytes] = [largestBy('count', measured), largestBy('bytes', measured)]
    return [
      ['mesh_deliveries', sumOf('count', measured), 'MESH_MAX', null],
      ['mesh_bytes', sumOf('bytes', measured), 'MESH_BYTES_MAX', null],
      ['mesh_sender_deliveries', count.count, 'MESH_PER_SENDER_MAX', count.sender],
      ['mesh_sender_bytes', bytes.bytes, 'MESH_BYTES_PER_SENDER_MAX', bytes.sender],
    ]
  }

  async #mailboxUses(meshId: MeshId): Promise<Use[]> {
    const { queue, census, config } = this.#parts
    const recipients = [...(census.counted.meshes.get(meshId)?.recipients ?? [])]
    const [fullest] = recipients.sort(([, a], [, b]) => b.depth - a.depth)
    const peer = fullest?.[0] ?? null
    const rows = limitsOf(config).mailbox?.countMax ?? ROWS_MAX
    const [measured = []] = peer === null ? [] : await queue.measure([{ meshId, peer }], rows)
    const [count, bytes] = [largestBy('count', measured), largestBy('bytes', measured)]
    return [
      ['mailbox_deliveries', sumOf('count', measured), 'MAILBOX_MAX', peer],
      ['mailbox_bytes', sumOf('bytes', measured), 'MAILBOX_BYTES_MAX', peer],
      ['mailbox_sender_deliveries', count.count, 'MAILBOX_PER_SENDER_MAX', count.sender],
      ['mailbox_sender_bytes', bytes.bytes, 'MAILBOX_BYTES_PER_SENDER_MAX', bytes.sender],
    ]
  }

  #maxOf(setting: Use[2]): number | null {
    const { config } = this.#parts
    const isOff = setting.startsWith('MESH_') && config.MESH_MAX === 0
    const isAlways = ALWAYS.includes(setting)
    return (config.LIMITS === 'off' && !isAlways) || isOff ? null : Number(config[setting])
  }
}

/** The quotas that `LIMITS=off` does not disable. */
const ALWAYS: readonly string[] = [
  'GROUPS_PER_OWNER',
  'POOLS_PER_OWNER',
  'DEAD_LETTERS_PER_SENDER_MAX',
  'DEAD_LETTER_BYTES_PER_SENDER_MAX',
]

const OF_MEMBERS = [
  ['dead_letters', 'DEAD_LETTERS_PER_SENDER_MAX'],
  ['dead_letter_bytes', 'DEAD_LETTER_BYTES_PER_SENDER_MAX'],
  ['groups', 'GROUPS_PER_OWNER'],
  ['pools', 'POOLS_PER_OWNER'],
] as const

function useOf([name, setting]: (typeof OF_MEMBERS)[number], largest: readonly QuotaUse[]): Use {
  const found = largest.find(({ what }) => what === name)
  return [name, found?.used ?? 0, setting, found?.peerKey ?? null]
}

type By = 'count' | 'bytes'
const NOBODY = { sender: null, count: 0, bytes: 0 }

const sumOf = (by: By, measured: readonly SenderBacklog[]): number => measured.reduce((sum, one) => sum + one[by], 0)

const largestBy = (
  by: By,
  measured: readonly SenderBacklog[],
): Omit<SenderBacklog, 'sender'> & { sender: PeerNo | null } =>
  measured.reduce<Omit<SenderBacklog, 'sender'> & { sender: PeerNo | null }>(
    (most, one) => (one[by] > most[by] ? one : most),
    NOBODY,
  )

/** The database server's statistics, and its write rate between two samples. */
export interface KnownFigures extends DatabaseStats {
  readonly atMs: Millis
  /** Null before the second sample. */
  readonly walBytesPerSecond: number | null
}

export function databaseFigures(db: Database): Cached<KnownFigures> {
  let before: KnownFigures | null = null
  return new Cached(async () => {
    const figures = await readDatabaseStats(db)
    const atMs = performance.now()
    const walBytesPerSecond = before
      ? Math.max(0, (1000 * (figures.walBytes - before.walBytes)) / (atMs - before.atMs))
      : null
    before = { ...figures, atMs, walBytesPerSecond }
    return before
  })
}

const GOOD_FOR_MS = 5000

export class Cached<T> {
  private readonly look: () => Promise<T>
  private known: { readonly value: T; readonly atMs: Millis } | null = null
  private asking: Promise<T> | null = null

  constructor(look: () => Promise<T>) {
    this.look = look
  }

  async read(): Promise<T> {
    if (this.known && performance.now() - this.known.atMs < GOOD_FOR_MS) return this.known.value
    this.asking ??= this.ask().finally(() => {
      this.asking = null
    })
    return this.asking
  }

  private async ask(): Promise<T> {
    const value = await this.look()
    this.known = { value, atMs: performance.now() }
    return value
  }
}
