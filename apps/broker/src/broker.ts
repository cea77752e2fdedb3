/** Composes the parts of the broker, starts them in order, and stops them in reverse order. */

import { openConsole } from '@sealpost/console'
import type { Placement, Rate } from '@sealpost/core'
import { DEMO_PATH, openDemo } from '@sealpost/demo'
import type { Driver } from '@sealpost/driver'
import { normalizeAuthority, portOf, ready } from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { PROTOCOL_VERSIONS, SUBPROTOCOLS } from '@sealpost/protocol'
import { defaultQueueOptions, type QueueOptions } from '@sealpost/queue'
import { PostgresQueue } from '@sealpost/queue/postgres'
import { type Millis, OperatingError, type ShardId, toHex } from '@sealpost/std'
import { MEMBERS_MAX } from '@sealpost/store'
import manifest from '../package.json'
import { hostRefusal, openAdmin } from './admin/api.ts'
import { openAttachments } from './attachments/start.ts'
import { type Config, configHelp, limitsOf, printConfig, readConfig } from './config/config.ts'
import { DatabaseOrigin } from './database/origin.ts'
import { askOrigin, DatabaseWatch, openDatabases, prepareDatabase } from './database/watch.ts'
import { Authenticator, type BrokerKeys, EnrolmentService, readBrokerKeys } from './directory/authenticator.ts'
import { GroupService, MemberSettings, PoolService } from './directory/requests.ts'
import { UserService } from './directory/users.ts'
import { openDriver } from './driver.ts'
import { openHistory } from './history/start.ts'
import { openApi } from './http/api.ts'
import { discoveryOf } from './http/discovery.ts'
import type { KeyHint } from './http/own-keys.ts'
import { LogBackfill } from './mesh-log/backfill.ts'
import { openPreparedSends, PreparedSignal } from './prepared/prepared-sends.ts'
import { type AdmissionLimits, authorityWith } from './server/admission.ts'
import { helloOf } from './server/connection.ts'
import { Intakes } from './server/intake.ts'
import { type Overload, watchOverload } from './server/overload.ts'
import {
  adminRoutes,
  type HttpParts,
  publicRoutes,
  type RunningServer,
  routesOf,
  type ServerOptions,
  type ServerParts,
  serve,
  serveAdmin,
  WEBSOCKET_PATH,
  withConsole,
  withDemo,
} from './server/server.ts'
import { readTls, type Tls, TlsWatch } from './server/tls-files.ts'
import { openBus } from './shards/bus.ts'
import { Cells } from './shards/cells.ts'
import { ShardTable } from './shards/shard-table.ts'
import { SpaceHints, SpaceLookup } from './spaces/space-requests.ts'
import { errorFields, type Log, openLog } from './telemetry/log.ts'
import { Metrics } from './telemetry/metrics.ts'
import { Traces } from './telemetry/traces.ts'

/**
 * Starts the broker. `replaced` is called if the database has lost acknowledged data or is another one; the run must
 * then end.
 * @throws OperatingError with one sentence for the operator
 */
