/** Wraps the undocumented parts of `pg` that this package uses. `driver.pg.test.ts` fails when one of them changes. */
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { type Client, type Connection, DatabaseError as ServerError, type Submittable } from 'pg'
import type { BackendKey } from '../socket.ts'

/** The members of `Connection` that the driver's types omit. */
export interface PgConnection {
  readonly stream: Duplex
  /** Sends a simple query. */
  query(text: string): void
  on(event: (typeof ENDS)[number], listener: () => void): void
  off(event: (typeof ENDS)[number], listener: () => void): void
}

export const internalsOf = (connection: Connection): PgConnection => connection as unknown as PgConnection

/** Returns the key for cancel requests. Its fields are undefined until the server has sent BackendKeyData. */
export function backendKeyOf(client: Client): Partial<BackendKey> {
  const { processID: pid, secretKey: secret } = client as unknown as { processID: number; secretKey: number }
  return { pid, secret }
}

/** Returns the connected socket in a form that the driver can "connect". */
export function adoptable(socket: Socket): Socket {
  const connect = () => {
    process.nextTick(() => socket.emit('connect'))
    return socket
  }
  return Object.assign(socket, { connect })
}

/** Maps `pg` errors to the shape that `database-error.ts` reads. `severity` is localized, so use the SQLSTATE. */
export function toDriverError(error: unknown): unknown {
  if (error instanceof ServerError) {
    const { code = '', message, constraint } = error
    const severity = /^(08|57P|XX|53300)/.test(code) ? 'FATAL' : 'ERROR'
    return { name: 'PostgresError', severity, code, message, constraint_name: constraint }
  }
  const { code, message = '' } = error as { code?: string; message?: string }
  return { code: code ?? (message.startsWith('SASL') ? 'SASL' : 'CONNECTION_CLOSED'), message }
}

/** Calls `then` after the next ReadyForQuery. The driver warns about an earlier query after an error. */
function whenReady(connection: PgConnection, then: () => void): void {
  const ready = () => {
    for (const event of ENDS) connection.off(event, ready)
    then()
  }
  for (const event of ENDS) connection.on(event, ready)
}
const ENDS = ['readyForQuery', 'end'] as const

const nothing = () => undefined

/** The driver's callbacks for one query, which subclasses override as needed. */
export abstract class PgQuery implements Submittable {
  abstract submit(connection: Connection): void
  abstract handleReadyForQuery(): void
  /** Called when the server is ready after an error, or the connection has ended. */
  protected abstract failed(error: unknown): void

  handleError(error: unknown, connection: Connection): void {
    const failed = () => this.failed(error)
    if (error instanceof ServerError) whenReady(internalsOf(connection), failed)
    else failed()
  }
  handleCommandComplete(): void {
    nothing()
  }
  handleCopyData(_: unknown): void {
    nothing()
  }
  handleDataRow(_: unknown): void {
    nothing()
  }
  readonly handleCopyInResponse = nothing // the rows were sent with the statement
  readonly handleRowDescription = nothing
  readonly handleEmptyQuery = nothing
  readonly handlePortalSuspended = nothing
}
