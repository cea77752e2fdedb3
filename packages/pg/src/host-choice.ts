/** Chooses a host of a database URL, and checks that Postgres itself answers there, not a pooler. */
import { connectError, DatabaseError, type Host, notExecuted, poolerError } from './database-error.ts'
import {
  type DatabaseUrl,
  isLoopback,
  isSocketDirectory,
  parseDatabaseUrl,
  type TargetSessionAttrs,
} from './database-url.ts'
import { openServerSocket, type ServerSocket, type SocketMode } from './socket.ts'

interface Opened {
  readonly connection: {
    readonly pid: number | undefined
    queryRow(text: string): Promise<readonly (string | null)[]>
    destroy(): void
  }
}

type Open<T extends Opened> = (url: DatabaseUrl, socket: ServerSocket) => Promise<T>

/**
 * Tries one host after another within one time limit, beginning with the last one used, so that a host that is down
 * costs time only once.
 * @param open - starts a driver on the socket
 * @throws DatabaseError `db_url_invalid`, `db_not_executed`, `db_refused`, `db_pooled`, `db_tls_…`
 */
export async function openAtHost<T extends Opened>(text: string, timeoutMs: number, open: Open<T>): Promise<T> {
  const url = parseDatabaseUrl(text)
  const endsAt = performance.now() + timeoutMs
  const rounds: readonly TargetSessionAttrs[] = url.target === 'prefer-standby' ? ['standby', 'any'] : [url.target]
  let errors: DatabaseError[] = []
  for (const [no, target] of rounds.entries()) {
    errors = []
    for (const [i, host] of inOrder(url).entries()) {
      const shares = url.hosts.length * (rounds.length - no) - i
      const deadline = performance.now() + Math.max(1, (endsAt - performance.now()) / shares)
      try {
        const opened = await openAt({ ...url, hosts: [host], target }, { deadline, open })
        lastServing.set(hostsKey(url), host)
        return opened
      } catch (error) {
        if (!(error instanceof DatabaseError && error.code === 'db_not_executed')) throw error
        errors.push(error)
      }
    }
  }
  throw combined(errors)
}

const lastServing = new Map<string, Host>()

const hostsKey = ({ hosts, target }: DatabaseUrl): string => JSON.stringify([hosts, target])

function inOrder(url: DatabaseUrl): readonly Host[] {
  const last = lastServing.get(hostsKey(url))
  const first = url.hosts.filter(({ host, port }) => host === last?.host && port === last.port)
  return [...first, ...url.hosts.filter((each) => !first.includes(each))]
}

function combined(errors: readonly DatabaseError[]): DatabaseError {
  if (errors.length === 1) return errors[0]!
  const sentences = errors.map(({ message }) => message).join('; ')
  const sqlstate = errors.find((error) => error.sqlstate)?.sqlstate
  return new DatabaseError('db_not_executed', `No host in the database URL can be used. ${sentences}`, {
    retryable: true,
    ...(sqlstate ? { sqlstate } : {}),
  })
}

interface Attempt<T extends Opened> {
  readonly deadline: number
  readonly open: Open<T>
}

/** Tries the first TLS mode that the URL allows, then the second one if it may succeed. */
async function openAt<T extends Opened>(url: DatabaseUrl, attempt: Attempt<T>): Promise<T> {
  const [mode, fallback] = modesOf(url)
  let isEncrypted = false
  const onSocket = (socket: ServerSocket) => {
    isEncrypted = socket.protocol !== null
  }
  try {
    return await openIn(mode, url, { ...attempt, onSocket })
  } catch (error) {
    if (!fallback || !canHelp(fallback, error, isEncrypted)) throw error
    return openIn(fallback, url, { ...attempt, onSocket }).catch((second) => {
      throw (second as DatabaseError).code === 'db_tls_off' ? error : second
    })
  }
}

/** Returns the default modes: a remote connection uses TLS if offered, a local one only if required. */
function modesOf({ tls, hosts: [host] }: DatabaseUrl): readonly [SocketMode, SocketMode?] {
  if (isSocketDirectory(host!.host)) return ['plaintext']
  switch (tls.mode ?? (isLoopback(host!.host) ? 'allow' : 'prefer')) {
    case 'disable':
      return ['plaintext']
    case 'allow':
      return ['plaintext', 'tls']
    case 'prefer':
      return ['tls_if_offered', 'plaintext']
    default:
      return ['tls']
  }
}

/** The SQLSTATE for a user that `pg_hba.conf` does not admit, possibly only in this TLS mode. */
const NOT_ADMITTED = '28000'

/** Returns whether the fallback may succeed. A bad certificate must not lead to a connection without TLS. */
function canHelp(fallback: SocketMode, error: unknown, wasEncrypted: boolean): boolean {
  const { code, sqlstate } = error as DatabaseError
  if (fallback === 'tls') return sqlstate === NOT_ADMITTED
  return code === 'db_tls_failed' || (sqlstate === NOT_ADMITTED && wasEncrypted)
}

/** How long the driver may take to report why a connection closed. */
const DRIVER_ERROR_GRACE_MS = 100

async function openIn<T extends Opened>(
  mode: SocketMode,
  url: DatabaseUrl,
  { deadline, open, onSocket }: Attempt<T> & { readonly onSocket: (socket: ServerSocket) => void },
): Promise<T> {
  const leftMs = () => Math.max(1, deadline - performance.now())
  let socket: ServerSocket | undefined
  let opened: T | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  const lost = Promise.withResolvers<never>()
  const closed = () => setTimeout(() => lost.reject({ code: 'CONNECTION_CLOSED' }), DRIVER_ERROR_GRACE_MS)
  try {
    socket = await openServerSocket(url, { tls: url.tls, mode, timeoutMs: leftMs() })
    onSocket(socket)
    timer = setTimeout(() => lost.reject({ code: 'CONNECTION_DESTROYED' }), leftMs())
    socket.socket.once('close', closed)
    const ready = open(url, socket).then(async (one) => {
      opened = one
      await checkSession(one.connection, url)
      return one
    })
    return await Promise.race([ready, lost.promise])
  } catch (error) {
    opened?.connection.destroy()
    socket?.destroy()
    throw socket?.tlsAlert() ?? connectError(error, url)
  } finally {
    clearTimeout(timer)
    socket?.socket.off('close', closed)
  }
}

const SESSION_FACTS =
  'select pg_backend_pid()::text, pg_is_in_recovery()::text, current_setting($$transaction_read_only$$)'

/**
 * Checks that the session's process id is the announced one. A pooler announces ids of its own; a proxy that only
 * forwards bytes does not.
 */
async function checkSession(connection: Opened['connection'], url: DatabaseUrl): Promise<void> {
  const [pid, isStandby, isReadOnly] = await connection.queryRow(SESSION_FACTS)
  if (Number(pid) !== connection.pid) throw poolerError(url)
  const fault = targetFault(url.target, { isStandby: isStandby === 'true', isReadOnly: isReadOnly === 'on' })
  if (fault) throw notExecuted(fault, url)
}

function targetFault(
  target: TargetSessionAttrs,
  { isStandby, isReadOnly }: Record<'isStandby' | 'isReadOnly', boolean>,
): string | null {
  switch (target) {
    case 'read-write':
      return isStandby ? 'it is a standby' : isReadOnly ? 'it accepts no writes' : null
    case 'read-only':
      return isReadOnly ? null : 'it accepts writes'
    case 'primary':
      return isStandby ? 'it is a standby' : null
    case 'standby':
      return isStandby ? null : 'it is not a standby'
    default:
      return null
  }
}
