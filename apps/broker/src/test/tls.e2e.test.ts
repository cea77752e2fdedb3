/** Tests TLS on the public port, with a private authority. */
import { copyFile, rm } from 'node:fs/promises'
import { join as pathOf } from 'node:path'
import { connect as connectTls } from 'node:tls'
import { startBroker } from '@sealpost/broker-program'
import { type CertificateFiles, replaceFile, TestAuthority, tlsSettingsOf } from '@sealpost/broker-program/testing'
import { createInvite } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { type ConnectOptions, connect } from '@sealpost/sdk'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type BrokerProcess, runBroker, until } from './process.ts'
import { brokerKeyFile, type Place, temporaryFolder, World } from './world.ts'

const CLIENT = pathOf(import.meta.dirname, '../../../../packages/sdk/src/test/tls-client.ts')

let folder: string
let authority: TestAuthority
let ca: string
let files: CertificateFiles
let world: World
let admin: Place
beforeAll(async () => {
  folder = await temporaryFolder()
  authority = TestAuthority.make(folder)
  ca = await Bun.file(authority.file).text()
  files = await authority.certify()
  world = await World.open({ ...tlsSettingsOf(files), PUBLIC_URL: 'wss://localhost:0' })
  admin = await world.enrolAdmin('ann')
})
afterAll(async () => {
  await world[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

async function usedBy(place: Place, env: Record<string, string>): Promise<Record<string, unknown>> {
  const { url, brokerKey, meshId, identity } = place
  const keyFile = pathOf(folder, `${crypto.randomUUID()}.json`)
  await writeKeyFile(keyFile, { kind: 'peer', identity, formerBoxKeys: [], enrolment: null })
  const invite = createInvite(identity.signing, { url, brokerKey, meshId })
  const words = [JSON.stringify({ url, brokerKey, meshId }), keyFile, invite]
  const child = Bun.spawn([process.execPath, CLIENT, ...words], { env, stdout: 'pipe', stderr: 'inherit' })
  const text = await new Response(child.stdout).text()
  return Object.fromEntries(
    text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line)),
  )
}

const at = (place: Place, host: string): Place => ({ ...place, url: `wss://${host}:${world.broker.port}` })

/** A WebSocket that trusts the test's authority. */
class Trusting extends WebSocket {
  constructor(url: string, protocols: string[]) {
    super(url, { protocols, tls: { ca } })
  }
}

const trusting = Trusting as unknown as NonNullable<ConnectOptions['webSocket']>

/** Returns the subject of a new connection's certificate. */
const shown = (broker: BrokerProcess) =>
  new Promise<string>((resolve, reject) => {
    const socket = connectTls({ host: '127.0.0.1', port: broker.port, ca }, () => {
      resolve(String(socket.getPeerCertificate().subject.CN))
      socket.destroy()
    })
    socket.on('error', reject)
  })

describe('a client', () => {
  test('that trusts the authority joins, sends, and uses HTTP', async () => {
    expect(await usedBy(at(admin, 'localhost'), { NODE_EXTRA_CA_CERTS: authority.file })).toEqual({
      join: at(admin, 'localhost').url,
      mail: 'sealed',
      offline: 'connected',
      file: 'a file',
      space: 1,
    })
  })

  const REFUSED = ['join', 'mail', 'offline', 'file', 'space'].map((what) => [what, 'certificate_untrusted'])

  test('that does not trust it gets one error code, over every interface', async () => {
    expect(await usedBy(at(admin, 'localhost'), {})).toEqual(Object.fromEntries(REFUSED))
  })

  test('gets the same code for a name that is not in the certificate', async () => {
    const { cert, key } = await authority.certify({ names: 'subjectAltName=DNS:broker.example' })
    const foreign = await world.secondShard({ ...tlsSettingsOf({ cert, key }), PUBLIC_URL: '' })
    const place = { ...admin, url: `wss://localhost:${foreign.port}` }
    expect(await usedBy(place, { NODE_EXTRA_CA_CERTS: authority.file })).toEqual(Object.fromEntries(REFUSED))
    await foreign.kill()
  })
})

test('all advertised addresses use TLS, except for the private port', async () => {
  const { broker } = world
  const { port } = broker
  expect(broker.url).toBe(`wss://127.0.0.1:${port}/v1/ws`)
  expect(broker.httpUrl).toBe(`https://127.0.0.1:${port}`)
  const version = await fetch(`${broker.httpUrl}/version`, { tls: { ca } })
  expect(await version.json()).toMatchObject({ brokerKey: broker.key })
  expect(broker.adminUrl).toMatch(/^http:/)
  const leftSeconds = (await broker.metric('sealpost_tls_certificate_end_seconds')) - Date.now() / 1000
  expect(Math.round(leftSeconds / 86_400)).toBe(2)
})

test('a plaintext request gets no response', async () => {
  await expect(fetch(world.broker.httpUrl.replace('https:', 'http:'))).rejects.toThrow()
  const socket = new WebSocket(world.broker.url.replace('wss:', 'ws:'))
  const closed = new Promise((resolve) => {
    socket.onclose = ({ code }) => resolve(code)
  })
  expect(await closed).toBe(1006)
})

test('new connections get a renewed certificate, and sessions continue', async () => {
  const live = { cert: pathOf(folder, 'live.pem'), key: pathOf(folder, 'live-key.pem') }
  const [first, second] = [await authority.certify(), await authority.certify()]
  await copyFile(first.cert, live.cert)
  await copyFile(first.key, live.key)
  const shard = await world.secondShard({ ...tlsSettingsOf(live), PUBLIC_URL: '' })
  const before = await shown(shard)
  const events: string[] = []
  const place = { ...(await world.enrol()), url: `wss://localhost:${shard.port}`, webSocket: trusting }
  await using peer = await connect({ ...place, onEvent: ({ type }) => void events.push(type) })
  const heard: string[] = []
  peer.onMessage((message) => void heard.push(message.text()))

  await replaceFile(live.cert, second.cert)
  await until('half a pair is refused', () => shard.output.includes('tls_key_mismatched'))
  expect(await shown(shard)).toBe(before)
  await replaceFile(live.key, second.key)
  // A connection may be reset while the port changes its certificate.
  const shownNow = () => shown(shard).catch(() => before)
  await until('the new one is shown', async () => (await shownNow()) !== before)

  await peer.send(peer.key, 'still here')
  await until('it came', () => heard.length === 1)
  expect(events.filter((type) => type === 'disconnected')).toEqual([])
  await using later = await connect({ ...(await world.enrol()), url: place.url, webSocket: trusting })
  expect(later.isOnline).toBe(true)
  shard.signal('SIGTERM')
  expect(await shard.exited).toMatchObject({ code: 0 })
})

test('an unusable certificate ends the start with its code, also for the program that starts the broker', async () => {
  const over = await authority.certify({ days: -1 })
  const env = { DATABASE_URL: world.databaseUrl, BROKER_KEY_FILE: await brokerKeyFile(folder), ...tlsSettingsOf(over) }
  const ended = await runBroker(env)
  expect(ended).toMatchObject({ code: 1, stdout: '' })
  expect(ended.stderr).toMatch(/^The certificate \S+ expired at \S+Z \(tls_certificate_expired\)\.\n$/)
  const started = startBroker({ environment: { PATH: process.env.PATH, PORT: '0', ADMIN_PORT: '0', ...env } })
  await expect(started).rejects.toMatchObject({ code: 'tls_certificate_expired' })
})

test('a single TLS setting, or a PUBLIC_URL without TLS, is reported with the other invalid settings', async () => {
  const env = { DATABASE_URL: world.databaseUrl, PORT: 'x' }
  const half = await runBroker({ ...env, TLS_KEY: files.key })
  expect(half).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('must be set together: TLS_CERT is missing.\n'),
  })
  const plain = await runBroker({ ...env, ...tlsSettingsOf(files), PUBLIC_URL: 'ws://broker.example' })
  expect(plain).toMatchObject({ code: 2, stderr: expect.stringContaining('PUBLIC_URL must begin with wss://') })
})
