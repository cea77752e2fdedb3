/** Tests that peers chat through a broker that dies in between, without lost or repeated messages. */
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Profile } from '../profile/profile.ts'
import { startSessionDaemon } from '../session/session-daemon.ts'
import { AS_ALICE, jsonLinesOf, letIn, Machine, type Running, startUp, type Up } from './cli.ts'

let machine: Machine
let up: Up

beforeEach(async () => {
  machine = await Machine.make()
  up = await startUp(machine, AS_ALICE)
  await letIn(machine, 'bob')
})
afterEach(() => machine[Symbol.asyncDispose]())

interface Heard {
  name: string
  text: string
}
const heardBy = (chat: Running): Heard[] => chat.lines.map((line) => JSON.parse(line) as Heard)
const textsOf = (chat: Running): string[] => heardBy(chat).map(({ text }) => text)

async function killBroker(): Promise<void> {
  const restarts = up.process.lines.length
  process.kill(up.brokerPid(), 'SIGKILL')
  await up.process.until('the broker runs again', ({ lines }) => lines.length > restarts)
}

test('two chats lose and duplicate nothing while the broker is killed and restarted between messages', async () => {
  const alice = machine.start(['chat', 'bob', '--json'])
  const bob = machine.start(['chat', 'alice', '--json', '--profile', 'bob'])
  const said: { alice: string[]; bob: string[] } = { alice: [], bob: [] }
  const say = (who: 'alice' | 'bob', text: string) => {
    said[who].push(text)
    const chat = who === 'alice' ? alice : bob
    chat.type(`${text}\n`)
  }
  for (let round = 1; round <= 3; round++) {
    say('alice', `alice ${round}, before`)
    say('bob', `bob ${round}, before`)
    await bob.until('alice is heard', (chat) => textsOf(chat).includes(`alice ${round}, before`))
    const killing = killBroker()
    say('alice', `alice ${round}, while it is away`)
    say('bob', `bob ${round}, while it is away`)
    await killing
  }
  await alice.until('she heard all of it', (chat) => textsOf(chat).length >= said.bob.length)
  await bob.until('he heard all of it', (chat) => textsOf(chat).length >= said.alice.length)
  alice.endInput()
  bob.endInput()
  expect([(await alice.ended()).code, (await bob.ended()).code]).toEqual([0, 0])
  expect(textsOf(alice)).toEqual(said.bob)
  expect(textsOf(bob)).toEqual(said.alice)
  // No message is left for the next process.
  for (const [profile, from, to] of [
    ['default', 'bob', 'alice'],
    ['bob', 'default', 'bob'],
  ] as const) {
    const listener = machine.start(['listen', '--json', '--profile', profile])
    await machine.run(['send', to, 'end', '--profile', from])
    await listener.until('the end came', ({ lines }) => lines.length > 0)
    expect(textsOf(listener)).toEqual(['end'])
    await listener.interrupt()
  }
})

test('lines typed while the broker is down are sent once and in order by the next process of the session', async () => {
  const say = (stdin: string) => machine.run(['chat', 'bob', '--timeout', '1s', '--as', 'desk'], { stdin })
  expect((await say('first\n')).code).toBe(0)
  await up.process.interrupt()
  const chat = await say('second\nthird\n')
  expect(chat).toMatchObject({ code: 124, stderr: expect.stringContaining('2 of your messages') })
  up = await startUp(machine)
  expect((await say('fourth\n')).code).toBe(0)
  const bob = machine.start(['listen', '--json', '--profile', 'bob'])
  await bob.until('he heard the last one', (listener) => textsOf(listener).includes('fourth'))
  expect((await bob.interrupt()).code).toBe(130)
  expect(textsOf(bob)).toEqual(['first', 'second', 'third', 'fourth'])
})

test('a listener receives messages to the member once a short command of its profile has ended', async () => {
  const passing = await startSessionDaemon(new Profile({ home: machine.environment.SEALPOST_HOME! }, 'bob'))
  const bob = machine.start(['listen', '--json', '--profile', 'bob'])
  await bob.until('it listens', ({ stderr }) => stderr.includes('listening'))
  expect((await machine.run(['send', 'bob', 'to any session'])).code).toBe(0)
  await passing!.release()
  await bob.until('it heard the message', (listener) => textsOf(listener).includes('to any session'))
})

test('a line over the limit of a message becomes a file, and the lines keep their order', async () => {
  const long = 'x'.repeat(70_000)
  const ended = await machine.run(['chat', 'bob'], { stdin: `first\n${long}\nlast\n` })
  expect(ended.code, ended.stderr).toBe(0)
  const folder = join(machine.folder, 'files')
  const listened = await machine.run(['listen', '--count', '3', '--json', '--files', folder, '--profile', 'bob'])
  const heard = jsonLinesOf(listened)
  expect([heard[0].text, heard[2].text]).toEqual(['first', 'last'])
  expect(await Bun.file(heard[1].file.path).text()).toBe(long)
})
