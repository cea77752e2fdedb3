/**
 * Runs an application that stores orders and sends a message for each in the same transaction. At the end, orders and
 * messages are compared: the database that survived decides which orders exist.
 */
import type { BrokerProgram } from '@sealpost/broker-program'
import { enrolMesh, generateMesh, identityOf } from '@sealpost/harness/members/mesh'
import { waitUntil } from '@sealpost/harness/programs/pace'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { type Database, openDatabase } from '@sealpost/pg'
import { connect, type Peer } from '@sealpost/sdk'
import { prepareSend } from '@sealpost/sdk/prepare'
import type { Millis } from '@sealpost/std'
import type { DrillCheck } from './drill.ts'

export interface OrderResult {
  readonly orders: number
  /** The number of orders whose message did not arrive. */
  readonly missing: number
  readonly duplicates: number
  readonly misordered: number
  /** The number of messages whose order does not exist, because the database has lost it. */
  readonly extra: number
}

const PAUSE_MS: Millis = 20

export class OrderTraffic {
  readonly #database: Database
  readonly #shop: Peer
  readonly #warehouse: Peer
  readonly #received: string[] = []
  #isOver = false
  #working: Promise<void> = Promise.resolve()

  private constructor(database: Database, { shop, warehouse }: { readonly shop: Peer; readonly warehouse: Peer }) {
    this.#database = database
    this.#shop = shop
    this.#warehouse = warehouse
    warehouse.onMessage((message) => void this.#received.push(message.envelopeId))
  }

  static async open({ url, brokerKey }: BrokerProgram, databaseUrl: string, teardown: Teardown): Promise<OrderTraffic> {
    const database = await openDatabase(databaseUrl, { connections: 1, applicationName: 'shop' })
    teardown.add({ end: () => database.close() })
    const mesh = await generateMesh(2)
    await enrolMesh(database, mesh, 'shop')
    const peerOf = (no: number) =>
      connect({ url, brokerKey, meshId: mesh.meshId, identity: identityOf(mesh.secrets[no]!) })
    const peers = { shop: await peerOf(0), warehouse: await peerOf(1) }
    teardown.add({ end: () => Promise.all([peers.shop.close(), peers.warehouse.close()]) })
    await peers.shop.lookupKey(peers.warehouse.key) // orders also arrive while no broker responds
    await database.run((sql) =>
      sql.unsafe('create schema shop; create table shop.orders (no int primary key, message uuid not null)').simple(),
    )
    return new OrderTraffic(database, peers)
  }

  begin(): void {
    this.#working = this.#work()
    this.#working.catch(() => undefined) // `finish` rejects with the error
  }

  async finish(): Promise<OrderResult> {
    this.#isOver = true
    await this.#working
    const rows = await this.#database.run(
      (sql) => sql<{ id: string }[]>`select replace(message::text, '-', '') as id from shop.orders order by no`,
    )
    const orders = rows.map(({ id }) => id)
    await waitUntil('the message of every order has arrived', () => this.#missing(orders) === 0)
    const places = new Map(orders.map((id, no) => [id, no]))
    const numbers = this.#received.flatMap((id) => places.get(id) ?? [])
    return {
      orders: orders.length,
      missing: this.#missing(orders),
      duplicates: this.#received.length - new Set(this.#received).size,
      misordered: numbers.filter((number, i) => i > 0 && number < numbers[i - 1]!).length,
      extra: this.#received.length - numbers.length,
    }
  }

  #missing(orders: readonly string[]): number {
    const received = new Set(this.#received)
    return orders.filter((id) => !received.has(id)).length
  }

  /** Places orders one after another. An order whose transaction fails is not repeated. */
  async #work(): Promise<void> {
    for (let no = 0; !this.#isOver; no++) {
      const { literal } = await prepareSend(this.#shop, this.#warehouse.key, `order ${no}`)
      const transaction = `begin; insert into shop.orders values (${no}, sealpost.send('${literal}')); commit`
      await this.#database.run((sql) => sql.unsafe(transaction).simple()).catch(() => undefined)
      await Bun.sleep(PAUSE_MS)
    }
  }
}

export const orderCheck = ({ orders, missing, duplicates, misordered, extra }: OrderResult): DrillCheck => [
  missing + duplicates + misordered === 0,
  `of ${orders} orders, the messages of ${missing} were lost, ${duplicates} duplicated, ${misordered} out of order; ${extra} messages belong to orders that the standby lacked`,
]
