/**
 * The drill of a move: two cells with a server and a broker each, a mesh with a long queue, and peers that write all the
 * while. The mesh is moved, and each message must have come to its reader once, in its order.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { BrokerProgram } from '@sealpost/broker/program'
import { addMembers, createMesh, type MoveReport, migrate, moveMesh, openDatabase } from '@sealpost/db'
import { type EmbeddedPostgres, startEmbedded } from '@sealpost/db/embedded'
import { bindBoxKey, generateIdentity, generateSigningKeys, type Identity, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { connect, type Peer, type PeerEvent } from '@sealpost/sdk'
import { type Millis, OperatingError, type PeerKey } from '@sealpost/std'
import { startOwnBroker } from '../lib/own-broker.ts'
import type { Teardown } from '../lib/teardown.ts'
import { newMeshId } from '../load/seed.ts'
import { type Order, orderOf } from './order.ts'

export interface MoveDrillOptions {
  /** Messages for peers that are away while the mesh moves. */
  readonly queued: number
  /** Messages a second between peers that are there. */
  readonly rate: number
  /** After the move the broker and the server of the old cell end, and then the new broker starts again. */
  readonly isOldCellGone: boolean
}

export interface MoveDrillResult extends Pick<MoveReport, 'rows' | 'pauseMs'>, Order {
  readonly queued: number
  /** Between peers that were there. */
  readonly live: number
  /** From the send to the ack, of the one that waited longest. */
  readonly longestSendMs: Millis
  /** Between two messages that one pair's reader got, in the pair that waited longest. */
  readonly longestPauseMs: Millis
  /** From the order to move until what was left behind had gone, too. */
  readonly tookMs: Millis
  /** By which the memory of the mover's process, in which these peers live, rose meanwhile. */
  readonly grownBytes: number
}

const PAIRS = 4
const YEAR_MS = 365 * 86_400_000
const PATIENCE_MS = 300_000
/** To get a session, and without the old cell to have all sends answered: a pair may pause for ten seconds. */
const STUCK_AFTER_MS = 30_000
/** Live traffic before the move, and behind it. */
const AROUND_MS = 3_000
const FILLED_AT_ONCE = 250
const SAMPLE_MS = 20

export async function drillMove(options: MoveDrillOptions, teardown: Teardown): Promise<MoveDrillResult> {
  const { queued, rate, isOldCellGone } = options
  await ready()
  const cells = await TwoCells.make(teardown)
  const pairs = await Promise.all(Array.from({ length: PAIRS }, () => Pair.make(cells)))
  await Promise.all(pairs.map((pair) => pair.fill(Math.ceil(queued / PAIRS))))
  const traffic = pairs.map((pair) => pair.keepSending(rate / PAIRS))
  await delay(AROUND_MS)
  const memory = new MemoryWatch()
  const startedAtMs = performance.now()
  const { rows, pauseMs } = await moveMesh(cells.order)
  const tookMs = Math.round(performance.now() - startedAtMs)
  const grownBytes = memory.end()
  await delay(AROUND_MS)
  if (isOldCellGone) {
    await cells.endNorth()
    await cells.restartSouth()
    await delay(AROUND_MS)
  }
  for (const pair of pairs) pair.isOver = true
  await allWithin(traffic, isOldCellGone ? STUCK_AFTER_MS : PATIENCE_MS)
  await Promise.all(pairs.map((pair) => pair.readAll()))
  const sum = (of: (pair: Pair) => number) => pairs.reduce((total, pair) => total + of(pair), 0)
  return {
    ...{ rows, pauseMs, tookMs, grownBytes },
    queued: sum((pair) => pair.filled),
    live: sum((pair) => pair.sent),
    lost: sum((pair) => pair.judge().lost),
    duplicates: sum((pair) => pair.judge().duplicates),
    misordered: sum((pair) => pair.judge().misordered),
    longestSendMs: Math.round(Math.max(...pairs.map((pair) => pair.longestSendMs))),
    longestPauseMs: Math.round(Math.max(...pairs.map((pair) => pair.longestPauseMs))),
  }
}

