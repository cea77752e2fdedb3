/** Runs prepared statements on one `pg` connection: several in one transaction, or one with binary rows. */
import { assert } from '@sealpost/std'
import type { Client, Connection } from 'pg'
import { internalsOf, type PgConnection, PgQuery, toDriverError } from './driver.ts'
import { RowInterceptor } from './intercept.ts'
import { type ParameterValue, RequestBuffer } from './wire.ts'

/** A statement that is prepared when it is first used. Byte parameters are sent in binary, strings in text format. */
export interface PipelineStep {
  readonly text: string
  readonly parameters?: readonly ParameterValue[]
  /** All parameters in binary, instead of `values`: for each, an int32 length (-1 for null) and its bytes. */
  readonly packed?: { readonly count: number; readonly bytes: Uint8Array }
  /** The input of a `COPY … FROM STDIN (FORMAT binary)`, with header and trailer. */
  readonly copied?: Uint8Array
  /**
   * Receives the output of a `COPY … TO STDOUT`, which takes no parameters and does not stay prepared. Called with one
   * message per row, a view that is valid during the call. The first begins with the header; the trailer has its own.
   */
  readonly take?: (message: Buffer) => void
}

/** `Value` is a string or number for postgres.js, and a string or bytes for a pipeline. */
export interface BoundStatement<Value> {
  readonly text: string
  readonly parameters: readonly Value[]
}

export interface SqlStatement<Name extends string> {
  readonly text: string
  /** Returns the statement with its values in the order of its parameters. */
  bind<Values extends Readonly<Record<Name, ParameterValue | number>>>(
    values: Values & Readonly<Record<Exclude<keyof Values, Name>, never>>,
  ): BoundStatement<Values[Name]>
}

type Trimmed<Text extends string> = Text extends ` ${infer Rest}` | `\n${infer Rest}` ? Trimmed<Rest> : Text
type NamesOf<Signature extends string> = Signature extends `${infer First},${infer Rest}`
  ? NamesOf<First> | NamesOf<Rest>
  : Trimmed<Signature> extends `${infer Name} ${string}`
    ? Name
    : never

/**
 * Numbers the parameters of a statement: with the signature `shard uuid, epoch bigint`, `:epoch` becomes `$2::bigint`.
 * Call when the module loads: prepared statements are identified by their text.
 */
export function sqlStatement<const Signature extends string>(
  signature: Signature,
  text: string,
): SqlStatement<NamesOf<Signature>> {
  const types = new Map(signature.split(',').map((parameter) => parameter.trim().split(' ') as [string, string]))
  const names = [...types.keys()]
  const unused = new Set(names)
  const numbered = text.replace(/(?<![:\w]):([a-z]\w*)/gi, (_, name: string) => {
    assert(types.has(name), `:${name} is a parameter of the statement`)
    unused.delete(name)
    return `$${names.indexOf(name) + 1}::${types.get(name)}`
  })
  assert(unused.size === 0, `the statement uses ${[...unused].join()}`)
  const order = names as NamesOf<Signature>[]
  const bind: SqlStatement<NamesOf<Signature>>['bind'] = (values) => {
    const parameters: (typeof values)[NamesOf<Signature>][] = []
    for (const name of order) parameters.push(values[name])
    return { text: numbered, parameters }
  }
  return { text: numbered, bind }
}

export type TextRow = readonly (string | null)[]

export interface PreparedPipeline {
  /** Runs all steps in one transaction. After an error, the server skips the rest. Returns each step's rows. */
  run(steps: readonly PipelineStep[]): Promise<TextRow[][]>
  /**
   * Runs one statement. Returns its DataRow messages in one buffer, which the caller owns. See `RowReader` for their
   * format.
   */
  read(statement: Readonly<Pick<PipelineStep, 'text' | 'parameters'>>): Promise<Buffer>
}

interface ConnectionState {
  readonly request: RequestBuffer
  readonly statements: PreparedStatements
}

export class PgPreparedPipeline implements PreparedPipeline {
  readonly #client: Client
  readonly #state: ConnectionState = { request: new RequestBuffer(), statements: new PreparedStatements() }

  constructor(client: Client) {
    this.#client = client
  }

  run(steps: readonly PipelineStep[]): Promise<TextRow[][]> {
    return new Promise((resolve, reject) => {
      this.#client.query(new StepsRun(steps, this.#state, { resolve, reject }))
    })
  }

  read(statement: Pick<PipelineStep, 'text' | 'parameters'>): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      this.#client.query(new BinaryRead(statement, this.#state, { resolve, reject }))
    })
  }
}