export async function startBroker(config: Config, log: Log, replaced: () => void): Promise<RunningBroker> {
  await ready()
  const { keys, tls } = await readFiles(config, log)
  const shard = toHex(crypto.getRandomValues(new Uint8Array(16))) as ShardId
  const origin = new DatabaseOrigin({ open: () => askOrigin(config), shard, log, replaced })
  const databases = await openDatabases(config, origin)
  const { version: postgres, durability, decided } = await prepareDatabase(config, databases, { shard, log })
  const { incarnation } = decided
  const stored = new PostgresQueue(databases, shard, queueOptions(config))
  origin.begin(decided, stored.lastAcknowledged)
  const members = await membersOf(databases, stored, { keys, config })
  const { queue, authenticator } = members
  const traces = await Traces.open(config)
  const metrics = new Metrics(traces)
  const prepared = new PreparedSignal()
  const bus = openBus(config, { shard, incarnation, log, metrics, watched: prepared.channelFor(config) })
  const spaceHints = new SpaceHints(bus)
  const driver = openDriver(
    config,
    { incarnation, durability, cellUrls: members.cells.ownUrls, timed: metrics.timed.bind(metrics) },
    { ...members, bus, spaceHints, log, metrics },
  )
  origin.onBack(() => driver.databaseIsBack())
  const watch = new DatabaseWatch(config, { asking: databases.asking, log, metrics, origin })
  let isStopping = false
  const facts = { ...buildFacts(), brokerKey: keys.publicKey, shard, limits: config.LIMITS, durability, postgres }
  const limits = limitsOf(config)
  const http: HttpParts = {
    facts,
    discovery: discoveryOf({ facts, certificate: keys.certificate, limits, pollingIdleMs: config.POLLING_IDLE_MS }),
    isReady: async () => {
      if (isStopping) throw new OperatingError('stopping', 'The broker is stopping.')
      await databases.asking.run((sql) => sql`select 1`, { timeoutMs: 1000 })
    },
    scrape: () => metrics.registry.metrics(),
    warnings: () => watch.warnings,
  }
  const intakes = config.LIMITS === 'on' ? new Intakes(intakeRate(config)) : null
  const socketOptions = serverOptions(config, { keys, intakes, tls })
  const attachments = await openAttachments(config, { origin, log, metrics })
  const history = await openHistory(config, { databases, origin, authenticator, spaceHints, log, metrics })
  const api = openApi(
    { driver, queue, db: databases.asking, authenticator, keys, settings: members.settings, keyChanged: keyChanges(driver), attachments, ...history, log }, // biome-ignore format: one thing
    apiOptionsOf(config, socketOptions, intakes),
  )
  const app = publicRoutes(http).route('/', api.app)
  if (config.DEMO === 'on') withDemo(app, await openDemo())
  const { overload, ...overloadWatch } = watchOverload(config, { driver, log, metrics, asking: databases.asking })
  const server = serve({ driver, log, ...servingParts({ app, overload, metrics, traces }) }, socketOptions)
  const preparedSends = openPreparedSends(config, prepared, { driver, queue, db: databases.asking, log, metrics })
  const background = [watchPort(config, { tls, server, log, metrics }), new LogBackfill(databases.asking, log)]
  const self = { shard, keys, port: server.port }
  const shards = new ShardTable(config, self, { db: databases.asking, origin, bus, log, metrics, ...placing(driver) })
  const operators = openAdmin({ databases, driver, metrics, watch, overload, facts, config, queue, log })
  const admin = serveOperators(config, { http, operators, log })
  await shards.look()
  const { url, adminUrl, httpUrl } = urlsOf(server, admin, tls)
  const { protocolVersions, subprotocols, ...built } = facts
  log.info('broker.ready', { url, httpUrl, adminUrl, ...demoUrlOf(config, httpUrl), ...built })
  const end = async (endSessions: () => unknown) => {
    isStopping = true
    for (const watching of [watch, origin, overloadWatch, ...background]) watching?.stop()
    await shards.leave()
    server.refuseNewClients()
    const preparedEnded = preparedSends.stop()
    await endSessions()
    await preparedEnded
    await api.ended().then(history.stop)
    await server.stop()
    await attachments.close()
    await admin.stop()
    operators.stop()
    await bus.close()
    await traces?.stop()
    await Promise.all(Object.values(databases).map((database) => database.close()))
  }
  return { url, adminUrl, stop: () => end(() => driver.shutdown()), leave: () => end(() => driver.dismiss()) }
}

/** Returns a function that makes every shard forget a key that a request over HTTP has changed. */
const keyChanges = (driver: Driver) => (hint: KeyHint) => {
  driver.step(() => driver.engine.hints.changed(hint))
  driver.hint(hint)
}

const apiOptionsOf = (config: Config, socketOptions: ServerOptions, intakes: Intakes | null) => ({
  greet: () => helloOf(socketOptions),
  pollingIdleMs: config.POLLING_IDLE_MS,
  failedAttemptsMax: config.FAILED_ATTEMPTS_MAX,
  rate: limitsOf(config).rate,
  intakes,
})

