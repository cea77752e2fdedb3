/** Which of the hosts in a database URL a connection goes to, and whether what answers there is a session of Postgres itself. */
import { connectError, DatabaseError, type Host, notDone, pooled } from './database-error.ts'
import { type DatabaseUrl, isLoopback, isSocketFolder, parseDatabaseUrl, type Target } from './database-url.ts'
import { openWire, type Way, type Wire } from './server-socket.ts'

interface Opened {
  readonly lane: {
    readonly pid: number | undefined
    row(text: string): Promise<readonly (string | null)[]>
    cut(): void
  }
}

type Open<T extends Opened> = (url: DatabaseUrl, wire: Wire) => Promise<T>

/**
 * Tries one host after the other, the one first that served last: a host that is down is met once, and after a failover the
 * former primary is not asked while the present one answers. The hosts share the time.
 * @param open - hands the wire to a driver
 * @throws DatabaseError `db_url_invalid`, `db_not_done`, `db_refused`, `db_pooled`, `db_tls_…`
 */
export async function openAtHost<T extends Opened>(text: string, timeoutMs: number, open: Open<T>): Promise<T> {
  const url = parseDatabaseUrl(text)
  const giveUpAtMs = performance.now() + timeoutMs
  const rounds: readonly Target[] = url.target === 'prefer-standby' ? ['standby', 'any'] : [url.target]
  let errors: DatabaseError[] = []
  for (const [no, target] of rounds.entries()) {
    errors = []
    for (const [i, host] of inOrder(url).entries()) {
      const shares = url.hosts.length * (rounds.length - no) - i
      const deadlineMs = performance.now() + Math.max(1, (giveUpAtMs - performance.now()) / shares)
      try {
        const opened = await openAt({ ...url, hosts: [host], target }, { deadlineMs, open })
        lastServing.set(hostsText(url), host)
        return opened
      } catch (error) {
        if (!(error instanceof DatabaseError && error.code === 'db_not_done')) throw error
        errors.push(error)
      }
    }
  }
  throw oneOf(errors)
}

const lastServing = new Map<string, Host>()

const hostsText = ({ hosts, target }: DatabaseUrl): string => JSON.stringify([hosts, target])

function inOrder(url: DatabaseUrl): readonly Host[] {
  const last = lastServing.get(hostsText(url))
  const first = url.hosts.filter(({ host, port }) => host === last?.host && port === last.port)
  return [...first, ...url.hosts.filter((each) => !first.includes(each))]
}

function oneOf(errors: readonly DatabaseError[]): DatabaseError {
  if (errors.length === 1) return errors[0]!
  const sentences = errors.map(({ message }) => message).join('; ')
  const sqlstate = errors.find((error) => error.sqlstate)?.sqlstate
  return new DatabaseError('db_not_done', `No host of the database URL serves. ${sentences}`, {
    retryable: true,
    ...(sqlstate ? { sqlstate } : {}),
  })
}

interface Attempt<T extends Opened> {
  readonly deadlineMs: number
  readonly open: Open<T>
}

/** By each way that the URL allows, as long as another one may help. */
async function openAt<T extends Opened>(url: DatabaseUrl, attempt: Attempt<T>): Promise<T> {
  const [way, other] = waysOf(url)
  let isEncrypted = false
  const reached = (wire: Wire) => {
    isEncrypted = wire.protocol !== null
  }
  try {
    return await openBy(way, url, { ...attempt, reached })
  } catch (error) {
    if (!other || !mayHelp(other, error, isEncrypted)) throw error
    return openBy(other, url, { ...attempt, reached }).catch((second) => {
      throw (second as DatabaseError).code === 'db_tls_off' ? error : second
    })
  }
}

/** Without `sslmode` what leaves the machine is encrypted if the server can, and what does not only if it insists. */
function waysOf({ tls, hosts: [host] }: DatabaseUrl): readonly [Way, Way?] {
  if (isSocketFolder(host!.host)) return ['clear']
  switch (tls.mode ?? (isLoopback(host!.host) ? 'allow' : 'prefer')) {
    case 'disable':
      return ['clear']
    case 'allow':
      return ['clear', 'tls']
    case 'prefer':
      return ['offered', 'clear']
    default:
      return ['tls']
  }
}

/** SQLSTATE of a server whose rules of access do not let this user in, or not by this way. */
const NOT_LET_IN = '28000'

/** A certificate that is wrong is no reason to do without. */
function mayHelp(other: Way, error: unknown, isEncrypted: boolean): boolean {
  const { code, sqlstate } = error as DatabaseError
  if (other === 'tls') return sqlstate === NOT_LET_IN
  return code === 'db_tls_failed' || (sqlstate === NOT_LET_IN && isEncrypted)
}

/** A driver that has heard why a connection ends says so meanwhile. One that took the socket too late hears nothing at all. */
const LAST_WORDS_MS = 100

async function openBy<T extends Opened>(
  way: Way,
  url: DatabaseUrl,
  { deadlineMs, open, reached }: Attempt<T> & { readonly reached: (wire: Wire) => void },
): Promise<T> {
  const leftMs = () => Math.max(1, deadlineMs - performance.now())
  let wire: Wire | undefined
  let opened: T | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  const lost = Promise.withResolvers<never>()
  const closed = () => setTimeout(() => lost.reject({ code: 'CONNECTION_CLOSED' }), LAST_WORDS_MS)
  try {
    wire = await openWire(url, { tls: url.tls, way, timeoutMs: leftMs() })
    reached(wire)
    timer = setTimeout(() => lost.reject({ code: 'CONNECTION_DESTROYED' }), leftMs())
    wire.socket.once('close', closed)
    const ready = open(url, wire).then(async (one) => {
      opened = one
      await examine(one.lane, url)
      return one
    })
    return await Promise.race([ready, lost.promise])
  } catch (error) {
    opened?.lane.cut()
    wire?.destroy()
    throw wire?.alert() ?? connectError(error, url)
  } finally {
    clearTimeout(timer)
    wire?.socket.off('close', closed)
  }
}

const WHO = 'select pg_backend_pid()::text, pg_is_in_recovery()::text, current_setting($$transaction_read_only$$)'

/**
 * A session's process has the number that it began with, unless something between answers for the server: every pooler
 * makes up numbers of its own, by which it takes cancellations; what only passes bytes on does not.
 */
async function examine(lane: Opened['lane'], url: DatabaseUrl): Promise<void> {
  const [pid, isStandby, isReadOnly] = await lane.row(WHO)
  if (Number(pid) !== lane.pid) throw pooled(url)
  const fault = faultOf(url.target, { isStandby: isStandby === 'true', isReadOnly: isReadOnly === 'on' })
  if (fault) throw notDone(fault, url)
}

function faultOf(
  target: Target,
  { isStandby, isReadOnly }: Record<'isStandby' | 'isReadOnly', boolean>,
): string | null {
  switch (target) {
    case 'read-write':
      return isStandby ? 'it is a standby' : isReadOnly ? 'it takes no writes' : null
    case 'read-only':
      return isReadOnly ? null : 'it takes writes'
    case 'primary':
      return isStandby ? 'it is a standby' : null
    case 'standby':
      return isStandby ? null : 'it is no standby'
    default:
      return null
  }
}
