/** `sealpost up` runs a broker with its own Postgres, for one machine or a small office. Ctrl-C stops both. */
import { existsSync } from 'node:fs'
import { access, constants } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join, resolve } from 'node:path'
import { brokerCommand, logLine } from '@sealpost/broker-program'
import { type EmbeddedPostgres, findPrograms, startEmbedded } from '@sealpost/embedded-pg'
import {
  bindBoxKey,
  fingerprint,
  generateSigningKeys,
  type Identity,
  isDialable,
  isLoopback,
  normalizeAuthority,
  portOf,
  ready,
  signEndorsement,
} from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { type Database, openDatabase } from '@sealpost/pg'
import { BINDING_MS } from '@sealpost/protocol'
import { prepareDatabase } from '@sealpost/schema'
import {
  asciiName,
  isChosenName,
  isHex,
  type MeshId,
  NAME_RULE,
  OperatingError,
  type PeerKey,
  tidyName,
  toHex,
} from '@sealpost/std'
import { addMembers, adoptRoot, createMesh, findMeshRoot, putEndorsements } from '@sealpost/store'
import { Command } from 'commander'
import { saveOwnerAccess } from '../operator/admin-api.ts'
import { KEYCHAIN_OPTION } from '../profile/keychain.ts'
import {
  ensureKeys,
  isRecord,
  type Membership,
  type Profile,
  readJsonFile,
  userName,
  writeJsonFile,
} from '../profile/profile.ts'
import { ensureRootKey, readRootKey } from '../profile/proofs.ts'
import { parseInteger } from '../settings.ts'
import { examples, type RunAction, type Shell, whenAborted } from '../shell.ts'
import { BrokerSupervisor, listenWarning } from './broker-supervisor.ts'

/** The mesh that `up` creates first, with the profile as its admin. Each step can be repeated. */
interface FirstMesh {
  readonly databaseUrl: string
  readonly meshId: MeshId
  readonly meshName: string
  readonly name: string
  /** The address that peers dial. */
  readonly url: string
  readonly brokerKey: PeerKey
  /** The file of the mesh's root, which is created with the mesh. */
  readonly rootKeyFile: string
}

export const newMeshId = (): MeshId => toHex(crypto.getRandomValues(new Uint8Array(16))) as MeshId

async function enrolFirstAdmin(profile: Profile, mesh: FirstMesh): Promise<Membership> {
  const { identity } = await profile.readKeys()
  const { meshId, url, brokerKey } = mesh
  const { name, root } = await enrol(identity, mesh)
  const former = await profile.findMembership()
  const trusted = former?.root ?? root
  const membership = { url, brokerKey, meshId, name, ...(trusted && { root: trusted }) }
  await profile.writeMembership(membership)
  return membership
}

interface Enrolled {
  readonly name: string
  /** Null if an earlier version created the mesh. */
  readonly root: PeerKey | null
}

async function enrol(identity: Identity, mesh: FirstMesh): Promise<Enrolled> {
  const { databaseUrl, meshId, meshName, name, rootKeyFile } = mesh
  const db = await openDatabase(databaseUrl, { connections: 1 })
  try {
    const meshes = await db.run((sql) => sql`select from mesh where mesh_id = ${meshId}`)
    if (meshes.length === 0) {
      await ensureRootKey(rootKeyFile) // before the mesh, so that an interrupted start continues with it
      await createMesh(db, { meshId, name: meshName })
    }
    const { publicKey } = identity.signing
    const [member] = await db.run(
      (sql) => sql<{ name: string | null }[]>`
        select name from member where mesh_id = ${meshId} and encode(peer_key, 'hex') = ${publicKey}`,
    )
    const chosen = member ? (member.name ?? '') : tidyName(name)
    if (!member) {
      const binding = bindBoxKey(identity, meshId, Date.now() + BINDING_MS)
      await addMembers(db, meshId, [{ ...binding, name: chosen, role: 'admin' }])
    }
    return { name: chosen, root: await certifyAdmin(db, mesh, { peerKey: publicKey, name: chosen }) }
  } finally {
    await db.close()
  }
}

/** Adopts the root of the first start, if there is one, and certifies the admin. Can be repeated. */
async function certifyAdmin(
  db: Database,
  { meshId, rootKeyFile }: FirstMesh,
  { peerKey, name }: { peerKey: PeerKey; name: string },
): Promise<PeerKey | null> {
  const { root: known } = await findMeshRoot(db, meshId)
  if (known !== null || !existsSync(rootKeyFile)) return known
  const root = await readRootKey(rootKeyFile)
  const terms = { meshId, peerKey, name: asciiName(name), role: 'admin', atMs: Date.now() } as const
  const endorsement = { ...terms, issuer: root.publicKey, bytes: signEndorsement(root, terms) }
  await putEndorsements(db, meshId, { endorsements: [endorsement], requester: null })
  return adoptRoot(db, { meshId, root: root.publicKey, replaces: null }, null)
}

