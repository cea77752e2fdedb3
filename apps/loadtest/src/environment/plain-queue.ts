/**
 * Implements the second baseline, a conventional queue in Postgres. Each message is an `insert` with its own commit,
 * and is acked after the commit. Each recipient has a loop that an insert wakes and that takes waiting messages with
 * `delete … for update skip locked`. A sender's messages are stored one after another. It deletes a delivery once it is
 * pushed.
 */
import { openPostgresJs, type Sql } from '@sealpost/pg'
import { type DeliveryId, type EnvelopeId, fromHex, type PeerKey, toHex } from '@sealpost/std'
import { type ProxiedEnvelope, type ProxyBackend, ProxyBroker, type ProxySetup, serveProxy } from './proxy-broker.ts'

/** The number of connections, by the driver's default. */
const CONNECTIONS = 10
const TAKEN_AT_ONCE = 100

interface Row {
  readonly id: string
  readonly sender: Uint8Array
  readonly envelopeId: string
  readonly priority: ProxiedEnvelope['priority']
  readonly enqueuedAtMs: number
  readonly envelope: Uint8Array
}

class PlainQueue implements ProxyBackend {
  readonly #broker: ProxyBroker
  readonly #sql: Sql
  /** Each sender's last store. Resolves when all earlier messages are stored. */
  readonly #tails = new Map<PeerKey, Promise<void>>()
  /** Recipients whose loop is running; true if a message arrived after its last query. */
  readonly #loops = new Map<PeerKey, boolean>()

  constructor(broker: ProxyBroker, sql: Sql) {
    this.#broker = broker
    this.#sql = sql
  }

  take(sender: PeerKey, envelopes: readonly ProxiedEnvelope[]): void {
    const tail = this.#tails.get(sender) ?? Promise.resolve()
    this.#tails.set(
      sender,
      tail.then(() => this.#store(sender, envelopes)),
    )
  }

  async close(): Promise<void> {
    await this.#sql`drop table plain_queue`
    await this.#sql.end()
  }

  async #store(sender: PeerKey, envelopes: readonly ProxiedEnvelope[]): Promise<void> {
    for (const { envelopeId, recipient, priority, envelope } of envelopes) {
      await this.#sql`
        insert into plain_queue (recipient, sender, envelope_id, priority, envelope)
        values (${fromHex(recipient)}, ${fromHex(sender)}, ${envelopeId}, ${priority}, ${envelope})`
      this.#broker.ack(sender, envelopeId)
      this.#wake(recipient)
    }
  }

  #wake(recipient: PeerKey): void {
    const isRunning = this.#loops.has(recipient)
    this.#loops.set(recipient, true)
    if (!isRunning) void this.#deliver(recipient)
  }

  async #deliver(recipient: PeerKey): Promise<void> {
    while (this.#loops.get(recipient) && this.#broker.isOnline(recipient)) {
      this.#loops.set(recipient, false)
      const rows = await this.#takeWaiting(recipient)
      for (const row of rows) this.#broker.push(recipient, deliveryOf(row))
      if (rows.length === TAKEN_AT_ONCE) this.#loops.set(recipient, true)
    }
    this.#loops.delete(recipient)
  }

  async #takeWaiting(recipient: PeerKey): Promise<Row[]> {
    const rows = await this.#sql<Row[]>`
      delete from plain_queue where id = any (array(
        select id from plain_queue where recipient = ${fromHex(recipient)}
        order by id limit ${TAKEN_AT_ONCE} for update skip locked))
      returning id, sender, envelope_id as "envelopeId", priority, envelope,
        extract(epoch from enqueued_at)::float8 * 1000 as "enqueuedAtMs"`
    return rows.sort((a, b) => Number(a.id) - Number(b.id))
  }
}

const deliveryOf = ({ id, sender, envelopeId, envelope, priority, enqueuedAtMs }: Row) => ({
  id: Number(id) as DeliveryId,
  envelopeId: envelopeId.replaceAll('-', '') as EnvelopeId,
  sender: toHex(sender) as PeerKey,
  priority,
  attempt: 1,
  enqueuedAtMs: Math.floor(enqueuedAtMs),
  envelope,
})

async function openQueue(setup: ProxySetup): Promise<ProxyBroker> {
  const sql = await openPostgresJs(setup.databaseUrl!, { connections: CONNECTIONS })
  await sql`drop table if exists plain_queue`
  await sql`
    create table plain_queue (
      id bigint generated always as identity primary key, recipient bytea not null, sender bytea not null,
      envelope_id uuid not null, priority text not null, enqueued_at timestamptz not null default clock_timestamp(),
      envelope bytea not null)`
  await sql`create index on plain_queue (recipient, id)`
  return new ProxyBroker(setup, (broker) => new PlainQueue(broker, sql))
}

if (import.meta.main) serveProxy(openQueue)
