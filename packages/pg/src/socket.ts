/**
 * Opens sockets to a Postgres server, in plaintext or with TLS, up to where a driver takes over; and cancels
 * statements.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { type DatabaseAddress, DatabaseError, type Host, serverName } from './database-error.ts'
import { isLoopback, isSocketDirectory, type TlsOptions } from './database-url.ts'
import { startTls, tlsError, type Verification, verification } from './tls.ts'

export type SocketMode = 'plaintext' | 'tls_if_offered' | 'tls'

/** How a connection reaches the server. */
export interface Transport {
  readonly host: Host
  /** The TLS version; null without TLS. */
  readonly protocol: string | null
  readonly verified: Verification
  /** The connection does not leave this machine. */
  readonly isLocal: boolean
}

export interface ServerSocket extends Transport {
  readonly socket: Socket
  /** The TLS error that ended the connection, if any: a driver may only see that it closed. */
  readonly tlsAlert: () => DatabaseError | undefined
  destroy(): void
}

export interface ServerSocketOptions {
  readonly tls: TlsOptions
  readonly mode: SocketMode
  readonly timeoutMs: number
}

/**
 * Connects, and completes the TLS handshake where the mode asks for one. Only a certificate has identified the server
 * so far.
 * @throws DatabaseError `db_tls_off`, `db_tls_untrusted`, `db_tls_failed`, `db_tls_files`; errors of the socket
 */
export async function openServerSocket(
  address: DatabaseAddress,
  { tls, mode, timeoutMs }: ServerSocketOptions,
): Promise<ServerSocket> {
  const [host] = address.hosts as [Host]
  const raw = openSocket(host)
  let secure: TLSSocket | undefined
  const destroyBoth = () => {
    for (const socket of [secure, raw]) destroy(socket)
  }
  const timer = setTimeout(destroyBoth, timeoutMs)
  try {
    await nextEvent(raw, 'connect')
    const isLocal = isSocketDirectory(host.host) || isLoopback(raw.remoteAddress ?? '')
    if (mode !== 'plaintext' && (tls.isDirect || (await offersTls(raw, address))))
      secure = await startTls(raw, address, tls)
    else if (mode === 'tls')
      throw new DatabaseError('db_tls_off', `${serverName(address)} does not offer TLS, which sslmode requires`)
    const protocol = secure?.getProtocol() ?? null
    const verified = secure ? verification(tls) : 'none'
    let alert: DatabaseError | undefined
    secure?.once('error', (error) => {
      const known = tlsError(error, address)
      if (known instanceof DatabaseError) alert = known
    })
    return { socket: secure ?? raw, host, protocol, verified, isLocal, tlsAlert: () => alert, destroy: destroyBoth }
  } catch (error) {
    destroyBoth()
    throw error
  } finally {
    clearTimeout(timer)
  }
}

function openSocket({ host, port }: Host): Socket {
  const socket = isSocketDirectory(host) ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host)
  socket.setNoDelay(true)
  return socket.on('error', () => undefined) // until a driver listens
}

/** Rejects when the socket fails or closes first. */
async function nextEvent(socket: Socket, event: 'connect' | 'data'): Promise<unknown> {
  const over = new AbortController()
  const { signal } = over
  const closed = once(socket, 'close', { signal }).then(() => {
    throw Object.assign(new Error('closed'), { code: 'CONNECTION_DESTROYED' })
  })
  try {
    return (await Promise.race([once(socket, event, { signal }), closed]))[0]
  } finally {
    closed.catch(() => undefined)
    over.abort()
  }
}

const SSL_REQUEST = 80_877_103
const YES = 'S'.charCodeAt(0)

async function offersTls(socket: Socket, address: DatabaseAddress): Promise<boolean> {
  socket.write(untypedMessage(SSL_REQUEST))
  const reply = (await nextEvent(socket, 'data')) as Buffer
  // Unauthenticated bytes behind this reply would be taken for bytes of the server (CVE-2021-23222).
  if (reply.length !== 1)
    throw new DatabaseError(
      'db_tls_failed',
      `${serverName(address)} sent more than the reply to the TLS request before TLS began`,
    )
  return reply[0] === YES
}

function destroy(socket: Socket | undefined): void {
  // The driver removes its listeners when a socket closes; an error after that would end the process.
  socket?.on('error', () => undefined)
  socket?.destroy()
}

/** BackendKeyData: the server sends it when a session starts, and expects it in a cancel request. */
export interface BackendKey {
  readonly pid: number
  readonly secret: number
}

const CANCEL_REQUEST = 80_877_102
const CANCEL_TIMEOUT_MS = 5_000

/**
 * Asks the server to cancel what runs on a destroyed connection: a statement that waits for a lock continues and keeps
 * its own locks. The server's timeouts should end it, but they use the wall clock, and setting that back delays them.
 * Reports no result: the statement may have ended, or the server may be down. The server accepts the request in
 * plaintext, whatever it requires of sessions.
 */
export function cancelStatement(host: Host, { pid, secret }: Partial<BackendKey>): void {
  if (!pid || secret === undefined) return // destroyed before the session started
  const socket = openSocket(host)
  const timer = setTimeout(() => destroy(socket), CANCEL_TIMEOUT_MS)
  timer.unref()
  socket.on('error', () => undefined)
  socket.on('close', () => clearTimeout(timer))
  socket.end(untypedMessage(CANCEL_REQUEST, pid, secret))
}

/** A startup-phase message: its length and int32 values, without a type byte. */
function untypedMessage(...values: readonly number[]): Buffer {
  const message = Buffer.alloc(4 + 4 * values.length)
  for (const [i, value] of [message.length, ...values].entries()) message.writeInt32BE(value | 0, 4 * i)
  return message
}