interface UpOptions {
  readonly data?: string
  readonly port?: number
  readonly host: string
  readonly url?: string
  readonly tlsCert?: string
  readonly tlsKey?: string
  readonly name?: string
  readonly keychain?: boolean
  readonly log?: boolean
}

const FIRST_PORT = 7450
const PORTS = 50
const PORT_MAX = 65_535

export function upCommand(run: RunAction): Command {
  return new Command('up')
    .description('Run a broker and its database, which is stored in a folder, until Ctrl-C')
    .option(
      '-d, --data <FOLDER>',
      'the folder of the broker and its database; default: $XDG_DATA_HOME/sealpost or ~/.local/share/sealpost',
    )
    .option(
      '--port <PORT>',
      `the port that peers connect to; 0 selects any free port; default: the port of the last start; for a new folder, the first free port from ${FIRST_PORT} up`,
      parseInteger(0, 65_535),
    )
    .option('--host <ADDRESS>', 'the address to listen on; 0.0.0.0 listens on all addresses', '127.0.0.1')
    .option(
      '--url <URL>',
      'the URL at which peers on other machines connect, such as wss://broker.example; invites contain this URL',
    )
    .option('--tls-cert <FILE>', 'the TLS certificate with its chain, as PEM, to serve wss://; default: TLS_CERT')
    .option('--tls-key <FILE>', 'the private key of the certificate, as PEM; default: TLS_KEY')
    .option(
      '--name <NAME>',
      "the name of the mesh's first member, used only at the first start; default: the name of your account",
    )
    .option(...KEYCHAIN_OPTION)
    .option('--log', "print the broker's entire log to stderr, not only warnings and errors")
    .addHelpText(
      'after',
      `
The first start creates a mesh and makes the profile (default, or --profile) its first member, an admin who may invite
others. If the broker crashes, this command restarts it. docs/reference/config.md lists the broker's other settings.
${examples(
  'sealpost up',
  'sealpost up --data ./broker --port 7460',
  'sealpost up --host 0.0.0.0 --url wss://broker.example:7450 --tls-cert chain.pem --tls-key key.pem',
)}`,
    )
    .action(run(up))
}

/**
 * Defines a command that runs only the broker. With `broker` as its first argument, the compiled program does not load
 * it.
 */
export function brokerProgramCommand(run: RunAction): Command {
  return new Command('broker')
    .description('Run a broker with your own database; environment variables configure it')
    .option('--print-config', 'print the effective settings, with secrets hidden')
    .option('--health', 'succeed if the running broker with the same settings is ready')
    .addHelpText(
      'after',
      `
docs/reference/config.md lists the settings.
${examples('DATABASE_URL=postgres://… sealpost broker', 'DATABASE_URL=postgres://… sealpost broker --health')}`,
    )
    .action(
      run(async (_, { printConfig, health }: { printConfig?: true; health?: true }) => {
        const command = [
          ...brokerCommand(),
          ...(printConfig ? ['--print-config'] : []),
          ...(health ? ['--health'] : []),
        ]
        process.execve!(command[0]!, command) // signals and the exit code are then the broker's
      }),
    )
}

/** The state of a data folder between two starts. */
interface UpState {
  readonly port: number
  readonly meshId: MeshId
  readonly admin: PeerKey
}

async function up(shell: Shell, options: UpOptions): Promise<void> {
  await ready()
  const tls = tlsOf(shell, options)
  checkMember(options)
  await checkReadable(tls)
  warnAbout(shell, options, tls)
  const folder = resolve(options.data ?? shell.settings.dataFolder)
  const stateFile = join(folder, 'up.json')
  const former = await readJsonFile(stateFile, isUpState)
  if (!former) await checkPort(options)
  const programs = await findPrograms(resolve(shell.settings.cacheFolder))
  shell.signal.throwIfAborted()
  await using stack = new AsyncDisposableStack()
  shell.output.info('starting the database')
  const starting = startEmbedded({ dataDir: join(folder, 'postgres'), programs })
  const postgres = stack.adopt(await starting, (started) => started.stop())
  shell.signal.throwIfAborted()
  const logins = newLogins(postgres)
  await prepareDatabase(postgres.url, [
    { role: 'broker', url: logins.broker },
    { role: 'admin', url: logins.admin },
  ])
  const port = options.port ?? former?.port ?? (await freePort())
  const keeper = stack.use(await startSupervisor(shell, { options, tls, folder, port, logins }))
  shell.signal.throwIfAborted()
  const { first } = keeper
  const admin = former?.admin ?? (await ensureKeys(shell.profile, options))
  const state = { port: portOf(first.url), meshId: former?.meshId ?? newMeshId(), admin }
  await writeJsonFile(stateFile, state)
  await saveAccess(postgres, folder, first.adminUrl)
  const url = options.url ?? new URL(first.url).origin.replace(/^http/, 'ws')
  const member = await enrolAdmin(shell, state, {
    databaseUrl: postgres.url,
    brokerKey: first.brokerKey,
    url,
    name: options.name ?? userName(),
    rootKeyFile: join(folder, 'root-key.json'),
  })
  await print(shell, { keeper, postgres, folder, state, url, member })
  const postgresEnded = postgres.exited.then(() => {
    if (!shell.signal.aborted) throw new OperatingError('database_died', 'The database stopped unexpectedly.')
  })
  await Promise.race([whenAborted(shell.signal), keeper.gaveUp, postgresEnded])
  shell.output.info('ending')
}

