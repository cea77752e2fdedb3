/**
 * Starts a broker for development, with Postgres and a mesh `dev` of two peers, whose data and keys stay in
 * `.sealpost/`. Runs until Ctrl-C.
 *
 * bun scripts/dev.ts PORT sets the port; 0 means any free one
 */
import { existsSync } from 'node:fs'
import { mkdir, rename, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join, relative, resolve } from 'node:path'
import type { BrokerProgram } from '@sealpost/broker-program'
import { type EmbeddedPostgres, startEmbedded } from '@sealpost/embedded-pg'
import { newMeshId } from '@sealpost/harness/members/mesh'
import { startOwnBroker } from '@sealpost/harness/programs/own-broker'
import { shellUrl } from '@sealpost/harness/programs/postgres'
import { endOnSignals, forever, Teardown } from '@sealpost/harness/programs/teardown'
import { bindBoxKey, generateIdentity, generateSigningKeys, normalizeAuthority, ready } from '@sealpost/identity'
import { type PeerKeyFile, readKeyFile, writeKeyFile } from '@sealpost/identity/key-file'
import { openDatabase } from '@sealpost/pg'
import { migrate } from '@sealpost/schema'
import { type MeshId, OperatingError, type PeerKey } from '@sealpost/std'
import { addMembers, createMesh } from '@sealpost/store'

const FOLDER = resolve('.sealpost')
const EXAMPLE = join(import.meta.dirname, '../docs/examples/hello.ts')
const PEERS = ['alice', 'bob']
const FIRST_PORT = 7450
const PORTS = 50
const YEAR_MS = 365 * 86_400_000

const teardown = new Teardown()
endOnSignals(teardown, 0)
try {
  await ready()
  await mkdir(FOLDER, { recursive: true, mode: 0o700 })
  const brokerKey = await brokerKeyOf(fileOf('broker'))
  const postgres = await startPostgres()
  await migrate(postgres.url)
  const broker = await startBroker(postgres.url)
  const peers = await enrolPeers(postgres.url, broker.url, brokerKey)
  print(broker, postgres, peers)
  await Promise.race([forever(), broker.exited])
  if (teardown.isRunning) await forever()
  throw new OperatingError('broker_died', `The broker ended: ${await broker.exited}`)
} catch (error) {
  if (teardown.isRunning) await forever()
  process.stderr.write(`${error instanceof OperatingError ? error.message : String((error as Error).stack)}\n`)
  await teardown.run()
  process.exit(1)
}

function fileOf(name: string): string {
  return join(FOLDER, `${name}.json`)
}

async function brokerKeyOf(path: string): Promise<PeerKey> {
  if (!existsSync(path)) await writeKeyFile(path, { kind: 'broker', signing: generateSigningKeys() })
  const { contents } = await readKeyFile(path)
  if (contents.kind === 'broker') return contents.signing.publicKey
  throw new OperatingError('key_file_wrong_kind', `The file ${path} is not the key file of a broker.`)
}

function startPostgres(): Promise<EmbeddedPostgres> {
  return teardown.starting(startEmbedded({ dataDir: join(FOLDER, 'postgres') }), (started) => ({
    end: () => started.stop(),
    kill: () => started.kill(),
  }))
}

async function startBroker(databaseUrl: string): Promise<BrokerProgram> {
  const PORT = process.env.PORT || String(await freePort())
  const env = { PORT, BROKER_KEY_FILE: fileOf('broker') }
  return startOwnBroker({ databaseUrl, env, onLine: (line) => process.stdout.write(`${line}\n`) }, teardown)
}

