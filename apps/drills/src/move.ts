/** Moves a mesh with a long queue between two cells while its peers send. Each message must arrive once, in order. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { BrokerProgram } from '@sealpost/broker-program'
import { type EmbeddedPostgres, freePort } from '@sealpost/embedded-pg'
import { enrolMesh, generateMesh, identityOf, type MeshMembers } from '@sealpost/harness/members/mesh'
import { wholeNumber } from '@sealpost/harness/programs/command'
import { MemoryGrowth } from '@sealpost/harness/programs/machine'
import { newBrokerKeyFile, startOwnBroker } from '@sealpost/harness/programs/own-broker'
import { atRate, waitUntil } from '@sealpost/harness/programs/pace'
import { startOwnPostgres } from '@sealpost/harness/programs/postgres'
import { type Teardown, temporaryFolder } from '@sealpost/harness/programs/teardown'
import { sum } from '@sealpost/harness/report/text'
import { type MoveReport, moveMesh } from '@sealpost/mesh-move'
import { migrate } from '@sealpost/schema'
import { clockMs, connect, type Peer, type PeerEvent } from '@sealpost/sdk'
import { type Millis, OperatingError } from '@sealpost/std'
import type { Drill } from './drill.ts'
import { addCounts, countDeliveries, type DeliveryCounts, deliveryCheck } from './pair-traffic.ts'

interface MoveOptions {
  /** The number of messages for peers that are offline during the move. */
  readonly queued: number
  /** Messages per second between peers that are online. */
  readonly rate: number
  /** Whether the old cell stops after the move, and the new one's broker restarts. */
  readonly oldCellGone?: boolean
}

interface MoveResult extends Pick<MoveReport, 'rows' | 'pauseMs'>, DeliveryCounts {
  readonly queued: number
  /** The number of messages between online peers. */
  readonly live: number
  /** The time from the call to `send` until its ack. */
  readonly longestSendMs: Millis
  /** The longest pause between two messages of a pair. */
  readonly longestPauseMs: Millis
  /** The duration of `moveMesh`, with the deletion of the old rows. */
  readonly tookMs: Millis
  /** How far this process's memory, with the peers', grew during the move. */
  readonly grownMb: number
}

const PAIRS = 4
const PAUSE_MS_MAX = 10_000
const FINISH_WITHIN_MS = 300_000
/** The time limit for a session and, without the old cell, for all acks. A pair may pause for ten seconds. */
const STUCK_AFTER_MS = 30_000
const CALM_MS = 3_000
const FILLED_AT_ONCE = 250

export const moveDrill: Drill<MoveOptions> = {
  name: 'move',
  description: 'Move a mesh between two cells under load and count the messages that arrive.',
  configure: (command) =>
    command
      .option('--queued <n>', 'the number of messages that wait for offline peers', wholeNumber(1, 1_000_000), 100_000)
      .option('--rate <n>', 'the messages per second between the other peers', wholeNumber(1, 1_000_000), 200)
      .option('--old-cell-gone', 'stop the old cell after the move and restart the broker of the new one'),
  run: async (options, teardown) => {
    const result = await drillMove(options, teardown)
    const { rows, tookMs, pauseMs, longestSendMs, longestPauseMs, grownMb, queued, live } = result
    const seconds = (ms: Millis) => `${(ms / 1000).toFixed(2)} s`
    const moved = `moved ${rows} rows in ${seconds(tookMs)} with a pause of ${seconds(pauseMs)}`
    return {
      result,
      checks: [
        [true, `${moved}; the mover's memory grew by ${Math.round(grownMb)} MB`],
        [
          !options.oldCellGone || longestPauseMs <= PAUSE_MS_MAX,
          `the longest send took ${seconds(longestSendMs)}, the longest pause of a pair ${seconds(longestPauseMs)}`,
        ],
        deliveryCheck(queued + live, result),
      ],
    }
  },
}