/** The TLS files, both empty without TLS. */
type TlsFiles = { readonly TLS_CERT: string; readonly TLS_KEY: string }

function tlsOf({ settings: { environment } }: Shell, { tlsCert, tlsKey, url }: UpOptions): TlsFiles {
  if ((tlsCert === undefined) !== (tlsKey === undefined))
    throw new OperatingError('usage', 'Set both --tls-cert and --tls-key, or neither.')
  const files = tlsCert === undefined ? [environment.TLS_CERT, environment.TLS_KEY] : [tlsCert, tlsKey]
  const [TLS_CERT = '', TLS_KEY = ''] = files.map((path) => (path ? resolve(path) : ''))
  if (TLS_CERT !== '' && url !== undefined && !/^(wss|https):/i.test(url))
    throw new OperatingError('usage', '--url must begin with wss:// if the broker has a certificate.')
  return { TLS_CERT, TLS_KEY }
}

/** Checks what only the last steps use, before the first step creates anything. */
function checkMember({ url, name }: UpOptions): void {
  if (url !== undefined && !isDialable(url))
    throw new OperatingError('usage', '--url must be a URL such as wss://broker.example or ws://127.0.0.1:7450.')
  if (name !== undefined && !isChosenName(tidyName(name)))
    throw new OperatingError('name_malformed', `A name must be ${NAME_RULE}.`)
}

async function checkReadable({ TLS_CERT, TLS_KEY }: TlsFiles): Promise<void> {
  const check = (path: string, code: string) =>
    access(path, constants.R_OK).catch((cause) => {
      throw new OperatingError(code, `Can't read the file ${path}.`, { cause })
    })
  if (TLS_CERT !== '') await check(TLS_CERT, 'tls_certificate_unreadable')
  if (TLS_KEY !== '') await check(TLS_KEY, 'tls_key_unreadable')
}

function warnAbout({ output }: Shell, { url, host }: UpOptions, { TLS_CERT }: TlsFiles): void {
  if (isLoopback(host)) return
  if (url === undefined)
    output.warn('Set --url to accept peers from other machines: the broker must know the URL that they dial.')
  if (TLS_CERT === '') output.warn(listenWarning(host))
}

async function saveAccess({ url }: EmbeddedPostgres, folder: string, adminUrl: string): Promise<void> {
  const db = await openDatabase(url, { connections: 1, applicationName: 'sealpost' })
  await saveOwnerAccess(db, folder, adminUrl).finally(() => db.close())
}

/**
 * Checks that the broker can listen, before the first start creates anything. A later start may find its own broker,
 * and then reports that the folder is in use.
 */
async function checkPort({ port = 0, host }: UpOptions): Promise<void> {
  const code = await listenError(port, host)
  if (code === 'EADDRINUSE')
    throw new OperatingError('port_taken', `Another program listens on ${host}:${port}. Set --port to another port.`)
  if (code !== null) throw new OperatingError('address_unusable', `Can't listen on ${host}:${port} (${code}).`)
}

interface Start {
  readonly options: UpOptions
  readonly tls: TlsFiles
  readonly folder: string
  readonly port: number
  readonly logins: Logins
}

/** The database's URLs with different logins. */
interface Logins {
  readonly broker: string
  readonly admin: string
}

/** Returns logins with random passwords for this run. */
function newLogins({ port }: EmbeddedPostgres): Logins {
  const urlOf = (user: string) =>
    `postgres://${user}:${toHex(crypto.getRandomValues(new Uint8Array(24)))}@127.0.0.1:${port}/postgres`
  return { broker: urlOf('broker'), admin: urlOf('operator') }
}

