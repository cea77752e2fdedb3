/** Tests the demo in Chromium windows, on a broker that is killed from time to time. */
import { readFile } from 'node:fs/promises'
import { createInvite, generateIdentity } from '@sealpost/identity'
import { connect } from '@sealpost/sdk'
import { Attachments, attachmentText } from '@sealpost/sdk/attachments'
import { joinAsDevice } from '@sealpost/sdk/join'
import { usersOf } from '@sealpost/sdk/users'
import { chromiumPath, openBrowser, Person } from '@sealpost/ui/testing'
import type { Browser } from 'playwright-core'
import { afterAll, afterEach, test as base, beforeAll, beforeEach, expect, vi } from 'vitest'
import { sharedWorlds } from './shared-worlds.ts'
import type { World } from './world.ts'

const isMissing = chromiumPath === null && process.env.CI !== 'true'
if (isMissing) process.stdout.write('skipped: the demo in a browser, for there is no Chromium here\n')
const test = base.skipIf(isMissing)
vi.setConfig({ testTimeout: 300_000 }) // each test opens several windows, and each wait takes up to a minute

const shared = sharedWorlds()
let browser: Browser
let world: World
let admin: Awaited<ReturnType<World['enrolAdmin']>>
let people: Person[]

beforeAll(async () => {
  if (!isMissing) browser = await openBrowser()
})
afterAll(() => browser?.close())
beforeEach(async () => {
  if (isMissing) return
  people = []
  world = await shared({ DEMO: 'on' })
  admin = await world.enrolAdmin('ada')
})
afterEach(async () => {
  if (isMissing) return
  for (const { page } of people) await page.context().close()
  await world[Symbol.asyncDispose]()
})

/** Creates an invite and returns its link. */
function invitation(): string {
  const { url, brokerKey, meshId, identity } = admin
  return `${world.broker.httpUrl}/demo#${createInvite(identity.signing, { url, brokerKey, meshId })}`
}

async function newPerson(name: string, options = {}): Promise<Person> {
  const person = await Person.open(browser, options)
  people.push(person)
  await person.join(invitation(), name)
  return person
}

/** Opens two users' windows, each with the conversation. */
async function pair(): Promise<{ bea: Person; cem: Person }> {
  const bea = await newPerson('bea')
  const cem = await newPerson('cem')
  await cem.select('bea')
  await bea.page.reload() // otherwise, the page refreshes the list after ten seconds
  await bea.select('cem')
  return { bea, cem }
}

async function expectNoComplaints(): Promise<void> {
  for (const { complaints } of people) expect(complaints).toEqual([])
}

test('two users join by link and chat in both directions, and the invite disappears from the address bar', async () => {
  const { bea, cem } = await pair()
  expect(bea.page.url()).toBe(`${world.broker.httpUrl}/demo/`)
  await bea.say('hello\nin two lines')
  await cem.reads('hello\nin two lines')
  await cem.say('grüß dich 👋')
  await bea.reads('grüß dich 👋')
  await bea.fate('stored', 1)
  await cem.fate('stored', 1)
  await expectNoComplaints()
})

test('a message from an SDK peer is unread until it is viewed', async () => {
  const bea = await newPerson('bea')
  await using ada = await connect(admin)
  const { peer } = (await ada.members()).find(({ name }) => name === 'bea')!
  await ada.send(peer, 'one')
  await ada.send(peer, 'two')
  await bea.row('ada').getByText('2 unread').waitFor()
  await bea.page.getByRole('status').filter({ hasText: 'New message from ada' }).waitFor({ state: 'attached' })
  expect(await bea.page.title()).toBe('(2) Sealpost')
  await bea.select('ada')
  expect(await bea.lines('received')).toEqual(['one', 'two'])
  expect(await bea.row('ada').getByText('unread').count()).toBe(0)
  await bea.say('three')
  for await (const message of ada) {
    expect(message.text()).toBe('three')
    break
  }
  await expectNoComplaints()
})

