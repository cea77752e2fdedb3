/**
 * The rows of one statement in binary, taken off a connection before its driver (`pg`) sees them, which would make a string
 * of each column. The driver gets everything else, so that it knows errors and ends as of any other run.
 */
import type { Connection } from 'pg'
import { asDriverError, type PipeConnection, Run } from './pipe-driver.ts'
import { RowTap } from './row-tap.ts'
import type { Statements } from './statements.ts'

const DATA_ROW = 'D'

interface Reading {
  /** All of the statement. */
  send(stream: PipeConnection['stream']): void
  resolve(rows: Buffer): void
  reject(error: unknown): void
}

export class PipeRead extends Run {
  readonly #reading: Reading
  readonly #statements: Statements
  readonly #rows: Buffer[] = []
  readonly #tap = new RowTap(DATA_ROW, (bytes) => this.#rows.push(bytes))

  constructor(reading: Reading, statements: Statements) {
    super()
    this.#reading = reading
    this.#statements = statements
  }

  submit(driver: Connection): void {
    const { stream } = driver as unknown as PipeConnection
    this.#tap.open(stream)
    this.#reading.send(stream)
  }

  handleReadyForQuery(): void {
    this.#tap.close()
    this.#statements.keep()
    this.#reading.resolve(this.#rows.length === 1 ? this.#rows[0]! : Buffer.concat(this.#rows))
  }
  override handleError(error: unknown, driver: Connection): void {
    this.#statements.doubt()
    super.handleError(error, driver)
  }
  protected failed(error: unknown): void {
    this.#tap.close()
    this.#reading.reject(asDriverError(error))
  }
}
