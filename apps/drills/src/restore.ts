/**
 * Takes a backup under load, loses the database and restores it. Senders learn of the new incarnation and resend. Each
 * message must arrive once, and no delivery id may be reused.
 */
import { join } from 'node:path'
import type { BrokerProgram } from '@sealpost/broker-program'
import { type EmbeddedPostgres, startEmbedded } from '@sealpost/embedded-pg'
import { enrolMesh, generateMesh, identityOf, type MeshMembers } from '@sealpost/harness/members/mesh'
import { wholeNumber } from '@sealpost/harness/programs/command'
import { newBrokerKeyFile, startOwnBroker } from '@sealpost/harness/programs/own-broker'
import { waitUntil } from '@sealpost/harness/programs/pace'
import { backUp, restore } from '@sealpost/harness/programs/postgres'
import { type Teardown, temporaryFolder } from '@sealpost/harness/programs/teardown'
import { type Database, openDatabase } from '@sealpost/pg'
import { migrate } from '@sealpost/schema'
import { clockMs, connect, type Peer, type PeerEvent } from '@sealpost/sdk'
import type { PeerKey } from '@sealpost/std'
import type { Drill } from './drill.ts'
import { addCounts, countDeliveries, type DeliveryCounts, deliveryCheck } from './pair-traffic.ts'

interface RestoreOptions {
  /** The number of messages to each recipient in each of three phases. */
  readonly messages: number
}

interface RestoreResult extends DeliveryCounts {
  readonly acked: number
  /** The number of messages acknowledged between the backup and the loss. */
  readonly ackedAfterBackup: number
  readonly reoffered: number
  readonly delivered: number
  /** The number of delivery ids with different messages before and after the restore. */
  readonly idsReused: number
  readonly isNewIncarnation: boolean
  /** The time from the restore's start to the last missing message. */
  readonly recoveredInMs: number
}

export const restoreDrill: Drill<RestoreOptions> = {
  name: 'restore',
  description: 'Back up a database under load, lose it, restore it, and count the messages that arrive.',
  configure: (command) =>
    command.option(
      '--messages <n>',
      'the number of messages to each recipient in each part',
      wholeNumber(1, 1000),
      500,
    ),
  run: async (options, teardown) => {
    const result = await drillRestore(options, teardown)
    const { acked, ackedAfterBackup, reoffered, idsReused, isNewIncarnation, recoveredInMs } = result
    const incarnation = `the restored database has ${isNewIncarnation ? 'a new' : 'the SAME'} incarnation`
    return {
      result,
      checks: [
        deliveryCheck(acked, result),
        [true, `${ackedAfterBackup} messages were acknowledged after the backup; peers resent ${reoffered}`],
        [idsReused === 0, `${idsReused} delivery ids were assigned twice`],
        [isNewIncarnation, incarnation],
        [true, `the last missing message arrived ${(recoveredInMs / 1000).toFixed(1)} s after the restore began`],
      ],
    }
  },
}

export async function drillRestore({ messages }: RestoreOptions, teardown: Teardown): Promise<RestoreResult> {
  const backup = join(await temporaryFolder('drill', teardown), 'backup')
  const peers = await DrillPeers.create(teardown)
  const first = await peers.serve(await startEmbedded())
  await enrolMesh(first.database, peers.mesh, 'drill')
  const sender = await peers.connect('sender', first)
  await peers.connect('recipient', first)
  const numbers = new NumberSender(sender, [peers.keyOf('recipient'), peers.keyOf('absent')])
  await numbers.send(messages)
  await waitUntil('the recipient has the first part', () => peers.receivedBy('recipient').length === messages)
  await backUp(first.postgres, backup)
  const ackedBefore = numbers.acked
  await numbers.send(messages)
  await waitUntil('the recipient has the second part', () => peers.receivedBy('recipient').length === 2 * messages)
  const ackedAtLoss = numbers.acked
  const idsBefore = await deliveryIds(first.database)
  await lose(first)

  const startMs = clockMs()
  const second = await peers.serve(await restore(backup))
  const restored = await peers.event('sender', 'restored')
  await peers.connect('absent', second)
  await waitUntil('the resent part has arrived', () => peers.receivedBy('absent').length >= 2 * messages)
  const recoveredInMs = Math.round(clockMs() - startMs)
  await numbers.send(messages)
  const hasAll = (role: Role) => peers.receivedBy(role).length >= 3 * messages
  await waitUntil('the last part has arrived', () => hasAll('recipient') && hasAll('absent'))
  const idsAfter = await deliveryIds(second.database)
  const received = (['recipient', 'absent'] as const).map((role) => peers.receivedBy(role))
  return {
    acked: numbers.acked,
    ackedAfterBackup: ackedAtLoss - ackedBefore,
    reoffered: restored.resent,
    delivered: received.reduce((total, each) => total + new Set(each).size, 0),
    ...addCounts(received.map((each) => countDeliveries(each, numbers.count))),
    idsReused: [...idsAfter].filter(([id, envelope]) => idsBefore.has(id) && idsBefore.get(id) !== envelope).length,
    isNewIncarnation: restored.incarnation !== (await peers.event('sender', 'connected')).incarnation,
    recoveredInMs,
  }
}