test('the sessions of a member are listed under it, and a message from one opens their list', async () => {
  await using ada = await connect(admin)
  const identity = generateIdentity()
  const place = await joinAsDevice({ invite: usersOf(ada).inviteDevice('laptop-1'), identity })
  await using session = await connect({ ...place, identity })
  const bea = await newPerson('bea')
  const listed = bea.page.getByRole('navigation', { name: 'Members' })
  await listed.getByText('Devices and sessions (1)').waitFor()
  expect(await listed.getByText('laptop-1').isVisible()).toBe(false)
  const { peer } = (await ada.members()).find(({ name }) => name === 'bea')!
  await session.send(peer, 'from the session')
  await listed.getByRole('button', { name: 'laptop-1' }).getByText('1 unread').waitFor()
  await bea.row('laptop-1').click()
  await bea.page.getByRole('heading', { name: 'ada/laptop-1' }).waitFor()
  await expectNoComplaints()
})

test('a file waits in the queue until its recipient saves it, even if the page is reopened', async () => {
  const bea = await newPerson('bea')
  await using ada = await connect(admin)
  await using files = new Attachments(admin)
  const { peer } = (await ada.members()).find(({ name }) => name === 'bea')!
  const bytes = crypto.getRandomValues(new Uint8Array(300_000))
  const send = async (text: string) => {
    const file = await files.upload(new Blob([bytes]), { to: peer, name: '../plan\u202e.bin' })
    await ada.send(peer, text, { attachment: attachmentText(file) })
    return file
  }
  await send('the plan')
  await ada.send(peer, 'behind')
  await bea.select('ada')
  await bea.reads('behind')
  await bea.page.reload()
  await bea.select('ada')
  await bea.online()
  expect(await bea.lines('received')).toEqual(['the plan', 'behind'])
  const save = bea.page.getByRole('button', { name: 'Save .._plan_.bin (0.3 MB)' })
  const [download] = await Promise.all([bea.page.waitForEvent('download'), save.click()])
  expect(new Uint8Array(await readFile(await download.path()))).toEqual(bytes)
  await bea.page.getByText('Saved: .._plan_.bin').waitFor()
  await expect.poll(() => world.count('message_queue')).toBe(0)
  await expectNoComplaints()
  await files.remove(await send('too late'))
  await save.click()
  await bea.page.getByText('is no longer available').waitFor()
  await expect.poll(() => world.count('dead_letter')).toBe(1)
})

test('killing and restarting the broker between messages loses and duplicates nothing', async () => {
  const { bea, cem } = await pair()
  for (const round of [1, 2]) {
    await bea.say(`bea ${round}, before`)
    await cem.reads(`bea ${round}, before`)
    await world.broker.kill()
    await bea.say(`bea ${round}, while it is away`)
    await cem.say(`cem ${round}, while it is away`)
    await bea.fate('waiting', 1)
    await world.restart()
  }
  await bea.reads('cem 2, while it is away')
  await cem.reads('bea 2, while it is away')
  await bea.fate('stored', 4)
  expect(await cem.lines('received')).toEqual(await bea.lines('written'))
  expect(await bea.lines('received')).toEqual(await cem.lines('written'))
  expect(await bea.lines('written')).toHaveLength(4)
  await expectNoComplaints()
})

test('while the broker is down the page opens with keys, messages and the outbox', async () => {
  const { bea, cem } = await pair()
  await bea.say('first')
  await cem.reads('first')
  await bea.page.evaluate('navigator.serviceWorker.ready.then(() => null)')
  await world.broker.kill()
  await bea.say('second')
  await bea.say('third')
  await bea.fate('waiting', 2)
  await bea.page.reload()
  await bea.away()
  await bea.select('cem')
  await bea.fate('waiting', 2)
  await bea.say('fourth')
  await bea.fate('waiting', 3)
  await world.restart()
  await bea.fate('stored', 4)
  await cem.reads('fourth')
  expect(await bea.lines('written')).toEqual(['first', 'second', 'third', 'fourth'])
  expect(await cem.lines('received')).toEqual(await bea.lines('written'))
  await expectNoComplaints()
})

