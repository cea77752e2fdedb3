/**
 * The drill: mail flows, a backup is taken, more mail flows, the disk is lost, the backup is restored. What was
 * acknowledged after the backup is unknown to the restored database; the peers that sent it live on, hear of the new
 * incarnation and say it again. Then each message must have come to its reader once, and no id may name two of them.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { addMembers, createMesh, type Database, migrate, openDatabase } from '@sealpost/db'
import { type EmbeddedPostgres, startEmbedded } from '@sealpost/db/embedded'
import { bindBoxKey, generateIdentity, generateSigningKeys, type Identity, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { connect, type Peer, type PeerEvent } from '@sealpost/sdk'
import type { MeshId } from '@sealpost/std'
import { startOwnBroker } from '../lib/own-broker.ts'
import type { Teardown } from '../lib/teardown.ts'
import { newMeshId } from '../load/seed.ts'
import { backUp, restore } from './files.ts'

export interface DrillResult {
  readonly acked: number
  /** Of these, acknowledged after the backup. */
  readonly ackedAfterBackup: number
  readonly reoffered: number
  readonly delivered: number
  readonly lost: number
  /** Shown to an application twice. */
  readonly duplicates: number
  readonly misordered: number
  /** Delivery ids that named one message before the restore and another one after it. */
  readonly idsReused: number
  readonly isNewIncarnation: boolean
  /** From the start of the restored broker to the last message. */
  readonly recoveredInMs: number
}

export interface DrillOptions {
  /** Messages in each of the two parts. */
  readonly messages: number
}

const YEAR_MS = 365 * 86_400_000
const PATIENCE_MS = 60_000

export async function drillRestore({ messages }: DrillOptions, teardown: Teardown): Promise<DrillResult> {
  await ready()
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-drill-'))
  teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
  const place = await Place.make(folder, teardown)
  const first = await place.serve(await startEmbedded())
  await first.enrol()
  const sender = await first.join('sender')
  const reader = await first.join('reader')
  const absent = first.keyOf('absent')
  const sent = new Sent(sender)
  await sent.send(messages, [reader.key, absent])
  await until(() => place.readBy('reader').length === messages)
  await backUp(first.postgres, join(folder, 'backup'))
  const ackedBefore = sent.count
  await sent.send(messages, [reader.key, absent])
  await until(() => place.readBy('reader').length === 2 * messages)
  const ackedAtLoss = sent.count
  const idsBefore = await first.idsGiven()
  await first.lose()

  const startedAtMs = performance.now()
  const second = await place.serve(await restore(join(folder, 'backup')))
  const restored = await place.event('sender', 'restored')
  await second.join('absent')
  await until(() => place.readBy('absent').length >= 2 * messages)
  const recoveredInMs = Math.round(performance.now() - startedAtMs)
  await sent.send(messages, [reader.key, absent])
  await until(() => place.readBy('absent').length >= 3 * messages && place.readBy('reader').length >= 3 * messages)
  const idsAfter = await second.idsGiven()
  return {
    acked: sent.count,
    ackedAfterBackup: ackedAtLoss - ackedBefore,
    reoffered: restored.reoffered,
    ...place.judge(sent.texts),
    idsReused: [...idsAfter].filter(([id, envelope]) => idsBefore.has(id) && idsBefore.get(id) !== envelope).length,
    isNewIncarnation: restored.incarnation !== (await place.event('sender', 'connected')).incarnation,
    recoveredInMs,
  }
}

type Role = 'sender' | 'reader' | 'absent'
type EventOf<T extends PeerEvent['type']> = Extract<PeerEvent, { type: T }>

/** What outlives the disk: the peers, their keys and what they saw. */
class Place {
  readonly keyFile: string
  readonly meshId = newMeshId()
  readonly teardown: Teardown
  readonly identities: Record<Role, Identity>
  port = '0'
  private readonly read = new Map<Role, string[]>()
  private readonly events = new Map<Role, PeerEvent[]>()

  private constructor(keyFile: string, teardown: Teardown) {
    this.keyFile = keyFile
    this.teardown = teardown
    this.identities = { sender: generateIdentity(), reader: generateIdentity(), absent: generateIdentity() }
  }

  static async make(folder: string, teardown: Teardown): Promise<Place> {
    const keyFile = join(folder, 'broker.json')
    await writeKeyFile(keyFile, { kind: 'broker', signing: generateSigningKeys() })
    return new Place(keyFile, teardown)
  }

