/** Sockets to a Postgres server: in the clear or by TLS, up to where a driver takes over; and a statement's cancellation. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { type Address, at, DatabaseError, type Host } from './database-error.ts'
import { isLoopback, isSocketFolder, type TlsTerms } from './database-url.ts'
import { handshake, handshakeError, type Verification, verification } from './server-tls.ts'

/** How a socket comes to be encrypted; `offered`: only if the server has TLS. */
export type Way = 'clear' | 'offered' | 'tls'

/** How a connection gets to the server. */
export interface Transport {
  readonly host: Host
  /** Of TLS; null: nothing is encrypted. */
  readonly protocol: string | null
  /** What was looked at of the server's certificate. */
  readonly verified: Verification
  /** Nothing of it leaves this machine. */
  readonly isLocal: boolean
}

export interface Wire extends Transport {
  readonly socket: Socket
  /** What TLS had to say when it ended the connection: a driver may know no more than that it is closed. */
  readonly alert: () => DatabaseError | undefined
  destroy(): void
}

export interface WireOptions {
  readonly tls: TlsTerms
  readonly way: Way
  readonly timeoutMs: number
}

/**
 * Connects, by TLS as far as it is wanted. The other end has said nothing yet of who it is, unless by a certificate.
 * @throws DatabaseError `db_tls_off`, `db_tls_untrusted`, `db_tls_failed`, `db_tls_files`; what the socket throws
 */
export async function openWire(address: Address, { tls, way, timeoutMs }: WireOptions): Promise<Wire> {
  const [host] = address.hosts as [Host]
  const raw = openSocket(host)
  let secure: TLSSocket | undefined
  const hangUp = () => {
    for (const socket of [secure, raw]) destroy(socket)
  }
  const timer = setTimeout(hangUp, timeoutMs)
  try {
    await ready(raw, 'connect')
    const isLocal = isSocketFolder(host.host) || isLoopback(raw.remoteAddress ?? '')
    if (way !== 'clear' && (tls.isDirect || (await offersTls(raw, address))))
      secure = await handshake(raw, address, tls)
    else if (way === 'tls')
      throw new DatabaseError('db_tls_off', `${at(address)} does not offer TLS, which sslmode asks for`)
    const protocol = secure?.getProtocol() ?? null
    const verified = secure ? verification(tls) : 'none'
    let alert: DatabaseError | undefined
    secure?.once('error', (error) => {
      const known = handshakeError(error, address)
      if (known instanceof DatabaseError) alert = known
    })
    return { socket: secure ?? raw, host, protocol, verified, isLocal, alert: () => alert, destroy: hangUp }
  } catch (error) {
    hangUp()
    throw error
  } finally {
    clearTimeout(timer)
  }
}

function openSocket({ host, port }: Host): Socket {
  const socket = isSocketFolder(host) ? connect(`${host}/.s.PGSQL.${port}`) : connect(port, host)
  socket.setNoDelay(true)
  return socket.on('error', () => undefined) // until a driver listens
}

/** Rejects when the socket fails or closes first. */
async function ready(socket: Socket, event: 'connect' | 'data'): Promise<unknown> {
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

async function offersTls(socket: Socket, address: Address): Promise<boolean> {
  socket.write(words(SSL_REQUEST))
  const answer = (await ready(socket, 'data')) as Buffer
  // Unauthenticated bytes after this reply would be taken for the server's (CVE-2021-23222).
  if (answer.length !== 1)
    throw new DatabaseError('db_tls_failed', `${at(address)} said more than whether it offers TLS before TLS began`)
  return answer[0] === YES
}

export function destroy(socket: Socket | undefined): void {
  // The driver takes its listeners off when a socket closes; an error after that would end the process.
  socket?.on('error', () => undefined)
  socket?.destroy()
}

/** What the server tells a connection of itself when it begins. */
export interface Backend {
  readonly pid: number
  readonly secret: number
}

const CANCEL_REQUEST = 80_877_102
const PATIENCE_MS = 5_000

/**
 * A statement whose connection was cut goes on as long as it waits for a lock, and holds what it has locked. The server's
 * own timeouts should end it; they go by the clock of the wall, and one that was set back puts them off as far. Nothing
 * is said of success: the statement may be over, or the server away. The server takes it in the clear, whatever it asks
 * of sessions.
 */
export function cancelStatement(host: Host, { pid, secret }: Partial<Backend>): void {
  if (!pid || secret === undefined) return // it was cut before it began
  const socket = openSocket(host)
  const timer = setTimeout(() => destroy(socket), PATIENCE_MS)
  timer.unref()
  socket.on('error', () => undefined)
  socket.on('close', () => clearTimeout(timer))
  socket.end(words(CANCEL_REQUEST, pid, secret))
}

/** A request without a type: its length, and what it is of. */
function words(...numbers: readonly number[]): Buffer {
  const request = Buffer.alloc(4 + 4 * numbers.length)
  for (const [i, word] of [request.length, ...numbers].entries()) request.writeInt32BE(word | 0, 4 * i)
  return request
}
