/** TLS to a Postgres server: `sslmode` and the certificate files mean what they mean in libpq. */
import { readFileSync, type Stats, statSync } from 'node:fs'
import { isIP, type Socket } from 'node:net'
import { type ConnectionOptions, connect, createSecureContext, getCACertificates, type TLSSocket } from 'node:tls'
import { type DatabaseAddress, DatabaseError, type Host, serverName } from './database-error.ts'
import type { TlsOptions } from './database-url.ts'

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

/** `chain`: a trusted authority issued the certificate; `name`: and it is for the requested host. */
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

/** Applies libpq's rule: no other account may read the key, except that root may let a group read it. */
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
    const socket = connect(options)
    socket.on('error', () => undefined) // until a driver listens
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
 * Maps an error of the handshake, or of an alert after it: in TLS 1.3 a server checks the client's certificate after
 * the client is done.
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
