/**
 * Opens sockets to a Postgres server, in plaintext or TLS, for a driver to take over. Also cancels statements.
 * `sslmode` and certificate files have libpq's meaning.
 */
import { once } from 'node:events'
import { readFileSync, type Stats, statSync } from 'node:fs'
import { connect, isIP, type Socket } from 'node:net'
import {
  type ConnectionOptions,
  createSecureContext,
  getCACertificates,
  type TLSSocket,
  connect as tlsConnect,
} from 'node:tls'
import { type DatabaseAddress, DatabaseError, type Host, serverName } from './database-error.ts'
import { isLoopback, isSocketDirectory, type TlsOptions } from './database-url.ts'

export type SocketMode = 'plaintext' | 'tls_if_offered' | 'tls'

export interface Transport {
  readonly host: Host
  /** The TLS version; null without TLS. */
  readonly protocol: string | null
  readonly verified: Verification
  /** Whether the connection stays on this machine. */
  readonly isLocal: boolean
}

export interface ServerSocket extends Transport {
  readonly socket: Socket
  /** The TLS error that ended the connection, of which a driver may see only the end. */
  readonly tlsAlert: () => DatabaseError | undefined
  destroy(): void
}

export interface ServerSocketOptions {
  readonly tls: TlsOptions
  readonly mode: SocketMode
  readonly timeoutMs: number
}

/**
 * Connects, with the TLS handshake if the mode requires one. The server has only its certificate as a proof so far.
 * @throws DatabaseError `db_tls_off`, `db_tls_untrusted`, `db_tls_failed`, `db_tls_files`; and the socket's errors
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
  return socket.on('error', () => undefined) // until a driver handles errors
}

/** Rejects if the socket fails or closes first. */
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
  // Unauthenticated bytes after this reply would later count as encrypted ones (CVE-2021-23222).
  if (reply.length !== 1)
    throw new DatabaseError(
      'db_tls_failed',
      `${serverName(address)} sent more than the reply to the TLS request before TLS began`,
    )
  return reply[0] === YES
}

function destroy(socket: Socket | undefined): void {
  // The driver removes its listeners when a socket closes, so an error after that would crash the process.
  socket?.on('error', () => undefined)
  socket?.destroy()
}

/** The BackendKeyData of a session, which a cancel request must contain. */
export interface BackendKey {
  readonly pid: number
  readonly secret: number
}

const CANCEL_REQUEST = 80_877_102
const CANCEL_TIMEOUT_MS = 5_000

/**
 * Asks the server to cancel a destroyed connection's statement, which could otherwise wait for a lock and keep its own;
 * the server's timeouts fail if its clock is set back. Reports no result. The request is sent in plaintext, which the
 * server always accepts.
 */
export function cancelStatement(host: Host, { pid, secret }: Partial<BackendKey>): void {
  if (!pid || secret === undefined) return // the session never started
  const socket = openSocket(host)
  const timer = setTimeout(() => destroy(socket), CANCEL_TIMEOUT_MS)
  timer.unref()
  socket.on('error', () => undefined)
  socket.on('close', () => clearTimeout(timer))
  socket.end(untypedMessage(CANCEL_REQUEST, pid, secret))
}

/** Builds a startup message: a length and int32 values, without a type byte. */
function untypedMessage(...values: readonly number[]): Buffer {
  const message = Buffer.alloc(4 + 4 * values.length)
  for (const [i, value] of [message.length, ...values].entries()) message.writeInt32BE(value | 0, 4 * i)
  return message
}

/** @throws DatabaseError `db_tls_untrusted`, `db_tls_failed`, `db_tls_files` */
export async function startTls(raw: Socket, address: DatabaseAddress, options: TlsOptions): Promise<TLSSocket> {
  const [{ host }] = address.hosts as [Host]
  const connectOptions = { socket: raw, host, ...(isIP(host) ? {} : { servername: host }), ...optionsOf(options) }
  try {
    return await connectTls(connectOptions)
  } catch (error) {
    throw tlsError(error, address)
  }
}

