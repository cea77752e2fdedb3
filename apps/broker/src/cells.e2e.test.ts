/** Two cells, a broker in each: what the peers of a mesh see of its move. */
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { moveMesh } from '@sealpost/db'
import { createDeviceInvite, createInvite, generateIdentity } from '@sealpost/identity'
import { connect, type Peer } from '@sealpost/sdk'
import { join as enter, joinAsDevice } from '@sealpost/sdk/join'
import { expect, test } from 'vitest'
import { until } from './testing-process.ts'
import { brokerKeyFile, temporaryFolder, World } from './testing-world.ts'

const QUEUED = 300
/** After the move, too. */
const LIVE_AFTER = 20

/** Both know the file of cells, and have one key. */
class TwoCells implements AsyncDisposable {
  readonly north: World
  readonly south: World
  private readonly folder: string

  private constructor(north: World, south: World, folder: string) {
    this.north = north
    this.south = south
    this.folder = folder
  }

  static async open(): Promise<TwoCells> {
    const folder = await temporaryFolder()
    const env = { BROKER_KEY_FILE: await brokerKeyFile(folder) }
    const south = await World.open(env)
    const path = join(folder, 'cells.json')
    await writeFile(path, JSON.stringify({ cells: [{ name: 'south', urls: [south.broker.shardUrl] }] }))
    return new TwoCells(await World.open({ ...env, CELLS_FILE: path, POLL_MS: '1000' }), south, folder)
  }

  moveSouth() {
    const { north, south } = this
    return moveMesh({
      meshId: north.meshId,
      from: { cell: 'north', databaseUrl: north.databaseUrl },
      to: { cell: 'south', databaseUrl: south.databaseUrl },
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.north[Symbol.asyncDispose]()
    await this.south[Symbol.asyncDispose]()
    await rm(this.folder, { recursive: true, force: true })
  }
}

function collect(peer: Peer): string[] {
  const texts: string[] = []
  peer.onMessage((message) => void texts.push(message.text()))
  return texts
}

const upTo = (count: number) => Array.from({ length: count }, (_, n) => String(n))

test('a mesh moves under its peers: nothing is lost, doubled or out of its order, and they follow', async ({
  annotate,
}) => {
  await using cells = await TwoCells.open()
  const { north, south } = cells
  const places = [await north.enrol(), await north.enrol(), await north.enrol()] as const
  const events: string[] = []
  const sender = await connect({ ...places[0], onEvent: ({ type }) => void events.push(type) })
  const recipient = await connect(places[1])
  const absent = places[2].identity.signing.publicKey
  await Promise.all(upTo(QUEUED).map((text) => sender.send(absent, text)))
  const texts = collect(recipient)
  let report: Awaited<ReturnType<typeof moveMesh>> | null = null
  const moving = cells.moveSouth().then((done) => {
    report = done
  })
  let sent = 0
  for (let after = 0; after < LIVE_AFTER; sent++) {
    await sender.send(recipient.key, String(sent))
    if (report) after += 1
  }
  await moving
  await annotate(`a pause of ${report!.pauseMs} ms, in which ${sent} were sent one behind the other`)
  await until('all came', () => texts.length >= sent)
  expect(texts).toEqual(upTo(sent))
  expect(events).toContain('moved')
  expect(events).not.toContain('restored')
  const latecomer = await connect(places[2])
  const queued = collect(latecomer)
  await until('what was queued came', () => queued.length >= QUEUED)
  expect(queued).toEqual(upTo(QUEUED))
  await until('all are there', async () => (await south.broker.metric('sealpost_sessions')) === 3)
  expect(await north.broker.metric('sealpost_sessions')).toBe(0)
  await Promise.all([sender, recipient, latecomer].map((peer) => peer.close()))
})

test('an invite made before the move leads to where the mesh is, and lets in there as often as it would have', async () => {
  await using cells = await TwoCells.open()
  const { north, south } = cells
  const admin = await north.enrolAdmin('admin')
  const { url, brokerKey, meshId } = admin
  const invite = createInvite(admin.identity.signing, { url, brokerKey, meshId })
  const device = createDeviceInvite(admin.identity.signing, { url, brokerKey, meshId, label: 'phone' })
  await cells.moveSouth()
  const home = { url: south.broker.shardUrl, brokerKey, meshId }
  const identity = generateIdentity()
  expect(await enter({ invite, identity, name: 'late' })).toEqual({ ...home, name: 'late' })
  await using late = await connect({ ...home, identity })
  await using boss = await connect(admin)
  await late.send(boss.key, 'I am in')
  await expect(enter({ invite, identity: generateIdentity() })).rejects.toMatchObject({ code: 'invite_refused' })
  expect(await joinAsDevice({ invite: device, identity: generateIdentity() })).toMatchObject(home)
})