const readFiles = async (config: Config, log: Log) => ({
  keys: await readBrokerKeys(config, log),
  tls: await readTls(config),
})

interface Certified extends Pick<ServerOptions, 'tls'> {
  readonly server: RunningServer
  readonly log: Log
  readonly metrics: Metrics
}

function watchPort(config: Config, { tls, server, log, metrics }: Certified): TlsWatch | null {
  const watch = tls && new TlsWatch(config, tls, { log, renew: (next) => server.renew(next) })
  metrics.show({
    tls_certificate_end_seconds: [
      "expiry time of the public port's certificate, in seconds since 1970; +Inf without a certificate",
      () => (watch?.current.notAfterMs ?? Infinity) / 1000,
    ],
    port_closed: [
      '1 while the public port is closed because the process is out of file descriptors',
      () => Number(server.isPortClosed()),
    ],
  })
  return watch
}

const demoUrlOf = ({ DEMO }: Config, httpUrl: string) => (DEMO === 'on' ? { demoUrl: `${httpUrl}${DEMO_PATH}` } : {})

type Listening = Pick<RunningServer, 'authority'>

const urlsOf = (server: Listening, admin: Listening, tls: Tls | null) => ({
  url: `${tls ? 'wss' : 'ws'}://${server.authority}${WEBSOCKET_PATH}`,
  adminUrl: `http://${admin.authority}`,
  httpUrl: `${tls ? 'https' : 'http'}://${server.authority}`,
})

interface Serving {
  readonly app: ReturnType<typeof publicRoutes>
  readonly overload: Overload
  readonly metrics: Metrics
  readonly traces: Traces | null
}

function servingParts({ app, overload, metrics, traces }: Serving): Omit<ServerParts, 'driver' | 'log'> {
  const routeOf = routesOf(app)
  return {
    fetch: metrics.serving(traces?.serving(app.fetch, routeOf) ?? app.fetch, routeOf),
    isOverloaded: () => overload.reason !== null,
    refused: (code) => metrics.turnedAway(code),
    handshake: (tookMs, refused) => traces?.handshake(tookMs, refused),
  }
}

const placing = (driver: Driver) => ({
  placed: (placement: Placement) => driver.step(() => driver.engine.placed(placement)),
  others: (ids: ReadonlySet<ShardId>) => driver.shardsAre(ids),
})

interface OperatorParts {
  readonly http: HttpParts
  readonly operators: ReturnType<typeof openAdmin>
  readonly log: Log
}

function serveOperators({ ADMIN_HOST, ADMIN_PORT, ADMIN_NAMES }: Config, { http, operators, log }: OperatorParts) {
  const console = openConsole((error) => log.warn('console.failed', errorFields(error)))
  const app = withConsole(adminRoutes(http), console).route('/', operators.app)
  const fetch = (request: Request) => hostRefusal(request, ADMIN_NAMES) ?? app.fetch(request)
  return serveAdmin({ host: ADMIN_HOST, port: ADMIN_PORT, fetch })
}

interface Terms {
  readonly keys: BrokerKeys
  readonly config: Config
}

async function membersOf({ asking }: { asking: Database }, queue: PostgresQueue, { keys, config }: Terms) {
  const cells = await Cells.read(asking, { path: config.CELLS_FILE, own: config.CELL })
  const authenticator = new Authenticator(queue, keys, cells)
  const membersMax = config.LIMITS === 'on' ? config.MEMBERS_MAX : MEMBERS_MAX
  return {
    queue,
    cells,
    authenticator,
    enrolment: new EnrolmentService(asking, { authenticator, keys, cells, membersMax }),
    settings: new MemberSettings(asking, authenticator),
    groups: new GroupService(asking, authenticator, config.GROUPS_PER_OWNER),
    users: new UserService(asking, queue, { authenticator, keys, cells, membersMax }),
    pools: new PoolService(asking, queue, { authenticator, perOwnerMax: config.POOLS_PER_OWNER }),
    spaces: new SpaceLookup(asking, config.HISTORY_BYTES_MAX),
  }
}