/** `chain` requires a trusted authority; `name` also requires a certificate for the requested host. */
export type Verification = 'none' | 'chain' | 'name'

export function verification({ mode, rootCert }: TlsOptions): Verification {
  if (mode === 'verify-full') return 'name'
  return mode === 'verify-ca' || rootCert !== null ? 'chain' : 'none'
}

function optionsOf(options: TlsOptions): ConnectionOptions {
  const verified = verification(options)
  return {
    rejectUnauthorized: verified !== 'none',
    ...(verified === 'chain' ? { checkServerIdentity: () => undefined } : {}),
    ...(options.isDirect ? { ALPNProtocols: ['postgresql'] } : {}),
    ...filesOf(options),
  }
}

function filesOf({ rootCert, cert, key }: TlsOptions): Pick<ConnectionOptions, 'ca' | 'cert' | 'key'> {
  const roots = rootCert === 'system' ? getCACertificates('system') : rootCert && read('sslrootcert', rootCert)
  const files = {
    ...(roots === null ? {} : { ca: roots }),
    ...(cert === null || key === null ? {} : { cert: read('sslcert', cert), key: readKey(key) }),
  }
  try {
    createSecureContext(files)
    return files
  } catch {
    throw new DatabaseError(
      'db_tls_files',
      'The files named by sslrootcert, sslcert and sslkey must be PEM, and the key must match the certificate',
    )
  }
}

/** Reads the file at each handshake, so that a renewed certificate takes effect. */
function read(name: string, path: string): Buffer {
  try {
    return readFileSync(path)
  } catch {
    throw new DatabaseError('db_tls_files', `Can't read the file that ${name} names (${path})`)
  }
}

/** Reads the client's key. Like libpq, refuses one that other accounts may read, except root's key for a group. */
function readKey(path: string): Buffer {
  const key = read('sslkey', path)
  const { uid, mode }: Stats = statSync(path)
  const isOwn = uid === process.getuid?.()
  const forbidden = uid === 0 ? 0o037 : 0o077
  if (process.getuid && ((!isOwn && uid !== 0) || (mode & forbidden) !== 0))
    throw new DatabaseError(
      'db_tls_files',
      `Other accounts may read the key that sslkey names (${path}): it must belong to this account with mode 0600, or to root with mode 0640`,
    )
  return key
}

function connectTls(options: ConnectionOptions): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = tlsConnect(options)
    socket.on('error', () => undefined) // until a driver handles errors
    const closed = () => reject(Object.assign(new Error('closed'), { code: 'CONNECTION_DESTROYED' }))
    socket.once('error', reject)
    socket.once('close', closed)
    socket.once('secureConnect', () => {
      socket.off('error', reject)
      socket.off('close', closed)
      resolve(socket)
    })
  })
}

const UNTRUSTED = /CERT|SELF_SIGNED|ISSUER|VERIFY/

/**
 * Maps an error from the handshake or an alert after it, with which a TLS 1.3 server refuses the client's certificate.
 */
export function tlsError(error: unknown, address: DatabaseAddress): unknown {
  const { code = '' } = error as { code?: string }
  if (error instanceof DatabaseError || /^(CONNECTION_|E[A-Z]+$)/.test(code)) return error
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return new DatabaseError('db_tls_untrusted', `The certificate of ${serverName(address)} is for another host`)
  if (/^ERR_(SSL|OSSL)|PEM/.test(code) && !/CERTIFICATE_VERIFY_FAILED/.test(code))
    return new DatabaseError('db_tls_failed', `TLS with ${serverName(address)} failed (${code})`)
  if (UNTRUSTED.test(code))
    return new DatabaseError(
      'db_tls_untrusted',
      `The certificate of ${serverName(address)} was issued by no authority that sslrootcert names (${code})`,
    )
  return new DatabaseError('db_tls_failed', `TLS with ${serverName(address)} failed (${code || 'no code'})`)
}