async function startSupervisor({ output, settings }: Shell, { options, tls, folder, port, logins }: Start) {
  const keyFile = join(folder, 'broker-key.json')
  if (!(await Bun.file(keyFile).exists()))
    await writeKeyFile(keyFile, { kind: 'broker', signing: generateSigningKeys() })
  const environment = {
    ADMIN_PORT: String(await adminPortBeside(port)),
    ...settings.environment,
    ...(options.url ? { AUTHORITIES: authorities(options.url, settings.environment.AUTHORITIES) } : {}),
    ...tls,
    HOST: options.host,
    PORT: String(port),
    BROKER_KEY_FILE: keyFile,
    DATABASE_URL: logins.broker,
    DATABASE_URL_FILE: undefined,
    ADMIN_DATABASE_URL: logins.admin,
    ADMIN_DATABASE_URL_FILE: undefined,
  }
  const onLine = (line: string) => {
    const level = logLine(line)?.level
    if (options.log || (level !== 'info' && level !== 'debug')) process.stderr.write(`${line}\n`)
  }
  return BrokerSupervisor.start(
    { environment, onLine },
    {
      died: (lastWords, inMs) => output.warn(`The broker ended (${lastWords}). Restarting it in ${inMs} ms.`),
      restarted: ({ pid }) =>
        void output.result({ event: 'restarted', pid }, () => `The broker is running again, pid ${pid}.`),
    },
  )
}

function authorities(url: string, others: string | undefined): string {
  return [normalizeAuthority(url), ...(others ? [others] : [])].join()
}

/** Enrols the admin. Returns null if the mesh has another one, or the profile another mesh. */
async function enrolAdmin(
  { profile, output }: Shell,
  { meshId, admin }: UpState,
  broker: Omit<FirstMesh, 'meshId' | 'meshName'>,
): Promise<Membership | null> {
  if (!profile.hasKeys || (await ensureKeys(profile)) !== admin) return null
  const known = await profile.findMembership()
  if (known && (known.meshId !== meshId || known.brokerKey !== broker.brokerKey)) {
    output.warn(
      `The profile ${profile.name} belongs to another mesh and was not changed. Choose another profile with --profile.`,
    )
    return null
  }
  return enrolFirstAdmin(profile, { ...broker, meshId, meshName: 'home' })
}

interface StartedBroker {
  readonly keeper: BrokerSupervisor
  readonly postgres: EmbeddedPostgres
  readonly folder: string
  readonly state: UpState
  readonly url: string
  readonly member: Membership | null
}

async function print(
  { output, profile }: Shell,
  { keeper, postgres, folder, state, url, member }: StartedBroker,
): Promise<void> {
  const { httpUrl, adminUrl, demoUrl, brokerKey, pid } = keeper.first
  const { meshId } = state
  const name = member ? `${profile.name}: ${member.name || state.admin}, admin` : 'none in this mesh'
  const shellUrl = `"postgres://sealpost:$(cat '${join(folder, 'postgres/password')}')@127.0.0.1:${postgres.port}/postgres"`
  const json = {
    event: 'ready',
    url,
    httpUrl,
    adminUrl,
    demoUrl: demoUrl ?? null,
    brokerKey,
    pid,
    meshId,
    root: member?.root ?? null,
    folder,
    postgresPid: postgres.pid,
  }
  await output.result(
    { ...json, postgresPort: postgres.port, profile: member ? profile.name : null },
    () => `${output.facts([
      ['broker', url],
      ['broker key', fingerprint(brokerKey)],
      ...(demoUrl === undefined ? [] : [['demo', demoUrl] as const]),
      ['health', `${httpUrl}/readyz   ${adminUrl}/metrics`],
      ['mesh', meshId],
      ...(member?.root ? [['root', fingerprint(member.root)] as const] : []),
      ['profile', name],
      ['data', folder],
      ['database', `DATABASE_URL=${shellUrl}`],
    ])}

To invite someone, run in another terminal:  sealpost invite create
Press Ctrl-C to stop the broker and its database. Their data stays in the folder.`,
  )
}

async function freePort(): Promise<number> {
  for (let port = FIRST_PORT; port < FIRST_PORT + PORTS; port++)
    if ((await isFree(port)) && (await isFree(port + 1))) return port
  return 0
}

/** Returns the next port, or 0 for any if it is in use. */
async function adminPortBeside(port: number): Promise<number> {
  const next = port + 1
  return port > 0 && next <= PORT_MAX && (await isFree(next)) ? next : 0
}

const isFree = async (port: number): Promise<boolean> => (await listenError(port, '127.0.0.1')) === null

function listenError(port: number, host: string): Promise<string | null> {
  const listener = createServer()
  return new Promise((resolve) => {
    listener.once('error', ({ code = '' }: NodeJS.ErrnoException) => resolve(code))
    listener.listen({ port, host, exclusive: true }, () => listener.close(() => resolve(null)))
  })
}

function isUpState(value: unknown): value is UpState {
  if (!isRecord(value)) return false
  return typeof value.port === 'number' && isHex(value.meshId, 16) && isHex(value.admin, 32)
}
