/** Tests the console in Chromium, with a mesh that is behind, one that waits and one that is fine. */

import { generateIdentity } from '@sealpost/identity'
import type { Overview } from '@sealpost/operator'
import { connect } from '@sealpost/sdk'
import { joinAsDevice } from '@sealpost/sdk/join'
import { usersOf } from '@sealpost/sdk/users'
import type { MeshId } from '@sealpost/std'
import { addAdminToken } from '@sealpost/store'
import { chromiumPath, openBrowser } from '@sealpost/ui/testing'
import axe from 'axe-core'
import type { Browser, BrowserContext, BrowserContextOptions, Page } from 'playwright-core'
import { afterAll, test as base, beforeAll, expect, vi } from 'vitest'
import { WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

const isMissing = chromiumPath === null && process.env.CI !== 'true'
if (isMissing) process.stdout.write('skipped: the console in a browser, for there is no Chromium here\n')
const test = base.skipIf(isMissing)
vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 })

let browser: Browser
let world: World
let bob: Place
let socket: WireClient

beforeAll(async () => {
  if (isMissing) return
  browser = await openBrowser()
  world = await World.open()
  await world.db.run((sql) => sql`update mesh set name = 'Front desk'`)
  bob = await world.enrolAdmin('bob')
  const far = await world.mesh()
  await world.db.run((sql) => sql`update mesh set name = '<b>Archive</b>' where mesh_id = ${far}::uuid`)
  const quiet = await world.mesh()
  await world.db.run((sql) => sql`update mesh set name = 'Quiet' where mesh_id = ${quiet}::uuid`)
  await keep(world.meshId)
  await send(world.meshId, bob, 5)
  await send(far, await world.enrol(far), 3)
  await world.db.run((sql) => sql`update message_queue set enqueued_at = enqueued_at - interval '12 minutes'`)
  socket = await WireClient.enter(bob)
  await bury(world.meshId)
})
afterAll(async () => {
  if (isMissing) return
  await browser.close()
  await world[Symbol.asyncDispose]()
})

/** Creates a space with values and history. */
const keep = (meshId: MeshId) =>
  world.db.run(
    (sql) => sql`
      insert into space (mesh_id, space_id, owner, epoch, statement, history_for, keeps_messages, keep_seconds, keep_bytes,
        kept_since, last_at, entries, entry_bytes, history_bytes)
      select mesh_id, mesh_id, peer_no, 1, '', 'all', false, 86400, 100000000, now() - interval '3 days', now(), 11000, 12000000, 48000000
      from member where mesh_id = ${meshId}::uuid limit 1`,
  )

async function send(meshId: MeshId, to: Place, count: number): Promise<void> {
  await using peer = await connect(await world.enrol(meshId))
  for (let i = 0; i < count; i++) await peer.send(to.identity.signing.publicKey, `message ${i}`)
}

/** Turns two waiting deliveries into dead letters, as after their last attempt. */
const bury = (meshId: MeshId) =>
  world.db.run(
    (sql) => sql`
      insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, reason, envelope)
      select mesh_id, recipient, id + 1000, priority, sender, 20, 20, gen_random_uuid(), enqueued_at, 'strikes', envelope
      from message_queue where mesh_id = ${meshId}::uuid limit 2`,
  )

/** Inserts an expired dead letter, which can't be redriven. */
const expire = () =>
  world.db.run(
    (sql) => sql`
      insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, reason)
      select mesh_id, recipient, 77, priority, sender, 0, 0, gen_random_uuid(), enqueued_at, 'expired'
      from message_queue limit 1`,
  )

async function linkFor(scope: 'read' | 'operate'): Promise<string> {
  const { token } = await addAdminToken(world.db, { name: 'ada', scope, meshId: null, ttlSeconds: 3600 })
  return `${world.broker.adminUrl}/console/#${token}`
}

interface Window {
  readonly page: Page
  /** Errors, warnings and violations of the content security policy. */
  readonly complaints: string[]
}

async function open(link: string, options: BrowserContextOptions = {}): Promise<Window> {
  return openIn(await browser.newContext({ locale: 'en-GB', ...options }), link)
}

