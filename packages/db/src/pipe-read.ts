/**
 * The rows of one statement in binary, taken off a connection before its driver (`pg`) sees them, which would make a string
 * of each column. The driver gets everything else, so that it knows errors and ends as of any other run.
 */
import { type Connection, DatabaseError as ServerError, type Submittable } from 'pg'
import { MessagesOf } from './messages-of.ts'
import { asDriverError, type PipeConnection, whenOver } from './pipe-driver.ts'
import type { Statements } from './statements.ts'

const DATA_ROW = 'D'
const nothing = () => undefined

interface Reading {
  /** All of the statement. */
  send(stream: PipeConnection['stream']): void
  resolve(rows: Buffer): void
  reject(error: unknown): void
}

export class PipeRead implements Submittable {
  readonly #reading: Reading
  readonly #statements: Statements
  readonly #messages = new MessagesOf(DATA_ROW)
  readonly #rows: Buffer[] = []
  #connection: PipeConnection | undefined
  #driverTakes: (bytes: Buffer) => void = nothing
  #isOver = false

  constructor(reading: Reading, statements: Statements) {
    this.#reading = reading
    this.#statements = statements
  }

  submit(driver: Connection): void {
    const connection = driver as unknown as PipeConnection
    const { stream } = connection
    const [takes] = stream.listeners('data') as ((bytes: Buffer) => void)[]
    this.#connection = connection
    this.#driverTakes = takes!
    stream.off('data', takes!)
    stream.on('data', this.#take)
    this.#reading.send(stream)
  }

  readonly #take = (chunk: Buffer): void => {
    this.#messages.take(chunk, { rows: (bytes) => this.#rows.push(bytes), others: this.#driverTakes })
    if (this.#isOver) this.#giveBack()
  }

  /** The connection is the driver's again, with what came of its next messages. */
  #giveBack(): void {
    const { stream } = this.#connection!
    stream.off('data', this.#take)
    stream.on('data', this.#driverTakes)
    this.#driverTakes(this.#messages.cutOff)
  }

  handleReadyForQuery(): void {
    this.#isOver = true
    this.#statements.keep()
    this.#reading.resolve(this.#rows.length === 1 ? this.#rows[0]! : Buffer.concat(this.#rows))
  }
  /** The server's refusal, which it is ready again behind, or the end of the connection. */
  handleError(error: unknown, driver: Connection): void {
    this.#statements.doubt()
    const over = () => {
      this.#isOver = true
      this.#reading.reject(asDriverError(error))
    }
    if (error instanceof ServerError) whenOver(driver as unknown as PipeConnection, over)
    else over()
  }
  readonly handleCommandComplete = nothing
  readonly handleCopyInResponse = nothing
  readonly handleCopyData = nothing
  readonly handleDataRow = nothing
  readonly handleRowDescription = nothing
  readonly handleEmptyQuery = nothing
  readonly handlePortalSuspended = nothing
}
