/** TLS to a Postgres server, with what libpq makes of `sslmode` and the files beside it. */
import { readFileSync, type Stats, statSync } from 'node:fs'
import { isIP, type Socket } from 'node:net'
import { type ConnectionOptions, connect, createSecureContext, getCACertificates, type TLSSocket } from 'node:tls'
import { type Address, at, DatabaseError, type Host } from './database-error.ts'
import type { TlsTerms } from './database-url.ts'

/** @throws DatabaseError `db_tls_untrusted`, `db_tls_failed`, `db_tls_files` */
export async function handshake(raw: Socket, address: Address, terms: TlsTerms): Promise<TLSSocket> {
  const [{ host }] = address.hosts as [Host]
  const options = { socket: raw, host, ...(isIP(host) ? {} : { servername: host }), ...optionsOf(terms) }
  try {
    return await shaken(options)
  } catch (error) {
    throw handshakeError(error, address)
  }
}

/** `chain`: it is of a trusted authority; `name`: and of the host that was asked for. */
export type Verification = 'none' | 'chain' | 'name'

export function verification({ mode, rootCert }: TlsTerms): Verification {
  if (mode === 'verify-full') return 'name'
  return mode === 'verify-ca' || rootCert !== null ? 'chain' : 'none'
}

function optionsOf(terms: TlsTerms): ConnectionOptions {
  const verified = verification(terms)
  return {
    rejectUnauthorized: verified !== 'none',
    ...(verified === 'chain' ? { checkServerIdentity: () => undefined } : {}),
    ...(terms.isDirect ? { ALPNProtocols: ['postgresql'] } : {}),
    ...filesOf(terms),
  }
}

function filesOf({ rootCert, cert, key }: TlsTerms): Pick<ConnectionOptions, 'ca' | 'cert' | 'key'> {
  const roots = rootCert === 'system' ? getCACertificates('system') : rootCert && read('sslrootcert', rootCert)
  const files = {
    ...(roots === null ? {} : { ca: roots }),
    ...(cert === null || key === null ? {} : { cert: read('sslcert', cert), key: readKey(key) }),
  }
  try {
    createSecureContext(files)
    return files
  } catch {
    const sentence = 'What sslrootcert, sslcert and sslkey name must be PEM, and the key that of the certificate'
    throw new DatabaseError('db_tls_files', sentence)
  }
}

/** At each handshake, so that a certificate that was renewed is taken up. */
function read(name: string, path: string): Buffer {
  try {
    return readFileSync(path)
  } catch {
    throw new DatabaseError('db_tls_files', `The file that ${name} names (${path}) can't be read`)
  }
}

/** Nobody else on the machine may read it: the rule of libpq, by which root may hand it to a group. */
function readKey(path: string): Buffer {
  const key = read('sslkey', path)
  const { uid, mode }: Stats = statSync(path)
  const isOwn = uid === process.getuid?.()
  const forbidden = uid === 0 ? 0o037 : 0o077
  if (process.getuid && ((!isOwn && uid !== 0) || (mode & forbidden) !== 0))
    throw new DatabaseError(
      'db_tls_files',
      `Others may read the key that sslkey names (${path}): it must be of this account with mode 0600, or of root with 0640`,
    )
  return key
}

function shaken(options: ConnectionOptions): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connect(options)
    socket.on('error', () => undefined) // until a driver listens
    const gone = () => reject(Object.assign(new Error('closed'), { code: 'CONNECTION_DESTROYED' }))
    socket.once('error', reject)
    socket.once('close', gone)
    socket.once('secureConnect', () => {
      socket.off('error', reject)
      socket.off('close', gone)
      resolve(socket)
    })
  })
}

const UNTRUSTED = /CERT|SELF_SIGNED|ISSUER|VERIFY/

/** Of the handshake, or of an alert behind it: by TLS 1.3 a server judges a client's certificate when the client is done. */
export function handshakeError(error: unknown, address: Address): unknown {
  const { code = '' } = error as { code?: string }
  if (error instanceof DatabaseError || /^(CONNECTION_|E[A-Z]+$)/.test(code)) return error
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return new DatabaseError('db_tls_untrusted', `The certificate of ${at(address)} is of another host`)
  if (/^ERR_(SSL|OSSL)|PEM/.test(code) && !/CERTIFICATE_VERIFY_FAILED/.test(code))
    return new DatabaseError('db_tls_failed', `TLS with ${at(address)} failed (${code})`)
  if (UNTRUSTED.test(code))
    return new DatabaseError(
      'db_tls_untrusted',
      `The certificate of ${at(address)} is of no authority that sslrootcert names (${code})`,
    )
  return new DatabaseError('db_tls_failed', `TLS with ${at(address)} failed (${code || 'no code'})`)
}