async function openIn(context: BrowserContext, link: string): Promise<Window> {
  context.setDefaultTimeout(60_000)
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('console', (message) => {
    const isBad = message.type() === 'error' || message.type() === 'warning'
    if (isBad && !/ERR_|401/.test(message.text())) complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(String(error)))
  await page.goto(link)
  return { page, complaints }
}

const goTo = async (page: Page, view: string) => {
  await page.getByRole('navigation').getByRole('link', { name: view }).click()
  await page.getByRole('heading', { level: 1, name: view }).waitFor()
}

/** Returns serious accessibility violations, according to axe. */
async function seriousFaults(page: Page): Promise<string[]> {
  await page.evaluate(axe.source)
  const { violations } = (await page.evaluate('axe.run()')) as axe.AxeResults
  const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
  return serious.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html}`))
}

test('the link opens on the mesh that is behind with the reason, and the token disappears from the address bar', async () => {
  const { page, complaints } = await open(await linkFor('read'))
  await page.getByRole('heading', { name: 'Front desk is behind' }).waitFor()
  await page
    .getByText('bob is connected but does not settle: 5 messages are waiting, the oldest for 12 min')
    .first()
    .waitFor()
  await page.getByRole('link', { name: '<b>Archive</b> Waiting' }).waitFor()
  expect(page.url()).toBe(`${world.broker.adminUrl}/console/#/`)
  expect(await page.locator('.plot canvas').count()).toBe(4)
  await goTo(page, 'Meshes')
  const rows = page.getByRole('row').filter({ has: page.getByRole('rowheader') })
  await rows.first().getByText('bob is connected but does not settle').waitFor()
  expect(await rows.getByRole('link').allTextContents()).toEqual(['Front desk', '<b>Archive</b>', 'Quiet'])
  await page.getByRole('link', { name: 'Front desk' }).click()
  await page.getByRole('row', { name: 'bob' }).getByText('not settling').waitFor()
  expect(await page.getByRole('button', { name: 'Revoke' }).count()).toBe(0)
  expect(complaints).toEqual([])
  await page.context().close()
})

const FIRST_LOOK = { acceptedPerSecond: 120, ackP50Ms: 3, ackP99Ms: 9, depth: 40, sessions: 12 }

test("the broker's first sample is a point in each chart", async () => {
  const link = await linkFor('read')
  const headers = { Authorization: `Bearer ${new URL(link).hash.slice(1)}` }
  const answer = await fetch(`${world.broker.adminUrl}/admin/v1/overview`, { headers })
  const overview = (await answer.json()) as Overview
  const body = `event: overview\ndata: ${JSON.stringify({ ...overview, now: { ...overview.now, ...FIRST_LOOK } })}\n\n`
  const context = await browser.newContext({ locale: 'en-GB' })
  await context.route('**/admin/v1/history', (route) => route.fulfill({ json: { samples: [] } }))
  await context.route('**/admin/v1/live', (route) => route.fulfill({ contentType: 'text/event-stream', body }))
  const { page } = await openIn(context, link)
  await page.locator('.legend').getByText('accepted 120').waitFor()
  await expect.poll(() => page.evaluate(COLOURED)).toEqual([true, true, true, true])
  await context.close()
})

test('a chart draws no line across minutes without samples', async () => {
  const link = await linkFor('read')
  const headers = { Authorization: `Bearer ${new URL(link).hash.slice(1)}` }
  const answer = await fetch(`${world.broker.adminUrl}/admin/v1/overview`, { headers })
  const overview = (await answer.json()) as Overview
  const { now } = overview
  const last = { ...now, ackP50Ms: 3, ackP99Ms: 9, pushP99Ms: 12 }
  const body = `event: overview\ndata: ${JSON.stringify({ ...overview, now: last })}\n\n`
  const samples = Array.from({ length: 31 }, (_, minute) => {
    const isQuiet = minute > 2 && minute < 28
    const times = isQuiet
      ? { ackP50Ms: null, ackP99Ms: null, pushP99Ms: null }
      : { ackP50Ms: 3, ackP99Ms: 9, pushP99Ms: 12 }
    return { ...now, ...times, atMs: Date.now() - (30 - minute) * 60_000 }
  })
  const context = await browser.newContext({ locale: 'en-GB' })
  await context.route('**/admin/v1/history', (route) => route.fulfill({ json: { samples } }))
  await context.route('**/admin/v1/live', (route) => route.fulfill({ contentType: 'text/event-stream', body }))
  const { page } = await openIn(context, link)
  await expect.poll(async () => ((await page.evaluate(COLOURED)) as boolean[])[1]).toBe(true)
  expect(await page.evaluate(COLOURED_AT_MIDDLE)).toBe(false)
  await context.close()
})

/** Evaluates to whether the middle tenth of the latency chart has a colour. */
const COLOURED_AT_MIDDLE = `(() => {
  const canvas = document.querySelectorAll('.plot canvas')[1]
  const { data } = canvas.getContext('2d').getImageData(canvas.width * 0.5, 0, canvas.width * 0.1, canvas.height)
  for (let i = 0; i < data.length; i += 4) {
    const rgb = data.slice(i, i + 3)
    if (data[i + 3] > 100 && Math.max(...rgb) - Math.min(...rgb) > 40) return true
  }
  return false
})()`

/** Evaluates to whether each chart has a colour. */
const COLOURED = `[...document.querySelectorAll('.plot canvas')].map((canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
  for (let i = 0; i < data.length; i += 4) {
    const rgb = data.slice(i, i + 3)
    if (data[i + 3] > 200 && Math.max(...rgb) - Math.min(...rgb) > 40) return true
  }
  return false
})`