function queueOptions(config: Config): QueueOptions {
  return {
    ...defaultQueueOptions,
    leaseMs: config.LEASE_MS,
    dedupeMs: config.DEDUPE_MS,
    failedAttemptsMax: config.FAILED_ATTEMPTS_MAX,
    failedAttemptsSpanMs: config.FAILED_ATTEMPTS_SPAN_MS,
  }
}

interface ServerFacts extends Pick<ServerOptions, 'intakes' | 'tls'> {
  readonly keys: BrokerKeys
}

function serverOptions(config: Config, { keys: { publicKey, certificate }, intakes, tls }: ServerFacts): ServerOptions {
  return {
    host: config.HOST,
    port: config.PORT,
    tls,
    authorities:
      config.PUBLIC_URL === '' ? config.AUTHORITIES : [...config.AUTHORITIES, normalizeAuthority(config.PUBLIC_URL)],
    origins: config.ORIGINS,
    isDemoOn: config.DEMO === 'on',
    proxies: { trusted: config.TRUSTED_PROXIES, header: config.PROXY_HEADER },
    brokerKey: publicKey,
    certificate: certificate?.bytes ?? null,
    authWithinMs: config.AUTH_WITHIN_MS,
    backpressureBytes: BACKPRESSURE_FACTOR * config.CREDIT_BYTES,
    limits: config.LIMITS === 'on' ? admissionLimits(config) : null,
    intakes,
  }
}

const admissionLimits = (config: Config): AdmissionLimits => ({
  socketsPerIp: config.SOCKETS_PER_IP,
  unprovenPerIp: config.UNAUTHENTICATED_PER_IP,
  unprovenMax: config.UNAUTHENTICATED_MAX,
  upgrades: { perSecond: config.UPGRADES_PER_SECOND, burst: config.UPGRADES_BURST },
  requests: { perSecond: config.REQUESTS_PER_SECOND, burst: config.REQUESTS_BURST },
  chunks: { perSecond: config.CHUNKS_PER_SECOND, burst: config.CHUNKS_BURST },
})

/**
 * The parse limit relative to the rate of envelope bytes. Frames are larger than envelopes, and members also send
 * settles, requests and entries.
 */
const INTAKE_FACTOR = { perSecond: 8, burst: 4 }

const intakeRate = (config: Config): Rate => ({
  perSecond: INTAKE_FACTOR.perSecond * config.RATE_BYTES_PER_SECOND,
  burst: INTAKE_FACTOR.burst * config.RATE_BYTES_BURST,
})

/** The socket buffer relative to a session's byte credit, with room for the larger encoding and acks. */
const BACKPRESSURE_FACTOR = 4

function buildFacts() {
  return {
    version: manifest.version,
    gitSha: gitSha(),
    protocolVersions: PROTOCOL_VERSIONS,
    subprotocols: Object.keys(SUBPROTOCOLS),
  }
}

/** Set by the build. */
declare const BUILD_GIT_SHA: string

/** Returns the commit, if known. A release runs outside a repository, and a container has no git. */
const gitSha = (): string => {
  if (typeof BUILD_GIT_SHA === 'string') return BUILD_GIT_SHA
  if (!Bun.which('git')) return 'unknown'
  const asked = Bun.spawnSync(['git', 'rev-parse', '--short', 'HEAD'], { cwd: import.meta.dir, stderr: 'ignore' })
  return asked.success ? asked.stdout.toString().trim() : 'unknown'
}

interface RunningBroker {
  readonly url: string
  readonly adminUrl: string
  stop(): Promise<void>
  /** Ends immediately, and asks each peer to reconnect after another delay. */
  leave(): Promise<void>
}

type StartRun = (config: Config, replaced: () => void) => Promise<RunningBroker>

const AGAIN_AFTER_MS: Millis = 500

/**
 * Runs the broker repeatedly within one process: when the database has lost data, the run ends with everything that it
 * knew, and the next one starts on the same ports.
 */
class Runs {
  readonly #config: Config
  readonly #log: Log
  readonly #start: StartRun
  #current: Promise<RunningBroker>
  #isOver = false

  constructor(config: Config, log: Log, start: StartRun) {
    this.#config = config
    this.#log = log
    this.#start = start
    this.#current = this.#begin(config)
  }