async function drillMove(options: MoveOptions, teardown: Teardown): Promise<MoveResult> {
  const { queued, rate, oldCellGone } = options
  const cells = await TwoCells.open(teardown)
  const pairs = await Promise.all(Array.from({ length: PAIRS }, (_, no) => Pair.open(cells, no)))
  await Promise.all(pairs.map((pair) => pair.fill(Math.ceil(queued / PAIRS))))
  const stop = async () => {
    for (const pair of pairs) pair.isOver = true
  }
  teardown.add({ end: stop })
  const sending = Promise.all(pairs.map((pair) => pair.keepSending(rate / PAIRS)))
  sending.catch(() => undefined) // prevents an unhandled rejection
  await Bun.sleep(CALM_MS)
  const memory = new MemoryGrowth(process.pid)
  const startMs = clockMs()
  const { rows, pauseMs } = await moveMesh(cells.route)
  const tookMs = Math.round(clockMs() - startMs)
  const grownMb = memory.stop()
  await Bun.sleep(CALM_MS)
  if (oldCellGone) {
    await cells.endOld()
    await cells.restartNew()
    await Bun.sleep(CALM_MS)
  }
  await stop()
  await Promise.race([sending, failAfter(oldCellGone ? STUCK_AFTER_MS : FINISH_WITHIN_MS)])
  await Promise.all(pairs.map((pair) => pair.receiveAll()))
  return {
    ...{ rows, pauseMs, tookMs, grownMb },
    queued: sum(pairs.map(({ filled }) => filled)),
    live: sum(pairs.map(({ sent }) => sent)),
    ...addCounts(pairs.map(({ counts }) => counts)),
    longestSendMs: Math.round(Math.max(...pairs.map(({ longestSendMs }) => longestSendMs))),
    longestPauseMs: Math.round(Math.max(...pairs.map(({ longestPauseMs }) => longestPauseMs))),
  }
}

/** Rejects after this time. @throws OperatingError `pair_stuck` */
async function failAfter(ms: Millis): Promise<never> {
  await Bun.sleep(ms)
  throw new OperatingError('pair_stuck', `A pair had sends without an ack for ${ms / 1000} s.`)
}

interface Cell {
  readonly postgres: EmbeddedPostgres
  readonly env: Readonly<Record<string, string>>
  broker: BrokerProgram
}

class TwoCells {
  readonly mesh: MeshMembers
  readonly #old: Cell
  readonly #new: Cell
  readonly #teardown: Teardown
  /** The new cell's addresses, which peers have learned. */
  #learned: readonly string[] = []

  private constructor(mesh: MeshMembers, cells: { readonly old: Cell; readonly new: Cell }, teardown: Teardown) {
    this.mesh = mesh
    this.#old = cells.old
    this.#new = cells.new
    this.#teardown = teardown
  }

  static async open(teardown: Teardown): Promise<TwoCells> {
    const PORT = String(await freePort())
    const CELLS_FILE = join(await temporaryFolder('drill', teardown), 'cells.json')
    await writeFile(CELLS_FILE, JSON.stringify({ cells: [{ name: 'south', urls: [`ws://127.0.0.1:${PORT}`] }] }))
    const env = { BROKER_KEY_FILE: await newBrokerKeyFile(teardown), LIMITS: 'off', CELLS_FILE }
    const old = await startCell(env, teardown)
    const mesh = await generateMesh(PAIRS * ROLES)
    await enrolMesh(old.postgres.url, mesh, 'drill')
    return new TwoCells(mesh, { old, new: await startCell({ ...env, PORT, CELL: 'south' }, teardown) }, teardown)
  }

  async endOld(): Promise<void> {
    await this.#old.broker.stop()
    await this.#old.postgres.stop()
  }

  /** Ends every session, so that peers reconnect. */
  async restartNew(): Promise<void> {
    const { broker, postgres, env } = this.#new
    broker.kill()
    await broker.exited
    this.#new.broker = await startOwnBroker({ databaseUrl: postgres.url, env }, this.#teardown)
  }