test.each([
  ['a phone in the dark', { viewport: { width: 390, height: 844 }, colorScheme: 'dark' }],
  ['a desk by day', { viewport: { width: 1440, height: 900 }, colorScheme: 'light' }],
] as const)('every view is reachable and readable on %s', async (_, options) => {
  const { page, complaints } = await open(await linkFor('operate'), options)
  await page.getByRole('heading', { name: 'Front desk is behind' }).waitFor()
  const check = async (view: string) => {
    expect(await seriousFaults(page), view).toEqual([])
    expect(await page.evaluate('document.documentElement.scrollWidth'), view).toBe(options.viewport.width)
  }
  await check('Overview')
  for (const view of ['Meshes', 'Dead letters', 'Database', 'Shards', 'Audit']) {
    await goTo(page, view)
    await page.getByRole('table').first().waitFor()
    await check(view)
  }
  await goTo(page, 'Meshes')
  await page.getByRole('link', { name: 'Front desk' }).click()
  for (const tab of ['Peers', 'Groups', 'Invites', 'Kept', 'Waiting']) {
    await page.getByRole('tab', { name: tab }).click()
    await page.getByRole('tabpanel').locator('table, .empty').first().waitFor()
    await check(tab)
  }
  expect(complaints).toEqual([])
  await page.context().close()
})

test('dead letters can be redriven and purged with the keyboard alone', async () => {
  const { page, complaints } = await open(await linkFor('operate'))
  await goTo(page, 'Dead letters')
  await page.getByRole('checkbox').first().focus()
  await page.keyboard.press('Space')
  for (const [button, left] of [
    ['Redrive', 1],
    ['Purge', 0],
  ] as const) {
    if (left === 0) await page.getByRole('checkbox').first().check()
    await page.getByRole('button', { name: button }).focus()
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').getByRole('button', { name: button }).focus()
    await page.keyboard.press('Enter')
    await expect.poll(() => world.count('dead_letter')).toBe(left)
    await page.getByRole('dialog').waitFor({ state: 'hidden' })
    await expect.poll(() => page.getByRole('checkbox').count()).toBe(left)
  }
  await page.getByText('No dead letters.').waitFor()
  await goTo(page, 'Audit')
  await page.getByRole('row', { name: 'dead letters: purge' }).getByText('token:ada').waitFor()
  expect(complaints).toEqual([])
  await page.context().close()
})

test('a dead letter that cannot be redriven stays, and the page shows the reason', async () => {
  await expire()
  const { page, complaints } = await open(await linkFor('operate'))
  await goTo(page, 'Dead letters')
  await page.getByRole('checkbox', { name: 'Select 77' }).check()
  await page.getByRole('button', { name: 'Redrive' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Redrive' }).click()
  await page.getByRole('alert').getByText('77: it expired, so its envelope was not kept').waitFor()
  expect(await page.getByRole('checkbox', { name: 'Select 77' }).isVisible()).toBe(true)
  expect(await seriousFaults(page)).toEqual([])
  expect(complaints).toEqual([])
  await page.context().close()
})

test('the page reports an invalid token and an unreachable broker', async () => {
  const { page } = await open(`${world.broker.adminUrl}/console/`)
  await page.getByLabel('Admin token').fill('spa_nothing')
  await page.getByRole('button', { name: 'Open' }).click()
  await page.getByText('unknown, expired or revoked').waitFor()
  expect(await seriousFaults(page)).toEqual([])
  await page.goto(await linkFor('read'))
  await page.getByRole('heading', { name: 'is behind' }).waitFor()
  socket.destroy()
  await world.broker.kill()
  await page.getByRole('alert').filter({ hasText: 'The broker does not respond.' }).waitFor()
  await page.context().close()
})

test('the sessions of a member are listed under it', async () => {
  await using agents = await world.inNewMesh()
  await world.db.run((sql) => sql`update mesh set name = 'Agents' where mesh_id = ${agents.meshId}::uuid`)
  for (let no = 0; no < 3; no++) {
    await using peer = await connect(await agents.enrolAdmin(`agent-${no}`))
    for (const label of ['b', 'a'])
      await joinAsDevice({ invite: usersOf(peer).inviteDevice(label), identity: generateIdentity() })
  }
  const { page, complaints } = await open(await linkFor('read'))
  await goTo(page, 'Meshes')
  await page.getByRole('link', { name: 'Agents' }).click()
  await page.getByRole('tab', { name: 'Peers' }).click()
  await page.getByRole('row', { name: 'agent-2' }).waitFor()
  const names = await page.getByRole('rowheader').locator('bdi').allTextContents()
  expect(
    names
      .join(' ')
      .match(/agent-\d a b/g)
      ?.toSorted(),
  ).toEqual(['agent-0 a b', 'agent-1 a b', 'agent-2 a b'])
  expect(complaints).toEqual([])
  await page.context().close()
})
