/**
 * One end of a move: a connection of its own to one cell's database. It holds the lock of the mesh for as long as it
 * lives, so that one mesh has one mover; and since each of its statements goes this way, a mover that lost the lock
 * can do nothing more.
 */
import type { Readable, Writable } from 'node:stream'
import type { MeshId } from '@sealpost/std'
import type { Client } from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import { type Address, DatabaseError, statementError } from './database-error.ts'
import { parseAddress } from './database-url.ts'
import type { Lane } from './lane.ts'
import { asDriverError } from './pipe-driver.ts'
import { openBoth, type Pipe } from './pipe-lane.ts'

/** What Postgres counted is there once the stream has ended. */
export type Copied<Stream> = Stream & { readonly rowCount: number }

export class MoverLink {
  private readonly client: Client
  private readonly lane: Lane<Pipe>
  private readonly address: Address

  /** A cell that does not answer within this time is not there. @throws DatabaseError as `openDatabase` */
  static async open(url: string, { connectTimeoutMs = 10_000 } = {}): Promise<MoverLink> {
    const terms = { applicationName: 'sealpost mover', connectTimeoutMs, session: SESSION }
    const { client, lane } = await openBoth(url, terms)
    return new MoverLink(client, lane, parseAddress(url))
  }

  /** For one mover only. @throws DatabaseError as `open`; `move_in_use`: another mover is at work on this mesh */
  static async openFor(url: string, meshId: MeshId): Promise<MoverLink> {
    const link = await MoverLink.open(url)
    try {
      await link.lock(meshId)
      return link
    } catch (error) {
      await link.close()
      throw error
    }
  }

  private constructor(client: Client, lane: Lane<Pipe>, address: Address) {
    this.client = client
    this.lane = lane
    this.address = address
  }

  private async lock(meshId: MeshId): Promise<void> {
    const [row] = await this.run<{ got: boolean }>(`select pg_try_advisory_lock($1::bit(64)::bigint) as got`, [
      lockOf(meshId),
    ])
    if (row?.got) return
    throw new DatabaseError('move_in_use', 'Another mover is at work on this mesh', { retryable: true })
  }

  /** @throws DatabaseError */
  async run<Row>(statement: string, parameters: readonly unknown[] = []): Promise<Row[]> {
    try {
      return (await this.client.query(statement, [...parameters])).rows as Row[]
    } catch (error) {
      throw this.errorOf(error)
    }
  }

  /** All of it or nothing. @throws DatabaseError, and what `body` throws */
  async transaction<T>(body: () => Promise<T>, mode = 'read committed'): Promise<T> {
    await this.run(`begin isolation level ${mode}`)
    try {
      const answer = await body()
      await this.run('commit')
      return answer
    } catch (error) {
      await this.run('rollback').catch(() => undefined) // it is the first error that counts, and a lost connection rolls back
      throw error
    }
  }

  copyOut(statement: string): Copied<Readable> {
    return this.client.query(copyTo(statement)) as unknown as Copied<Readable>
  }

  copyIn(statement: string): Copied<Writable> {
    return this.client.query(copyFrom(statement))
  }

  errorOf(error: unknown): Error {
    return statementError(asDriverError(error), this.address)
  }

  /** The lock goes with the connection. */
  close(): Promise<void> {
    return this.lane.retire()
  }
}

/**
 * A copy may take long, and so may a commit behind it; what waits for a lock waits for short statements of brokers.
 * An end that fell silent is given up by TCP, on both sides.
 */
const SESSION = {
  statement_timeout: 0,
  lock_timeout: 30_000,
  synchronous_commit: 'on',
  tcp_keepalives_idle: 10,
  tcp_keepalives_interval: 5,
  tcp_keepalives_count: 3,
  tcp_user_timeout: 60_000,
  // A mover that was killed in the middle of a statement leaves the mesh to the next one.
  client_connection_check_interval: 1_000,
}

const lockOf = (meshId: MeshId): string =>
  BigInt(`0x${meshId.slice(0, 16)}`)
    .toString(2)
    .padStart(64, '0')