/** @throws OperatingError `pair_stuck` */
async function allWithin(traffic: readonly Promise<void>[], withinMs: Millis): Promise<void> {
  const all = Promise.all(traffic).then(() => true)
  all.catch(() => undefined) // of sends that end with their peers
  const patience = Promise.withResolvers<false>()
  const timer = setTimeout(() => patience.resolve(false), withinMs)
  const isDone = await Promise.race([all, patience.promise])
  clearTimeout(timer)
  if (isDone) return
  throw new OperatingError('pair_stuck', `The sends of a pair were not answered within ${withinMs / 1000} s.`)
}

interface Cell {
  readonly postgres: EmbeddedPostgres
  readonly env: Readonly<Record<string, string>>
  broker: BrokerProgram
}

class TwoCells {
  readonly meshId = newMeshId()
  readonly teardown: Teardown
  private readonly north: Cell
  private readonly south: Cell
  /** Addresses of the new cell, as peers learned them. */
  private learned: readonly string[] = []

  private constructor(north: Cell, south: Cell, teardown: Teardown) {
    this.north = north
    this.south = south
    this.teardown = teardown
  }

  static async make(teardown: Teardown): Promise<TwoCells> {
    const folder = await mkdtemp(join(tmpdir(), 'sealpost-drill-'))
    teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
    const keyFile = join(folder, 'broker.json')
    await writeKeyFile(keyFile, { kind: 'broker', signing: generateSigningKeys() })
    const PORT = String(await freePort())
    const CELLS_FILE = join(folder, 'cells.json')
    await writeFile(CELLS_FILE, JSON.stringify({ cells: [{ name: 'south', urls: [`ws://127.0.0.1:${PORT}`] }] }))
    const env = { BROKER_KEY_FILE: keyFile, LIMITS: 'off', CELLS_FILE }
    const south = await startCell({ ...env, PORT, CELL: 'south' }, teardown)
    const cells = new TwoCells(await startCell(env, teardown), south, teardown)
    await cells.onNorth((db) => createMesh(db, { meshId: cells.meshId, name: 'drill' }))
    return cells
  }

  async endNorth(): Promise<void> {
    await this.north.broker.stop()
    await this.north.postgres.stop()
  }

  /** Every session ends, so that every peer has to dial again. */
  async restartSouth(): Promise<void> {
    const { broker, postgres, env } = this.south
    broker.kill()
    await broker.exited
    this.south.broker = await startOwnBroker({ databaseUrl: postgres.url, env }, this.teardown)
  }

  get order() {
    const [north, south] = [this.north.postgres.url, this.south.postgres.url]
    return {
      meshId: this.meshId,
      from: { cell: 'north', databaseUrl: north },
      to: { cell: 'south', databaseUrl: south },
    }
  }

  async enrol(identities: readonly Identity[]): Promise<void> {
    const { meshId } = this
    const bindings = identities.map((identity) => bindBoxKey(identity, meshId, Date.now() + YEAR_MS))
    await this.onNorth((db) => addMembers(db, meshId, bindings))
  }

  /** All dial the first cell, also behind the move; who comes later has what others learned in front of it. */
  async join(identity: Identity): Promise<Peer> {
    const { url, brokerKey } = this.north.broker
    const onEvent = (event: PeerEvent) => {
      if (event.type === 'addresses') this.learned = event.cell
    }
    const place = { url: [...this.learned, url], brokerKey, meshId: this.meshId, identity }
    const peer = await connect({ ...place, onEvent, signal: AbortSignal.timeout(STUCK_AFTER_MS) })
    this.teardown.add({ end: () => peer.close() })
    return peer
  }

  private async onNorth<T>(use: (db: Awaited<ReturnType<typeof openDatabase>>) => Promise<T>): Promise<T> {
    const db = await openDatabase(this.north.postgres.url, { connections: 1 })
    try {
      return await use(db)
    } finally {
      await db.close()
    }
  }
}