  async serve(postgres: EmbeddedPostgres): Promise<Life> {
    this.teardown.add({ end: () => postgres.stop(), kill: () => void postgres.kill() })
    await migrate(postgres.url)
    const env = { BROKER_KEY_FILE: this.keyFile, LIMITS: 'off', PORT: this.port }
    const broker = await startOwnBroker({ databaseUrl: postgres.url, env }, this.teardown)
    this.port = new URL(broker.url).port
    const db = await openDatabase(postgres.url, { connections: 1 })
    this.teardown.add({ end: () => db.close() })
    return new Life(this, { postgres, broker, db })
  }

  readBy(role: Role): string[] {
    const texts = this.read.get(role) ?? []
    this.read.set(role, texts)
    return texts
  }

  heard(role: Role, event: PeerEvent): void {
    this.events.set(role, [...(this.events.get(role) ?? []), event])
  }

  /** The first of its type. */
  async event<T extends PeerEvent['type']>(role: Role, type: T): Promise<EventOf<T>> {
    const find = () => this.events.get(role)?.find((event): event is EventOf<T> => event.type === type)
    await until(() => find() !== undefined)
    return find()!
  }

  judge(texts: readonly string[]): Pick<DrillResult, 'delivered' | 'lost' | 'duplicates' | 'misordered'> {
    const readers = (['reader', 'absent'] as const).map((role) => this.readBy(role))
    const count = (of: (read: string[]) => number) => readers.reduce((sum, read) => sum + of(read), 0)
    return {
      delivered: count((read) => new Set(read).size),
      lost: count((read) => texts.filter((text) => !read.includes(text)).length),
      duplicates: count((read) => read.length - new Set(read).size),
      misordered: count((read) => read.filter((text, i) => i > 0 && Number(text) < Number(read[i - 1])).length),
    }
  }
}

interface Programs {
  readonly postgres: EmbeddedPostgres
  readonly broker: Awaited<ReturnType<typeof startOwnBroker>>
  readonly db: Database
}

/** A database and the broker on it, until the disk is lost. */
class Life {
  readonly postgres: EmbeddedPostgres
  private readonly place: Place
  private readonly programs: Programs

  constructor(place: Place, programs: Programs) {
    this.place = place
    this.programs = programs
    this.postgres = programs.postgres
  }

  async enrol(): Promise<void> {
    const { meshId, identities } = this.place
    await createMesh(this.programs.db, { meshId, name: 'drill' })
    const bindings = Object.values(identities).map((identity) => bindBoxKey(identity, meshId, Date.now() + YEAR_MS))
    await addMembers(this.programs.db, meshId, bindings)
  }

  keyOf(role: Role) {
    return this.place.identities[role].signing.publicKey
  }

  async join(role: Role): Promise<Peer> {
    const { place } = this
    const { url, brokerKey } = this.programs.broker
    const meshId: MeshId = place.meshId
    const onEvent = (event: PeerEvent) => place.heard(role, event)
    const peer = await connect({ url, brokerKey, meshId, identity: place.identities[role], onEvent })
    place.teardown.add({ end: () => peer.close() })
    peer.onMessage((message) => void place.readBy(role).push(message.text()))
    return peer
  }

  /** Every delivery id that the ledger remembers, with its envelope. */
  async idsGiven(): Promise<Map<number, string>> {
    const rows = await this.programs.db.run(
      (sql) => sql<{ id: number; envelope: string }[]>`
        select u.id::float8 as id, u.envelope::text as envelope
        from dedupe_ledger l cross join unnest(l.ids, l.envelope_ids) as u(id, envelope)`,
    )
    return new Map(rows.map(({ id, envelope }) => [id, envelope]))
  }

  async lose(): Promise<void> {
    this.programs.broker.kill()
    await this.programs.broker.exited
    await this.programs.db.close()
    await this.postgres.kill()
  }
}

/** Numbers, each to all readers. */
class Sent {
  readonly texts: string[] = []
  count = 0
  private readonly sender: Peer

  constructor(sender: Peer) {
    this.sender = sender
  }

  async send(messages: number, readers: readonly Peer['key'][]): Promise<void> {
    const texts = Array.from({ length: messages }, (_, i) => String(this.texts.length + i))
    await Promise.all(texts.flatMap((text) => readers.map((reader) => this.sender.send(reader, text))))
    this.texts.push(...texts)
    this.count += texts.length * readers.length
  }
}

async function until(isSo: () => boolean): Promise<void> {
  const giveUpAtMs = performance.now() + PATIENCE_MS
  while (!isSo()) {
    if (performance.now() > giveUpAtMs) throw new Error('the drill waited for a minute in vain')
    await Bun.sleep(20)
  }
}
