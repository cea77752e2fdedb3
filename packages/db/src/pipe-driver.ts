/** The other driver (`pg`) as lanes use it, below what its types tell of. */
import type { Duplex } from 'node:stream'
import { type Connection, DatabaseError as ServerError, type Submittable } from 'pg'

/** What the driver's types leave out. */
export interface PipeConnection {
  readonly stream: Duplex
  on(event: (typeof ENDS)[number], listener: () => void): void
  off(event: (typeof ENDS)[number], listener: () => void): void
}

/** Under the names that `database-error.ts` knows. Severity comes in the server's language, so its code is read instead. */
export function asDriverError(error: unknown): unknown {
  if (error instanceof ServerError) {
    const { code = '', message, constraint } = error
    const severity = /^(08|57P|XX|53300)/.test(code) ? 'FATAL' : 'ERROR'
    return { name: 'PostgresError', severity, code, message, constraint_name: constraint }
  }
  const { code, message = '' } = error as { code?: string; message?: string }
  return { code: code ?? (message.startsWith('SASL') ? 'SASL' : 'CONNECTION_CLOSED'), message }
}

/** The driver tells a run of its error only, and would warn of another run before the server is ready. */
function whenOver(connection: PipeConnection, then: () => void): void {
  const over = () => {
    for (const event of ENDS) connection.off(event, over)
    then()
  }
  for (const event of ENDS) connection.on(event, over)
}
const ENDS = ['readyForQuery', 'end'] as const

const nothing = () => undefined

/** What the driver calls for one run: whoever extends it hears what it wants to. */
export abstract class Run implements Submittable {
  abstract submit(driver: Connection): void
  abstract handleReadyForQuery(): void
  /** The server is ready again behind its refusal, or the connection is at its end. */
  protected abstract failed(error: unknown): void

  handleError(error: unknown, driver: Connection): void {
    const failed = () => this.failed(error)
    if (error instanceof ServerError) whenOver(driver as unknown as PipeConnection, failed)
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
  readonly handleCopyInResponse = nothing // what is copied is on its way already
  readonly handleRowDescription = nothing
  readonly handleEmptyQuery = nothing
  readonly handlePortalSuspended = nothing
}