async function startCell(env: Cell['env'], teardown: Teardown): Promise<Cell> {
  const postgres = await startEmbedded()
  teardown.add({ end: () => postgres.stop(), kill: () => void postgres.kill() })
  await migrate(postgres.url)
  return { postgres, env, broker: await startOwnBroker({ databaseUrl: postgres.url, env }, teardown) }
}

function freePort(): Promise<number> {
  const listener = createServer()
  return new Promise((resolve) => {
    listener.listen({ port: 0, host: '127.0.0.1' }, () => {
      const { port } = listener.address() as AddressInfo
      listener.close(() => resolve(port))
    })
  })
}

/** Somebody who writes, somebody who is there to read it, and somebody who comes later. */
class Pair {
  isOver = false
  sent = 0
  filled = 0
  longestSendMs: Millis = 0
  longestPauseMs: Millis = 0
  private lastReadAtMs: Millis | null = null
  private readonly cells: TwoCells
  private readonly sender: Peer
  private readonly absent: Identity
  private readonly recipient: PeerKey
  private readonly read: number[] = []
  private readonly readLater: number[] = []

  private constructor(cells: TwoCells, sender: Peer, recipient: Peer, absent: Identity) {
    this.cells = cells
    this.sender = sender
    this.absent = absent
    this.recipient = recipient.key
    recipient.onMessage((message) => this.took(Number(message.text())))
  }

  static async make(cells: TwoCells): Promise<Pair> {
    const [sender, recipient, absent] = [generateIdentity(), generateIdentity(), generateIdentity()]
    await cells.enrol([sender, recipient, absent])
    return new Pair(cells, await cells.join(sender), await cells.join(recipient), absent)
  }

  async fill(count: number): Promise<void> {
    while (this.filled < count) {
      const texts = Array.from({ length: Math.min(FILLED_AT_ONCE, count - this.filled) }, () => String(this.filled++))
      await Promise.all(texts.map((text) => this.sender.send(this.absent.signing.publicKey, text)))
    }
  }

  /** At a steady rate, whatever is answered and when. */
  async keepSending(perSecond: number): Promise<void> {
    const acked: Promise<void>[] = []
    for (let dueAtMs = performance.now(); !this.isOver; dueAtMs += 1000 / perSecond) {
      await delay(Math.max(0, dueAtMs - performance.now()))
      acked.push(this.sendOne())
    }
    await Promise.all(acked)
  }

  async readAll(): Promise<void> {
    const latecomer = await this.cells.join(this.absent)
    latecomer.onMessage((message) => void this.readLater.push(Number(message.text())))
    const deadline = performance.now() + PATIENCE_MS
    const isThere = () => this.read.length >= this.sent && this.readLater.length >= this.filled
    while (!isThere() && performance.now() < deadline) await delay(SAMPLE_MS)
  }

  judge(): Order {
    const [live, later] = [orderOf(this.read, this.sent), orderOf(this.readLater, this.filled)]
    return {
      lost: live.lost + later.lost,
      duplicates: live.duplicates + later.duplicates,
      misordered: live.misordered + later.misordered,
    }
  }

  private took(no: number): void {
    const nowMs = performance.now()
    this.longestPauseMs = Math.max(this.longestPauseMs, nowMs - (this.lastReadAtMs ?? nowMs))
    this.lastReadAtMs = nowMs
    this.read.push(no)
  }

  private async sendOne(): Promise<void> {
    const sentAtMs = performance.now()
    await this.sender.send(this.recipient, String(this.sent++))
    this.longestSendMs = Math.max(this.longestSendMs, performance.now() - sentAtMs)
  }
}

class MemoryWatch {
  private readonly atStart = process.memoryUsage.rss()
  private highest = this.atStart
  private readonly timer = setInterval(() => {
    this.highest = Math.max(this.highest, process.memoryUsage.rss())
  }, SAMPLE_MS)

  end(): number {
    clearInterval(this.timer)
    return this.highest - this.atStart
  }
}