test('message texts and names are shown as text, whatever they contain', async () => {
  const name = `<img src=x onerror="document.title='owned'">`
  await world.enrolAdmin(name)
  const { bea, cem } = await pair()
  const hostile = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>\u202e{{7*7}}`
  await cem.say(hostile)
  await bea.reads('{{7*7}}')
  expect(await bea.lines('received')).toEqual([hostile])
  expect(await bea.page.locator('.list .peer-name').allTextContents()).toContain(name)
  expect(await bea.page.locator('img, .chat script').count()).toBe(0)
  expect(await bea.page.title()).toBe('Sealpost')
  await expectNoComplaints()
})

test('on a phone the list and the conversation alternate, and the back button returns to the list', async () => {
  const bea = await newPerson('bea', { viewport: { width: 390, height: 844 } })
  const list = bea.page.getByRole('navigation', { name: 'Members' })
  for (const goBack of [
    () => bea.page.goBack(),
    () => bea.page.getByRole('button', { name: 'Back to the members' }).click(),
  ]) {
    await bea.select('ada')
    expect(await list.isVisible()).toBe(false)
    await goBack()
    await list.waitFor()
    await bea.page.locator('.peer:focus', { hasText: 'ada' }).waitFor()
  }
  expect(await bea.page.evaluate('document.documentElement.scrollWidth')).toBe(390)
  await expectNoComplaints()
})

test('the page explains why it refuses a used-up or a broken invite', async () => {
  const link = invitation()
  const bea = await Person.open(browser)
  const cem = await Person.open(browser)
  people = [bea, cem]
  await bea.join(link, 'bea')
  await cem.page.goto(link)
  await cem.page.getByLabel('Your name').fill('cem')
  await cem.page.getByRole('button', { name: 'Join' }).click()
  await cem.page.getByRole('status').filter({ hasText: 'used up' }).waitFor()
  await cem.page.goto(link.slice(0, -3))
  await cem.page.getByRole('heading', { name: 'You need an invite' }).waitFor()
  await cem.page.getByRole('status').filter({ hasText: 'This is not an invite' }).waitFor()
  await expectNoComplaints()
})

test('an invite for another broker address leads there, and its secret stays in the URL fragment', async () => {
  const link = invitation()
  const bea = await Person.open(browser)
  people = [bea]
  await bea.page.goto(link.replace('127.0.0.1', 'localhost'))
  await bea.page.getByRole('link', { name: world.broker.authority }).click()
  await bea.page.getByRole('heading', { name: 'You are invited' }).waitFor()
  expect(bea.page.url()).toBe(`${world.broker.httpUrl}/demo/`)
  await expectNoComplaints()
})

test('only one tab at a time holds the keys, and the next one continues when it is closed', async () => {
  const bea = await newPerson('bea')
  const second = await bea.page.context().newPage()
  await second.goto(`${world.broker.httpUrl}/demo/`)
  await second.getByRole('heading', { name: 'Open in another tab' }).waitFor()
  await bea.page.close()
  await second.locator('.dot[data-link=online]').waitFor({ state: 'attached' })
})

test('the page informs a revoked user, who can delete all local data; other users see that the user left', async () => {
  const { bea, cem } = await pair()
  await cem.say('see you')
  await bea.reads('see you')
  await using ada = await connect(admin)
  await ada.revokeMember((await ada.members()).find(({ name }) => name === 'cem')!.peer)
  await cem.page.getByRole('status').filter({ hasText: 'An admin revoked your membership.' }).waitFor()
  cem.page.on('dialog', (dialog) => void dialog.accept())
  await cem.page.locator('.self summary').click()
  await cem.page.getByRole('button', { name: 'Delete all data in this browser' }).click()
  await cem.page.getByRole('heading', { name: 'You need an invite' }).waitFor()
  const databases = 'indexedDB.databases().then((all) => all.map(({ name }) => name))'
  expect(await cem.page.evaluate(databases)).toEqual(['sealpost demo']) // the profile exists again, but is empty
  await bea.page.reload()
  await bea.select('cem')
  await bea.page.getByText('This member has left the mesh.').waitFor()
  await expectNoComplaints()
})
