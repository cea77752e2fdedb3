/**
 * One connection of another driver (`pg`), for what postgres.js can't do: send several prepared statements and the rows
 * of a binary `COPY` at once, as one implicit transaction that ends in one Sync, with parameters in binary. Why, and
 * what it brings: docs/adr/0003-copy.md.
 */
import type { Socket } from 'node:net'
import { Client, type Connection } from 'pg'
import type { DatabaseUrl } from './database-url.ts'
import type { Lane, LaneOptions } from './lane.ts'
import { openAtHost } from './lane-host.ts'
import { asDriverError, type PipeConnection, Run } from './pipe-driver.ts'
import { PipeRead } from './pipe-read.ts'
import { PipeRequest, type Value } from './pipe-request.ts'
import { cancelStatement, type Wire } from './server-socket.ts'
import { Statements } from './statements.ts'

/** A statement, prepared at its first use. Bytes travel in Postgres' binary form, text in its text form. */
export interface Step {
  readonly text: string
  readonly parameters?: readonly Value[]
  /** For a `COPY … FROM STDIN (FORMAT binary)`: what it reads, header and trailer included. */
  readonly copied?: Uint8Array
  /**
   * For a `COPY … TO STDOUT`, which takes no parameters and so is not kept prepared: is told each message of the server, which
   * holds a row, as a view that is good until it returns. The header stands before the first row, the trailer alone.
   */
  readonly take?: (message: Buffer) => void
}
/** Column values as text. */
export type PipeRow = readonly (string | null)[]

export interface Pipe {
  /** All steps in one transaction, or none: at the first error the server skips the rest. Answers the rows of each step. */
  run(steps: readonly Step[]): Promise<PipeRow[][]>
  /**
   * One statement by itself. Answers its rows in binary, as the server framed them, all in one buffer that is the caller's: a
   * byte 68, an int32 that counts itself, the number of columns as an int16, and for each its length, or -1, and its bytes.
   */
  read(statement: Readonly<Pick<Step, 'text' | 'parameters'>>): Promise<Buffer>
}

/**
 * Connects, and waits until the server is ready for statements.
 * @throws DatabaseError as `openAtHost`
 */
export async function openPipeLane(url: string, options: LaneOptions<Pipe>): Promise<Lane<Pipe>> {
  const { lane } = await openBoth(url, options)
  return lane
}

/** The same connection with the driver's own face, for whoever streams through it; cut or retire its lane. */
export function openBoth(url: string, options: LaneOptions<Pipe>): Promise<{ client: Client; lane: Lane<Pipe> }> {
  return openAtHost(url, options.connectTimeoutMs, (parsed, wire) => openWith(parsed, wire, options))
}

async function openWith(url: DatabaseUrl, wire: Wire, options: LaneOptions<Pipe>) {
  const client = newClient(url, wire, options)
  const lane = newLane(client, wire, options)
  try {
    await client.connect()
    if (options.queryTimeoutMs !== undefined) await boundRuns(client, options.queryTimeoutMs)
    return { client, lane }
  } catch (error) {
    lane.cut()
    throw asDriverError(error)
  }
}

/**
 * `statement_timeout` bounds each step of a run by itself, so the run could go on long after its sender has given it up.
 * Servers before 17 have nothing for the whole; there the steps' own bound is all.
 */
async function boundRuns(client: Client, ms: number): Promise<void> {
  await client.query("select set_config(name, $1, false) from pg_settings where name = 'transaction_timeout'", [
    String(ms),
  ])
}

function newClient(url: DatabaseUrl, { socket, host }: Wire, options: LaneOptions<Pipe>): Client {
  const { user, password, database, session } = url
  return new Client({
    ...host,
    ...{ user, password, database },
    ssl: false, // the socket has it already
    application_name: options.applicationName,
    options: optionsOf({ ...options.session, ...session }),
    keepAlive: true,
    stream: () => connected(socket),
  })
}

/** The driver would connect it, and waits for the event. */
function connected(socket: Socket): Socket {
  const connect = () => {
    process.nextTick(() => socket.emit('connect'))
    return socket
  }
  return Object.assign(socket, { connect })
}