/** A server, its broker, and a connection to it. */
interface Site {
  readonly postgres: EmbeddedPostgres
  readonly broker: BrokerProgram
  readonly database: Database
}

async function lose({ postgres, broker, database }: Site): Promise<void> {
  broker.kill()
  await broker.exited
  await database.close()
  await postgres.kill()
}

async function deliveryIds(database: Database): Promise<Map<number, string>> {
  const rows = await database.run(
    (sql) => sql<{ id: number; envelope: string }[]>`
      select u.id::float8 as id, u.envelope::text as envelope
      from dedupe_ledger l cross join unnest(l.ids, l.envelope_ids) as u(id, envelope)`,
  )
  return new Map(rows.map(({ id, envelope }) => [id, envelope]))
}

const ROLES = ['sender', 'recipient', 'absent'] as const
type Role = (typeof ROLES)[number]
type EventOf<T extends PeerEvent['type']> = Extract<PeerEvent, { type: T }>

/** The peers, their keys and received messages, which outlive the database. */
class DrillPeers {
  readonly mesh: MeshMembers
  readonly #keyFile: string
  readonly #teardown: Teardown
  #port = '0'
  readonly #received = new Map<Role, number[]>(ROLES.map((role) => [role, []]))
  readonly #events = new Map<Role, PeerEvent[]>(ROLES.map((role) => [role, []]))

  private constructor(mesh: MeshMembers, keyFile: string, teardown: Teardown) {
    this.mesh = mesh
    this.#keyFile = keyFile
    this.#teardown = teardown
  }

  static async create(teardown: Teardown): Promise<DrillPeers> {
    return new DrillPeers(await generateMesh(ROLES.length), await newBrokerKeyFile(teardown), teardown)
  }

  /** Starts a broker on this server, at the same address each time. */
  async serve(postgres: EmbeddedPostgres): Promise<Site> {
    this.#teardown.addProgram(postgres)
    await migrate(postgres.url)
    const env = { BROKER_KEY_FILE: this.#keyFile, LIMITS: 'off', PORT: this.#port }
    const broker = await startOwnBroker({ databaseUrl: postgres.url, env }, this.#teardown)
    this.#port = new URL(broker.url).port
    const database = await openDatabase(postgres.url, { connections: 1 })
    this.#teardown.add({ end: () => database.close() })
    return { postgres, broker, database }
  }

  keyOf(role: Role): PeerKey {
    return this.mesh.peerKeys[ROLES.indexOf(role)]!
  }

  receivedBy(role: Role): number[] {
    return this.#received.get(role)!
  }

  async connect(role: Role, { broker: { url, brokerKey } }: Site): Promise<Peer> {
    const { meshId, secrets } = this.mesh
    const identity = identityOf(secrets[ROLES.indexOf(role)]!)
    const onEvent = (event: PeerEvent) => void this.#events.get(role)!.push(event)
    const peer = await connect({ url, brokerKey, meshId, identity, onEvent })
    this.#teardown.add({ end: () => peer.close() })
    peer.onMessage((message) => void this.receivedBy(role).push(Number(message.text())))
    return peer
  }

  async event<T extends PeerEvent['type']>(role: Role, type: T): Promise<EventOf<T>> {
    const find = () => this.#events.get(role)!.find((event): event is EventOf<T> => event.type === type)
    await waitUntil(`the ${role} has the event ${type}`, () => find() !== undefined)
    return find()!
  }
}

/** Sends ascending numbers to all recipients. */
class NumberSender {
  count = 0
  acked = 0
  readonly #sender: Peer
  readonly #recipients: readonly PeerKey[]

  constructor(sender: Peer, recipients: readonly PeerKey[]) {
    this.#sender = sender
    this.#recipients = recipients
  }

  async send(messages: number): Promise<void> {
    const texts = Array.from({ length: messages }, (_, i) => String(this.count + i))
    this.count += messages
    await Promise.all(texts.flatMap((text) => this.#recipients.map((to) => this.#sender.send(to, text))))
    this.acked += messages * this.#recipients.length
  }
}