/** Enrols peers that the database lacks; the key files decide. */
async function enrolPeers(databaseUrl: string, url: string, brokerKey: PeerKey): Promise<PeerKeyFile[]> {
  const existing = PEERS.map(fileOf).find(existsSync)
  const meshId = existing ? ((await readPeer(existing)).enrolment?.meshId ?? newMeshId()) : newMeshId()
  const enrolment = { meshId, authority: normalizeAuthority(url), brokerKey }
  const peers: PeerKeyFile[] = []
  for (const path of PEERS.map(fileOf)) {
    const fresh = { kind: 'peer' as const, identity: generateIdentity(), formerBoxKeys: [], enrolment }
    if (!existsSync(path)) await writeKeyFile(path, fresh)
    const peer = await readPeer(path)
    if (peer.enrolment?.meshId !== meshId || peer.enrolment.brokerKey !== brokerKey)
      throw new OperatingError('enrolment_foreign', `${path} belongs to another mesh or broker: remove ${FOLDER}.`)
    if (peer.enrolment.authority !== enrolment.authority) await replaceKeyFile(path, { ...peer, enrolment })
    peers.push(peer)
  }
  await enrolMissing(databaseUrl, meshId, peers)
  return peers
}

/** Updates the port in the key files, atomically. */
async function replaceKeyFile(path: string, contents: PeerKeyFile): Promise<void> {
  const fresh = `${path}.new`
  await rm(fresh, { force: true }) // left by an interrupted start
  await writeKeyFile(fresh, contents)
  await rename(fresh, path)
}

async function readPeer(path: string): Promise<PeerKeyFile> {
  const { contents } = await readKeyFile(path)
  if (contents.kind === 'peer') return contents
  throw new OperatingError('key_file_wrong_kind', `The file ${path} is not the key file of a peer.`)
}

async function enrolMissing(databaseUrl: string, meshId: MeshId, peers: PeerKeyFile[]): Promise<void> {
  const db = await openDatabase(databaseUrl, { connections: 1 })
  try {
    const meshes = await db.run((sql) => sql`select from mesh where mesh_id = ${meshId}`)
    if (meshes.length === 0) await createMesh(db, { meshId, name: 'dev' })
    const members = await db.run(
      (sql) => sql<{ key: string }[]>`select encode(peer_key, 'hex') as key from member where mesh_id = ${meshId}`,
    )
    const known = new Set(members.map(({ key }) => key))
    const missing = peers.filter(({ identity }) => !known.has(identity.signing.publicKey))
    const bindings = missing.map(({ identity }) => bindBoxKey(identity, meshId, Date.now() + YEAR_MS))
    if (bindings.length > 0) await addMembers(db, meshId, bindings)
  } finally {
    await db.close()
  }
}

async function freePort(): Promise<number> {
  for (let port = FIRST_PORT; port < FIRST_PORT + PORTS; port++) if (await isFree(port)) return port
  throw new OperatingError('port_taken', `No port from ${FIRST_PORT} to ${FIRST_PORT + PORTS - 1} is free.`)
}

function isFree(port: number): Promise<boolean> {
  const listener = createServer()
  return new Promise((resolve) => {
    listener.once('error', () => resolve(false))
    listener.listen({ port, host: '127.0.0.1', exclusive: true }, () => listener.close(() => resolve(true)))
  })
}

function print(broker: BrokerProgram, postgres: EmbeddedPostgres, peers: PeerKeyFile[]): void {
  const { url, httpUrl, adminUrl, demoUrl, brokerKey } = broker
  const rows = PEERS.map((name, i) => `  ${name.padEnd(9)} ${peers[i]!.identity.signing.publicKey}\n${fileLine(name)}`)
  process.stdout.write(`
  broker    ${url}
  key       ${brokerKey}
  status    ${httpUrl}/version   ${adminUrl}/metrics${demoUrl === undefined ? '' : `\n  demo      ${demoUrl}`}
  mesh      ${peers[0]!.enrolment!.meshId}
${rows.join('\n')}
  database  psql ${shellUrl(postgres)}

  In another terminal, in this folder:

    bun ${relative(process.cwd(), EXAMPLE)}

  Press Ctrl-C to stop everything. The data stays in .sealpost/

`)
}

function fileLine(name: string): string {
  return `            .sealpost/${name}.json`
}