  get route() {
    return {
      meshId: this.mesh.meshId,
      from: { cell: 'north', databaseUrl: this.#old.postgres.url },
      to: { cell: 'south', databaseUrl: this.#new.postgres.url },
    }
  }

  /** Connects a peer to the old cell, or after the move to learned addresses. */
  async connect(member: number): Promise<Peer> {
    const { url, brokerKey } = this.#old.broker
    const { meshId, secrets } = this.mesh
    const onEvent = (event: PeerEvent) => {
      if (event.type === 'addresses') this.#learned = event.cell
    }
    const target = { url: [...this.#learned, url], brokerKey, meshId, identity: identityOf(secrets[member]!) }
    const peer = await connect({ ...target, onEvent, signal: AbortSignal.timeout(STUCK_AFTER_MS) })
    this.#teardown.add({ end: () => peer.close() })
    return peer
  }
}

async function startCell(env: Cell['env'], teardown: Teardown): Promise<Cell> {
  const postgres = await startOwnPostgres(teardown)
  await migrate(postgres.url)
  return { postgres, env, broker: await startOwnBroker({ databaseUrl: postgres.url, env }, teardown) }
}

/** The peers per pair: a sender, an online recipient, and one that connects at the end. */
const ROLES = 3

class Pair {
  isOver = false
  sent = 0
  filled = 0
  longestSendMs: Millis = 0
  longestPauseMs: Millis = 0
  #lastAtMs: Millis | null = null
  readonly #cells: TwoCells
  readonly #sender: Peer
  readonly #recipient: Peer
  readonly #absent: number
  readonly #received: number[] = []
  readonly #receivedLater: number[] = []

  private constructor(cells: TwoCells, peers: { sender: Peer; recipient: Peer }, absent: number) {
    this.#cells = cells
    this.#sender = peers.sender
    this.#recipient = peers.recipient
    this.#absent = absent
    this.#recipient.onMessage((message) => this.#take(Number(message.text())))
  }

  static async open(cells: TwoCells, no: number): Promise<Pair> {
    const first = no * ROLES
    const peers = { sender: await cells.connect(first), recipient: await cells.connect(first + 1) }
    return new Pair(cells, peers, first + 2)
  }

  /** Sends messages to the offline peers. */
  async fill(count: number): Promise<void> {
    const to = this.#cells.mesh.peerKeys[this.#absent]!
    while (this.filled < count) {
      const texts = Array.from({ length: Math.min(FILLED_AT_ONCE, count - this.filled) }, () => String(this.filled++))
      await Promise.all(texts.map((text) => this.#sender.send(to, text)))
    }
  }

  async keepSending(perSecond: number): Promise<void> {
    await atRate({ perSecond, until: () => this.isOver }, () => this.#sendOne())
  }

  async receiveAll(): Promise<void> {
    const latecomer = await this.#cells.connect(this.#absent)
    latecomer.onMessage((message) => void this.#receivedLater.push(Number(message.text())))
    const hasAll = () => this.#received.length >= this.sent && this.#receivedLater.length >= this.filled
    await waitUntil('every message has arrived', hasAll, FINISH_WITHIN_MS).catch(() => undefined) // missing messages count as lost
  }

  get counts(): DeliveryCounts {
    return addCounts([countDeliveries(this.#received, this.sent), countDeliveries(this.#receivedLater, this.filled)])
  }

  #take(no: number): void {
    const nowMs = clockMs()
    this.longestPauseMs = Math.max(this.longestPauseMs, nowMs - (this.#lastAtMs ?? nowMs))
    this.#lastAtMs = nowMs
    this.#received.push(no)
  }

  async #sendOne(): Promise<void> {
    const calledAtMs = clockMs()
    await this.#sender.send(this.#recipient.key, String(this.sent++))
    this.longestSendMs = Math.max(this.longestSendMs, clockMs() - calledAtMs)
  }
}
