/** Tests a mesh that moves between two cells, each with a broker, while its peers are connected. */

import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { freePort } from '@sealpost/embedded-pg'
import { createDeviceInvite, createInvite, generateIdentity } from '@sealpost/identity'
import { moveMesh } from '@sealpost/mesh-move'
import { connect, type Peer } from '@sealpost/sdk'
import { join as enter, joinAsDevice } from '@sealpost/sdk/join'
import { MemoryStore } from '@sealpost/sdk/memory-store'
import { usersOf } from '@sealpost/sdk/users'
import { expect, test } from 'vitest'
import { until } from '../test/process.ts'
import { brokerKeyFile, temporaryFolder, World } from '../test/world.ts'

const QUEUED = 300
const LIVE_AFTER = 20

/** Two cells with the same file of cells and the same key. */
class TwoCells implements AsyncDisposable {
  readonly north: World
  readonly south: World
  private readonly folder: string

  private constructor(north: World, south: World, folder: string) {
    this.north = north
    this.south = south
    this.folder = folder
  }

  /** `announces`: whether brokers know their cell, and announce its addresses. */
  static async open({ announces = false } = {}): Promise<TwoCells> {
    const folder = await temporaryFolder()
    const env = { BROKER_KEY_FILE: await brokerKeyFile(folder) }
    const [north, south] = [await freePort(), await freePort()]
    const path = join(folder, 'cells.json')
    const cells = [cellAt('north', north), cellAt('south', south)]
    await writeFile(path, JSON.stringify({ cells }))
    const envOf = (cell: string, port: number) => ({
      ...{ ...env, PORT: String(port), POLL_MS: '1000', CELLS_FILE: path },
      ...(announces ? { CELL: cell } : {}),
    })
    const there = await World.open(envOf('south', south))
    return new TwoCells(await World.open(envOf('north', north)), there, folder)
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

const cellAt = (name: string, port: number) => ({ name, urls: [`ws://127.0.0.1:${port}`] })

function collect(peer: Peer): string[] {
  const texts: string[] = []
  peer.onMessage((message) => void texts.push(message.text()))
  return texts
}

const upTo = (count: number) => Array.from({ length: count }, (_, n) => String(n))

test('a mesh moves while its peers are connected: they follow, and no message is lost, duplicated or reordered', async ({
  annotate,
}) => {
  await using cells = await TwoCells.open()
  const { north, south } = cells
  const places = await north.enrolMany(3)
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

test('an invite from before the move leads to the new cell, and keeps its number of uses', async () => {
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

/** Long enough to restart a cell's only broker on a busy machine. */
const SERVED_WITHIN_MS = 10_000

test.each([true, false])(
  'after a move the old cell may be stopped, also for a process that starts later (the new one announces its addresses: %s)',
  async (announces) => {
    await using cells = await TwoCells.open({ announces })
    const { north, south } = cells
    const [place, friend] = await north.enrolMany(2)
    const store = new MemoryStore()
    const sender = await connect({ ...place, store })
    const recipient = await connect({ ...friend, store: new MemoryStore() })
    const texts = collect(recipient)
    const says = async (from: Peer, text: string) => {
      await from.send(recipient.key, text)
      await until(`${text} came`, () => texts.includes(text), SERVED_WITHIN_MS)
    }
    await says(sender, 'before')
    await cells.moveSouth()
    await until('both have followed', async () => (await south.broker.metric('sealpost_sessions')) === 2)
    await north.broker.kill()
    await says(sender, 'after the old cell')
    await south.broker.kill()
    await south.restart()
    await until('both are back', () => sender.isOnline && recipient.isOnline, SERVED_WITHIN_MS)
    await says(sender, 'after the restart of the new cell')
    await sender.close()
    await using later = await connect({ ...place, store: new MemoryStore(store.records) })
    await says(later, 'in a later life')
    await recipient.close()
  },
)

test('a device invite made after a move names the new cell', async () => {
  await using cells = await TwoCells.open({ announces: true })
  const { north, south } = cells
  const learned = Promise.withResolvers<readonly string[]>()
  await using peer = await connect({
    ...(await north.enrol()),
    onEvent: (event) => event.type === 'addresses' && event.cell.length > 0 && learned.resolve(event.cell),
  })
  await cells.moveSouth()
  expect(await learned.promise).toEqual([south.broker.shardUrl])
  await north.broker.kill()
  const device = generateIdentity()
  expect(await joinAsDevice({ invite: usersOf(peer).inviteDevice('phone'), identity: device })).toMatchObject({
    url: south.broker.shardUrl,
  })
})