  /** Resolves when the first run is ready. @throws OperatingError if it can't start */
  async ready(): Promise<void> {
    await this.#current
  }

  async stop(): Promise<void> {
    this.#isOver = true
    await (await this.#current).stop()
  }

  #begin(config: Config): Promise<RunningBroker> {
    const run = this.#start(config, () => {
      if (!this.#isOver) this.#current = run.then((former) => this.#follow(former))
    })
    return run
  }

  async #follow(former: RunningBroker): Promise<RunningBroker> {
    await former.leave()
    const config = { ...this.#config, PORT: portOf(former.url), ADMIN_PORT: portOf(former.adminUrl) }
    while (!this.#isOver) {
      try {
        return await this.#begin(config)
      } catch (error) {
        if (!(error instanceof OperatingError)) throw error
        this.#log.error('broker.not_restarted', errorFields(error))
        await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER_MS))
      }
    }
    return { ...former, stop: () => Promise.resolve() }
  }
}

/** Runs the broker until a signal ends it. */
export async function main(): Promise<void> {
  const args = process.argv.slice(2)
  if (args.some((arg) => HELP.includes(arg))) return print(configHelp())
  if (args.some((arg) => arg !== PRINT_CONFIG && arg !== HEALTH))
    return exitWith(2, [
      `The broker accepts only the arguments ${PRINT_CONFIG}, ${HEALTH} and ${HELP[0]}. Configure it with environment variables.`,
    ])
  const read = readConfig()
  if (!read.ok) return exitWith(2, read.errors)
  if (args.includes(HEALTH)) return checkHealth(read.config)
  if (args.length > 0) return print(printConfig(read.config))
  const log = openLog(read.config.LOG_LEVEL)
  try {
    const runs = new Runs(read.config, log, (config, replaced) => startBroker(config, log, replaced))
    endWhenDue(runs, log) // before the broker is ready, because a supervisor may stop it immediately
    await runs.ready()
  } catch (error) {
    if (!(error instanceof OperatingError)) throw error
    exitWith(1, [error.message])
  }
}

const PRINT_CONFIG = '--print-config'
const HEALTH = '--health'
const HEALTH_WITHIN_MS = 4000
const HELP = ['--help', '-h']

/** Asks the running broker with these settings whether it is ready. */
async function checkHealth({ ADMIN_HOST, ADMIN_PORT }: Config): Promise<void> {
  const url = `http://${authorityWith(ADMIN_HOST, ADMIN_PORT)}/readyz`
  const answer = await fetch(url, { signal: AbortSignal.timeout(HEALTH_WITHIN_MS) }).catch(() => null)
  if (!answer) return exitWith(1, [`No broker responds at ${url}`])
  if (!answer.ok) return exitWith(1, [`The broker at ${url} is not ready`])
  print(await answer.text())
}

function print(text: string): void {
  process.stdout.write(`${text}\n`)
}

function exitWith(code: number, sentences: readonly string[]): never {
  for (const sentence of sentences) process.stderr.write(`${sentence.replace(/\.?$/, '.')}\n`)
  process.exit(code)
}

function endWhenDue(runs: Runs, log: Log): void {
  const stop = () => runs.stop()
  let isEnding = false
  const end = (signal: string) => {
    if (isEnding) process.exit(1) // a second signal ends the process immediately
    isEnding = true
    log.info('broker.stopping', { signal })
    const stopped = () => {
      log.info('broker.stopped')
      process.exit(0)
    }
    void stop().then(stopped, () => process.exit(1)) // the start has already printed the reason
  }
  process.on('SIGTERM', () => end('SIGTERM'))
  process.on('SIGINT', () => end('SIGINT'))
  const die = (event: string) => (error: unknown) => {
    log.error(event, errorFields(error))
    process.exitCode = 1
    setTimeout(() => process.exit(1), 5000).unref()
    void stop().finally(() => process.exit(1))
  }
  process.on('uncaughtException', die('broker.fault'))
  process.on('unhandledRejection', die('broker.fault'))
}