interface Reply<T> {
  resolve(value: T): void
  reject(error: unknown): void
}

class StepsRun extends PgQuery {
  readonly #steps: readonly PipelineStep[]
  readonly #state: ConnectionState
  readonly #reply: Reply<TextRow[][]>
  readonly #rows: TextRow[][] = []
  #rowsOfStep: TextRow[] = []

  constructor(steps: readonly PipelineStep[], state: ConnectionState, reply: Reply<TextRow[][]>) {
    super()
    this.#steps = steps
    this.#state = state
    this.#reply = reply
  }

  submit(connection: Connection): void {
    const { request, statements } = this.#state
    for (const { text, parameters = NO_PARAMETERS, packed, copied, take } of this.#steps) {
      if (take) request.parse('', text)
      const statement = take ? '' : statements.prepare(request, text)
      if (packed) request.bindPacked(statement, packed)
      else request.bind(statement, parameters, { isBinary: false })
      request.execute()
      if (copied) request.copyIn(copied)
    }
    request.send((connection as unknown as PgConnection).stream)
  }

  /** The rows of the `COPY` were sent with the statement. */
  override readonly handleCopyInResponse = ignore
  override handleDataRow({ fields }: { fields: TextRow }): void {
    this.#rowsOfStep.push(fields)
  }
  override handleCopyData({ chunk }: { chunk: Buffer }): void {
    this.#steps[this.#rows.length]?.take?.(chunk)
  }
  override handleCommandComplete(): void {
    this.#rows.push(this.#rowsOfStep)
    this.#rowsOfStep = []
  }
  override handleError(error: unknown, connection: Connection): void {
    this.#state.statements.invalidate()
    super.handleError(error, connection)
  }
  protected failed(error: unknown): void {
    this.#reply.reject(toDriverError(error))
  }
  handleReadyForQuery(): void {
    this.#state.statements.confirm()
    this.#reply.resolve(this.#rows)
  }
}

const NO_PARAMETERS: readonly ParameterValue[] = []
const ignore = () => undefined

const DATA_ROW = 'D'

/** Reads rows itself, because the driver creates a string per column. */
class BinaryRead extends PgQuery {
  readonly #statement: Pick<PipelineStep, 'text' | 'parameters'>
  readonly #state: ConnectionState
  readonly #reply: Reply<Buffer>
  readonly #rows: Buffer[] = []
  readonly #interceptor = new RowInterceptor(DATA_ROW, (bytes) => this.#rows.push(bytes))

  constructor(statement: Pick<PipelineStep, 'text' | 'parameters'>, state: ConnectionState, reply: Reply<Buffer>) {
    super()
    this.#statement = statement
    this.#state = state
    this.#reply = reply
  }

  submit(connection: Connection): void {
    const { text, parameters = [] } = this.#statement
    const { request, statements } = this.#state
    const { stream } = internalsOf(connection)
    this.#interceptor.attach(stream)
    request.bind(statements.prepare(request, text), parameters, { isBinary: true })
    request.execute()
    request.send(stream)
  }

  handleReadyForQuery(): void {
    this.#interceptor.detach()
    this.#state.statements.confirm()
    this.#reply.resolve(this.#rows.length === 1 ? this.#rows[0]! : Buffer.concat(this.#rows))
  }
  override handleError(error: unknown, connection: Connection): void {
    this.#state.statements.invalidate()
    super.handleError(error, connection)
  }
  protected failed(error: unknown): void {
    this.#interceptor.detach()
    this.#reply.reject(toDriverError(error))
  }
}

interface Prepared {
  readonly name: string
  /** `unknown` after a failed run, because the server skips a Parse that follows an error. */
  state: 'prepared' | 'unknown'
}

/** The prepared statements of one connection, by text. */
class PreparedStatements {
  readonly #byText = new Map<string, Prepared>()
  #fresh: Prepared[] = []

  /** Adds a Parse to the request if necessary. Returns the statement's name. */
  prepare(request: RequestBuffer, text: string): string {
    let statement = this.#byText.get(text)
    if (statement?.state === 'prepared') return statement.name
    if (statement) request.close(statement.name)
    statement ??= { name: `p${this.#byText.size + 1}`, state: 'prepared' }
    statement.state = 'prepared'
    this.#byText.set(text, statement)
    this.#fresh.push(statement)
    request.parse(statement.name, text)
    return statement.name
  }

  confirm(): void {
    this.#fresh = []
  }

  invalidate(): void {
    for (const statement of this.#fresh) statement.state = 'unknown'
    this.#fresh = []
  }
}
