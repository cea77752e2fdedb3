/**
 * The second yardstick: a queue in Postgres as it is usually written. Each message is an `insert` and a commit of its
 * own, acked after it; each recipient has a loop that takes what waits with `delete … for update skip locked`, woken by
 * the insert. A sender's messages are stored one after the other, which keeps their order. What Sealpost is faster by
 * is what storing many messages in one commit buys; what it does more, a delivery here is gone once it was pushed.
 */
import { openPostgresJs, type Sql } from '@sealpost/pg'
import { type DeliveryId, type EnvelopeId, fromHex, type PeerKey, toHex } from '@sealpost/std'
import { type Envelope, Front, type FrontSetup, type Post, serve } from './front.ts'

/** The driver's own default. */
const CONNECTIONS = 10
const TAKEN_AT_ONCE = 100

interface Row {
  readonly id: string
  readonly sender: Uint8Array
  readonly envelopeId: string
  readonly priority: Envelope['priority']
  readonly enqueuedAtMs: number
  readonly envelope: Uint8Array
}

class PlainQueue implements Post {
  readonly #front: Front
  readonly #sql: Sql
  /** The end of what each sender has waiting. */
  readonly #tails = new Map<PeerKey, Promise<void>>()
  /** Recipients whose loop runs; true: something came since it looked. */
  readonly #loops = new Map<PeerKey, boolean>()

  constructor(front: Front, sql: Sql) {
    this.#front = front
    this.#sql = sql
  }

  take(sender: PeerKey, envelopes: readonly Envelope[]): void {
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

  async #store(sender: PeerKey, envelopes: readonly Envelope[]): Promise<void> {
    for (const { envelopeId, recipient, priority, envelope } of envelopes) {
      await this.#sql`
        insert into plain_queue (recipient, sender, envelope_id, priority, envelope)
        values (${fromHex(recipient)}, ${fromHex(sender)}, ${envelopeId}, ${priority}, ${envelope})`
      this.#front.ack(sender, envelopeId)
      this.#wake(recipient)
    }
  }

  #wake(recipient: PeerKey): void {
    const isRunning = this.#loops.has(recipient)
    this.#loops.set(recipient, true)
    if (!isRunning) void this.#deliver(recipient)
  }

  async #deliver(recipient: PeerKey): Promise<void> {
    while (this.#loops.get(recipient) && this.#front.isOnline(recipient)) {
      this.#loops.set(recipient, false)
      const rows = await this.#takeWaiting(recipient)
      for (const row of rows) this.#front.push(recipient, deliveryOf(row))
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

async function openQueue(setup: FrontSetup): Promise<Front> {
  const sql = await openPostgresJs(setup.databaseUrl!, { connections: CONNECTIONS })
  await sql`drop table if exists plain_queue`
  await sql`
    create table plain_queue (
      id bigint generated always as identity primary key, recipient bytea not null, sender bytea not null,
      envelope_id uuid not null, priority text not null, enqueued_at timestamptz not null default clock_timestamp(),
      envelope bytea not null)`
  await sql`create index on plain_queue (recipient, id)`
  return new Front(setup, (front) => new PlainQueue(front, sql))
}

if (import.meta.main) serve(openQueue)
