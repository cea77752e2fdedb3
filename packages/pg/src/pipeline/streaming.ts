/**
 * Opens a connection that runs statements one after another, in explicit transactions, and streams `COPY` in both
 * directions.
 */
import type { Readable, Writable } from 'node:stream'
import type { Client } from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import { type DatabaseAddress, statementError } from '../database-error.ts'
import { parseAddress } from '../database-url.ts'
import { openPgClient, type PgClientConnection, type PipelineConnection } from './client.ts'
import { toDriverError } from './driver.ts'

export interface StreamingOptions {
  readonly applicationName: string
  readonly connectTimeoutMs: number
  readonly session: Readonly<Record<string, string | number>>
}

/** `rowCount` is the server's count, set once the stream has ended. */
export type CopyStream<Stream> = Stream & { readonly rowCount: number }

export class StreamingConnection {
  readonly #client: Client
  readonly #connection: PipelineConnection
  readonly #address: DatabaseAddress

  /** @throws DatabaseError with the codes of `openDatabase` */
  static async open(url: string, options: StreamingOptions): Promise<StreamingConnection> {
    return new StreamingConnection(await openPgClient(url, options), parseAddress(url))
  }

  private constructor({ client, connection }: PgClientConnection, address: DatabaseAddress) {
    this.#client = client
    this.#connection = connection
    this.#address = address
  }

  /** @throws DatabaseError */
  async run<Row>(statement: string, parameters: readonly unknown[] = []): Promise<Row[]> {
    try {
      return (await this.#client.query(statement, [...parameters])).rows as Row[]
    } catch (error) {
      throw this.errorOf(error)
    }
  }

  /** Commits all statements of `body`, or none. @throws DatabaseError, and the errors of `body` */
  async transaction<T>(body: () => Promise<T>, mode = 'read committed'): Promise<T> {
    await this.run(`begin isolation level ${mode}`)
    try {
      const result = await body()
      await this.run('commit')
      return result
    } catch (error) {
      await this.run('rollback').catch(() => undefined) // report the first error; a lost connection rolls back anyway
      throw error
    }
  }

  copyOut(statement: string): CopyStream<Readable> {
    return this.#client.query(copyTo(statement)) as unknown as CopyStream<Readable>
  }

  copyIn(statement: string): CopyStream<Writable> {
    return this.#client.query(copyFrom(statement))
  }

  errorOf(error: unknown): Error {
    return statementError(toDriverError(error), this.#address)
  }

  close(): Promise<void> {
    return this.#connection.close()
  }
}