/** Sent last, so that `options` of the URL override the defaults. */
function optionsOf({ options = '', ...session }: Readonly<Record<string, string | number>>): string {
  const set = Object.entries(session).map(([name, value]) => `-c ${name}=${String(value).replace(/[\\ ]/g, '\\$&')}`)
  return [...set, options].join(' ').trim()
}

function newLane(client: Client, wire: Wire, options: LaneOptions<Pipe>): Lane<Pipe> {
  let isGone = false
  const gone = () => {
    if (isGone) return
    isGone = true
    options.onGone?.(lane)
  }
  client.on('end', gone)
  client.on('error', gone) // while nothing runs; a running statement is told by itself
  client.on('notice', (notice) => options.onNotice?.(String(notice.message)))
  client.on('notification', ({ channel, payload = '' }) => options.onNotification?.(channel, payload))
  const pipe = new PreparedPipe(client)
  const backend = client as unknown as { processID: number; secretKey: number }
  const lane: Lane<Pipe> = {
    driver: pipe,
    transport: wire,
    get pid() {
      return backend.processID
    },
    openedAt: performance.now(),
    get isGone() {
      return isGone
    },
    ping: () => pipe.run([]),
    row: async (text) => (await client.query<(string | null)[]>({ text, rowMode: 'array', types: AS_TEXT })).rows[0]!,
    cut: () => {
      gone()
      wire.destroy()
      cancelStatement(wire.host, { pid: backend.processID, secret: backend.secretKey })
    },
    retire: async () => {
      isGone = true
      await client.end().catch(() => undefined) // it is over either way
      wire.destroy()
    },
  }
  return lane
}

const AS_TEXT = { getTypeParser: () => (text: unknown) => text }

class PreparedPipe implements Pipe {
  private readonly client: Client
  private readonly said: Said = { request: new PipeRequest(), statements: new Statements() }

  constructor(client: Client) {
    this.client = client
  }

  run(steps: readonly Step[]): Promise<PipeRow[][]> {
    return new Promise((resolve, reject) => {
      this.client.query(new Submission(steps, this.said, { resolve, reject }))
    })
  }

  read({ text, parameters = [] }: Pick<Step, 'text' | 'parameters'>): Promise<Buffer> {
    const { request, statements } = this.said
    const send = (stream: PipeConnection['stream']) => {
      request.bind(statements.prepare(request, text), parameters, { isBinary: true })
      request.execute()
      request.send(stream)
    }
    return new Promise((resolve, reject) => {
      this.client.query(new PipeRead({ send, resolve, reject }, statements))
    })
  }
}

/** Of one connection. */
interface Said {
  readonly request: PipeRequest
  readonly statements: Statements
}

interface Answer {
  resolve(rows: PipeRow[][]): void
  reject(error: unknown): void
}

class Submission extends Run {
  private readonly steps: readonly Step[]
  private readonly said: Said
  private readonly answer: Answer
  private readonly rows: PipeRow[][] = []
  private ofStep: PipeRow[] = []

  constructor(steps: readonly Step[], said: Said, answer: Answer) {
    super()
    this.steps = steps
    this.said = said
    this.answer = answer
  }

  submit(driver: Connection): void {
    for (const step of this.steps) this.say(step)
    this.said.request.send((driver as unknown as PipeConnection).stream)
  }

  override handleDataRow({ fields }: { fields: PipeRow }): void {
    this.ofStep.push(fields)
  }
  override handleCopyData({ chunk }: { chunk: Buffer }): void {
    this.steps[this.rows.length]?.take?.(chunk)
  }
  override handleCommandComplete(): void {
    this.rows.push(this.ofStep)
    this.ofStep = []
  }
  override handleError(error: unknown, driver: Connection): void {
    this.said.statements.doubt()
    super.handleError(error, driver)
  }
  protected failed(error: unknown): void {
    this.answer.reject(asDriverError(error))
  }
  handleReadyForQuery(): void {
    this.said.statements.keep()
    this.answer.resolve(this.rows)
  }

  private say({ text, parameters = [], copied, take }: Step): void {
    const { request, statements } = this.said
    if (take) request.parse('', text)
    const statement = take ? '' : statements.prepare(request, text)
    request.bind(statement, parameters, { isBinary: false })
    request.execute()
    if (copied) request.copy(copied)
  }
}
