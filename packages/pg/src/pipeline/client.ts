/**
 * Opens connections through the driver `pg`, because only `pg` can send several prepared statements and the rows of a
 * binary `COPY` in one write, as one implicit transaction with one Sync. Measurements: docs/adr/0003-copy.md.
 */
import { Client } from 'pg'
import type { DatabaseConnection, DatabaseConnectionOptions } from '../connection.ts'
import type { DatabaseUrl } from '../database-url.ts'
import { openAtHost } from '../host-choice.ts'
import { cancelStatement, type ServerSocket } from '../socket.ts'
import { adoptable, backendKeyOf, toDriverError } from './driver.ts'
import { PgPreparedPipeline, type PreparedPipeline } from './prepared.ts'

export type PipelineConnection = DatabaseConnection<PreparedPipeline>
type Options = DatabaseConnectionOptions<PreparedPipeline>

/** A connection and its driver's client, which can stream. */
export interface PgClientConnection {
  readonly client: Client
  /** Close or destroy this, not the client. */
  readonly connection: PipelineConnection
}

/**
 * Connects, and waits until the server accepts statements.
 * @throws DatabaseError with the codes of `openAtHost`
 */
export async function openPipelineConnection(url: string, options: Options): Promise<PipelineConnection> {
  const { connection } = await openPgClient(url, options)
  return connection
}

/** @throws DatabaseError with the codes of `openAtHost` */
export function openPgClient(url: string, options: Options): Promise<PgClientConnection> {
  return openAtHost(url, options.connectTimeoutMs, (parsed, socket) => openWith(parsed, socket, options))
}

async function openWith(url: DatabaseUrl, socket: ServerSocket, options: Options): Promise<PgClientConnection> {
  const client = newClient(url, socket, options)
  const connection = newPipelineConnection(client, socket, options)
  try {
    await client.connect()
    if (options.queryTimeoutMs !== undefined) await limitTransactions(client, options.queryTimeoutMs)
    return { client, connection }
  } catch (error) {
    connection.destroy()
    throw toDriverError(error)
  }
}

/**
 * Limits whole transactions; `statement_timeout` limits only each step. Servers before version 17 have no
 * `transaction_timeout`.
 */
async function limitTransactions(client: Client, ms: number): Promise<void> {
  await client.query("select set_config(name, $1, false) from pg_settings where name = 'transaction_timeout'", [
    String(ms),
  ])
}

function newClient(url: DatabaseUrl, { socket, host }: ServerSocket, options: Options): Client {
  const { user, password, database, session } = url
  return new Client({
    ...host,
    ...{ user, password, database },
    ssl: false, // the socket is already encrypted
    application_name: options.applicationName,
    options: startupOptions({ ...options.session, ...session }),
    keepAlive: true,
    stream: () => adoptable(socket),
  })
}

/** Returns the URL's own `options` last, so that they override the defaults. */
function startupOptions({ options = '', ...session }: Readonly<Record<string, string | number>>): string {
  const set = Object.entries(session).map(([name, value]) => `-c ${name}=${String(value).replace(/[\\ ]/g, '\\$&')}`)
  return [...set, options].join(' ').trim()
}

function newPipelineConnection(client: Client, socket: ServerSocket, options: Options): PipelineConnection {
  const lost = () => {
    if (connection.isClosed) return
    connection.isClosed = true
    options.onLost?.(connection)
  }
  client.on('end', lost)
  client.on('error', lost) // emitted only while no query runs
  client.on('notice', (notice) => options.onNotice?.(String(notice.message)))
  client.on('notification', ({ channel, payload = '' }) => options.onNotification?.(channel, payload))
  const pipeline = new PgPreparedPipeline(client)
  const connection: PipelineConnection = {
    driver: pipeline,
    transport: socket,
    get pid() {
      return backendKeyOf(client).pid
    },
    openedAt: performance.now(),
    isClosed: false,
    ping: () => pipeline.run([]),
    queryRow: async (text) =>
      (await client.query<(string | null)[]>({ text, rowMode: 'array', types: AS_TEXT })).rows[0]!,
    destroy: () => {
      lost()
      socket.destroy()
      cancelStatement(socket.host, backendKeyOf(client))
    },
    close: async () => {
      connection.isClosed = true
      await client.end().catch(() => undefined) // the connection ends even if this fails
      socket.destroy()
    },
  }
  return connection
}

const AS_TEXT = { getTypeParser: () => (text: unknown) => text }
