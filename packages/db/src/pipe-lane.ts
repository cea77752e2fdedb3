/**
 * One connection of another driver (`pg`), for what postgres.js can't do: send several prepared statements and the rows
 * of a binary `COPY` at once, as one implicit transaction that ends in one Sync, with parameters in binary. Why, and
 * what it brings: docs/adr/0003-copy.md.
 */
import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { ConnectionOptions } from 'node:tls'
import { Client, type Connection, DatabaseError as ServerError, type Submittable } from 'pg'
import { type Address, connectError } from './database-error.ts'
import { destroy, type Lane, type LaneOptions, parseAddress } from './lane.ts'

/** A statement, prepared at its first use. Bytes travel in Postgres' binary form, text in its text form. */
export interface Step {
  readonly text: string
  readonly parameters?: readonly (Uint8Array | string)[]
  /** For a `COPY … FROM STDIN (FORMAT binary)`: what it reads, header and trailer included. */
  readonly copied?: Uint8Array
}
/** Column values as text. */
export type PipeRow = readonly (string | null)[]

export interface Pipe {
  /** All steps in one transaction, or none: at the first error the server skips the rest. Answers the rows of each step. */
  run(steps: readonly Step[]): Promise<PipeRow[][]>
}

/**
 * Connects, and waits until the server is ready for statements.
 * @throws DatabaseError `db_not_done`, `db_refused`, `db_url_invalid`
 */
export async function openPipeLane(url: string, options: LaneOptions<Pipe>): Promise<Lane<Pipe>> {
  const address = parseAddress(url)
  const socket = new Socket()
  const client = newClient(url, address, { ...options, socket })
  const lane = newLane(client, socket, options)
  let isOverdue = false
  const timer = setTimeout(() => {
    isOverdue = true
    lane.cut()
  }, options.connectTimeoutMs)
  try {
    await client.connect()
    return lane
  } catch (error) {
    lane.cut()
    throw connectError(isOverdue ? { code: 'CONNECTION_DESTROYED' } : asDriverError(error), address)
  } finally {
    clearTimeout(timer)
  }
}

function newClient(url: string, address: Address, options: LaneOptions<Pipe> & { socket: Socket }): Client {
  const { host, port, user, database } = address
  const { password, searchParams } = new URL(url)
  return new Client({
    host,
    port,
    user,
    database,
    password: decodeURIComponent(password),
    ssl: tlsOf(searchParams),
    application_name: options.applicationName,
    options: Object.entries(options.session)
      .map(([name, value]) => `-c ${name}=${value}`)
      .join(' '),
    keepAlive: true,
    stream: () => options.socket,
  })
}

/** As the other driver reads it, so that one address means one thing. */
function tlsOf(parameters: URLSearchParams): ConnectionOptions | false {
  const mode = parameters.get('sslmode') ?? parameters.get('ssl')
  if (mode === 'require') return { rejectUnauthorized: false }
  return mode === 'verify-full' || mode === 'verify-ca' || mode === 'true' ? {} : false
}

function newLane(client: Client, socket: Socket, options: LaneOptions<Pipe>): Lane<Pipe> {
  let isGone = false
  const gone = () => {
    if (isGone) return
    isGone = true
    options.onGone?.(lane)
  }
  client.on('end', gone)
  client.on('error', gone) // while nothing runs; a running statement is told by itself
  client.on('notice', (notice) => options.onNotice?.(String(notice.message)))
  const pipe = new PreparedPipe(client)
  const lane: Lane<Pipe> = {
    driver: pipe,
    openedAt: performance.now(),
    get isGone() {
      return isGone
    },
    ping: () => pipe.run([]),
    cut: () => {
      gone()
      destroy(socket)
    },
    retire: async () => {
      isGone = true
      await client.end().catch(() => undefined) // it is over either way
      destroy(socket)
    },
  }
  return lane
}

class PreparedPipe implements Pipe {
  private readonly client: Client
  private readonly names = new Map<string, string>()

  constructor(client: Client) {
    this.client = client
  }

  run(steps: readonly Step[]): Promise<PipeRow[][]> {
    return new Promise((resolve, reject) => {
      this.client.query(new Submission(steps, this.names, { resolve, reject }))
    })
  }
}

interface Answer {
  resolve(rows: PipeRow[][]): void
  reject(error: unknown): void
}

/** What the driver calls for one run. */
class Submission implements Submittable {
  private readonly steps: readonly Step[]
  private readonly names: Map<string, string>
  private readonly answer: Answer
  private readonly rows: PipeRow[][] = []
  private ofStep: PipeRow[] = []

  constructor(steps: readonly Step[], names: Map<string, string>, answer: Answer) {
    this.steps = steps
    this.names = names
    this.answer = answer
  }

  /** One write for everything: the server answers once, at the Sync. */
  submit(driver: Connection): void {
    const connection = driver as unknown as PipeConnection
    connection.stream.cork()
    for (const step of this.steps) this.send(connection, step)
    connection.sync()
    connection.stream.uncork()
  }

  handleDataRow({ fields }: { fields: PipeRow }): void {
    this.ofStep.push(fields)
  }
  handleCommandComplete(): void {
    this.rows.push(this.ofStep)
    this.ofStep = []
  }
  /** The server's refusal, or the end of the connection: nothing else will be said of this run. */
  handleError(error: unknown): void {
    for (const { text } of this.steps) this.names.delete(text) // what was skipped is not prepared
    this.answer.reject(asDriverError(error))
  }
  handleReadyForQuery(): void {
    this.answer.resolve(this.rows)
  }
  readonly handleCopyInResponse = nothing // its rows are on their way already
  readonly handleRowDescription = nothing
  readonly handleEmptyQuery = nothing
  readonly handlePortalSuspended = nothing

  private send(connection: PipeConnection, { text, parameters = [], copied }: Step): void {
    let name = this.names.get(text)
    if (name === undefined) {
      lastName += 1 // never used twice: the former one may be prepared all the same
      name = `p${lastName}`
      this.names.set(text, name)
      connection.parse({ name, text, types: [] })
    }
    connection.bind({ statement: name, values: parameters, valueMapper: asItIs })
    connection.execute({})
    if (!copied) return
    connection.sendCopyFromChunk(copied)
    connection.endCopyFrom()
  }
}

let lastName = 0
const nothing = () => undefined
const asItIs = (value: unknown) => value

/** What the driver's types leave out. */
interface PipeConnection {
  readonly stream: Duplex
  sync(): void
  parse(message: { name: string; text: string; types: number[] }): void
  bind(message: { statement: string; values: readonly unknown[]; valueMapper: (value: unknown) => unknown }): void
  execute(message: object): void
  sendCopyFromChunk(chunk: Uint8Array): void
  endCopyFrom(): void
}

/** Under the names that `database-error.ts` knows. Of a connection that ended the driver says no code. */
function asDriverError(error: unknown): unknown {
  if (error instanceof ServerError) {
    const { severity, code, message, constraint } = error
    return { name: 'PostgresError', severity, code, message, constraint_name: constraint }
  }
  const { code = 'CONNECTION_CLOSED', message } = error as { code?: string; message: string }
  return { code, message }
}
