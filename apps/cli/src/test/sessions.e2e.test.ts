/** Tests several processes of one profile, each with a session of its own. */
import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { connect } from '@sealpost/sdk'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Profile } from '../profile/profile.ts'
import { errorOf, failureOf, jsonLinesOf, jsonOf, letIn, Machine, type Running } from './cli.ts'
import { Agent } from './mcp.ts'

let machine: Machine
beforeAll(async () => {
  machine = await Machine.withBroker('bob')
})
afterAll(() => machine[Symbol.asyncDispose]())

let count = 0
async function newMember(): Promise<string> {
  count += 1
  await letIn(machine, `user-${count}`)
  return `user-${count}`
}

async function listening(profile: string, ...words: string[]): Promise<Running> {
  const listener = machine.start(['listen', '--json', '--profile', profile, ...words])
  await listener.until('it listens', ({ stderr }) => stderr.includes('listening'))
  return listener
}

/** The address that the process has printed; empty if it has printed none yet. */
const addressOf = ({ stderr }: { readonly stderr: string }): string =>
  /(?:listening|serving MCP) as (\S+\/[^\s;]+)/.exec(stderr)?.[1] ?? ''

const textsOf = (listener: Running): string[] => jsonLinesOf(listener).map(({ text }) => text)

async function send(to: string, text: string, ...words: string[]): Promise<void> {
  const sent = await machine.run(['send', to, text, '--profile', 'bob', ...words])
  expect(sent.code, sent.stderr).toBe(0)
}

async function kill(running: Running): Promise<void> {
  running.child.kill('SIGKILL')
  await running.ended()
}

test('of three processes each has an address, each message to the member reaches one of them, and one for all each', async () => {
  const name = await newMember()
  const all = [await listening(name), await listening(name), await listening(name, '--as', 'builds')]
  const addresses = all.map(addressOf)
  expect(new Set(addresses).size).toBe(3)
  expect(addresses[2]).toBe(`${name}/builds`)
  for (const address of addresses) await send(address, `to ${address}`)
  for (let n = 0; n < 6; n++) await send(name, `any ${n}`)
  await all[0]!.until('all came', () => all.flatMap(textsOf).length >= 9)
  for (const [at, listener] of all.entries()) expect(textsOf(listener)).toContain(`to ${addresses[at]}`)
  expect(
    all
      .flatMap(textsOf)
      .filter((text) => text.startsWith('any'))
      .toSorted(),
  ).toEqual(Array.from({ length: 6 }, (_, n) => `any ${n}`))
  await send(name, 'to all of you', '--all')
  for (const listener of all) await listener.until('it came', (self) => textsOf(self).includes('to all of you'))
  expect(all.flatMap(textsOf).filter((text) => text === 'to all of you')).toHaveLength(3)
})

test('kill -9 of the host moves unfinished messages to another session, and a new process takes over the address', async () => {
  const name = await newMember()
  const host = await Agent.start(machine, ['--profile', name])
  await send(name, 'unfinished')
  await host.readOne()
  await expect.poll(() => addressOf(host)).not.toBe('')
  const address = addressOf(host)
  const other = await listening(name, '--as', 'other')
  await host.kill()
  await other.until('it has the message', (self) => textsOf(self).includes('unfinished'))
  await send(address, 'to the dead session')
  await other.until('it has the mail of the dead session', (self) => textsOf(self).includes('to the dead session'))
  await using next = await Agent.start(machine, ['--profile', name])
  await send(address, 'to the new process')
  expect(await next.readOne()).toMatchObject({ text: 'to the new process' })
  await expect.poll(() => addressOf(next)).toBe(address)
})

test('a named session keeps its mail while it is away, and a second process that claims its name is refused', async () => {
  const name = await newMember()
  const first = await listening(name, '--as', 'Inbox')
  await listening(name)
  const second = await machine.run(['listen', '--profile', name, '--as', 'inbox', '--json'])
  expect(failureOf(second)).toEqual([5, 'session_in_use'])
  expect(second.stderr).toContain('Another process of this profile uses the session inbox.')
  await kill(first)
  await send(`${name}/Inbox`, 'while it was away')
  const again = await listening(name, '--as', 'Inbox')
  await again.until('its mail came', (self) => textsOf(self).includes('while it was away'))
})

test('of processes that claim a named session at once, one gets it, and the mail waits for that one', async () => {
  const name = await newMember()
  await (await listening(name, '--as', 'inbox')).interrupt()
  await send(`${name}/inbox`, 'waits')
  const claims = ['inbox', 'Inbox', 'INBOX'].map((label) =>
    machine.start(['listen', '--json', '--profile', name, '--as', label]),
  )
  await expect.poll(() => claims.filter(({ isOver }) => isOver).length).toBe(2)
  const [winner, ...others] = claims.toSorted((a, b) => Number(a.isOver) - Number(b.isOver))
  for (const other of others) expect(failureOf(await other.ended())).toEqual([5, 'session_in_use'])
  await winner!.until('it has the mail', (self) => textsOf(self).includes('waits'))
  await winner!.interrupt()
})

test('sessions are listed and ended, and a label that was ended can be used again', async () => {
  const name = await newMember()
  const running = await listening(name, '--as', 'builds')
  await (await listening(name, '--as', 'old')).interrupt()
  const listed = jsonLinesOf(await machine.run(['sessions', '--json', '--profile', name]))
  expect(listed).toMatchObject([
    { label: 'builds', isOnline: true, isHere: true, isNamed: true, lastUsedMs: null },
    { label: 'old', isOnline: false, isHere: true, lastUsedMs: expect.any(Number) },
  ])
  const table = await machine.run(['sessions', '--profile', name])
  expect(table.stdout).toMatch(/builds +idle .*this machine/)
  for (const label of ['builds', 'old'])
    expect((await machine.run(['sessions', 'end', label, '--profile', name])).code).toBe(0)
  expect(failureOf(await running.ended())).toEqual([4, 'revoked'])
  expect(failureOf(await machine.run(['sessions', 'end', 'old', '--profile', name, '--json']))).toEqual([
    3,
    'session_unknown',
  ])
  expect(failureOf(await machine.run(['send', `${name}/old`, 'x', '--profile', 'bob', '--json']))[1]).toBe(
    'unknown_device',
  )
  for (const label of ['builds', 'old']) await listening(name, '--as', label)
})

test('a request to a member is answered by one of its sessions, and a file for a session reaches it', async () => {
  const name = await newMember()
  const folder = join(machine.folder, `files-${name}`)
  const answering = await listening(name, '--exec', 'echo pong', '--reply', '--files', folder)
  const answer = await machine.run(['request', name, 'ping', '--profile', 'bob', '--json'])
  expect(answer.code, answer.stderr).toBe(0)
  expect(jsonOf(answer).text).toBe('pong\n')
  const file = join(machine.folder, `${name}.txt`)
  await Bun.write(file, 'content')
  for (const [n, to] of [name, addressOf(answering)].entries()) {
    await send(to, `file ${n}`, '--file', file)
    const queue = async () => (await readdir(folder).catch(() => [])).filter((each) => each.startsWith(name)).length
    while ((await queue()) <= n) expect(answering.isOver).toBe(false)
  }
})

test('revoking a member ends its sessions, each with one sentence, and clears their folders', async () => {
  const name = await newMember()
  const listeners = await Promise.all([1, 2, 3, 4, 5].map((no) => listening(name, '--as', `s${no}`)))
  const profile = (of: string) => new Profile({ home: machine.environment.SEALPOST_HOME! }, of)
  const { url, brokerKey, meshId } = await profile('default').readMembership()
  const admin = await connect({ url, brokerKey, meshId, ...(await profile('default').readKeys()) })
  await admin.revokeMember((await profile(name).readKeys()).identity.signing.publicKey)
  await admin.close()
  for (const listener of listeners) {
    const { code, stderr } = await listener.ended()
    expect([code, errorOf({ stderr }).code]).toEqual([4, 'revoked'])
    expect(stderr).not.toContain('    at ')
    const label = addressOf({ stderr }).split('/')[1]!
    expect(await readdir(join(profile(name).folder, 'sessions', label))).toEqual(['session.json'])
  }
  const again = await machine.run(['listen', '--profile', name, '--json'])
  expect(failureOf(again)).toEqual([4, 'invite_refused'])
  expect(again.stderr).toContain('the member was revoked')
})

/** An agent that starts its server, and runs a hook with the status in a file whenever it receives a signal. */
const HOOKED_AGENT = `
  file=$1; profile=$2; shift 2
  exec 3<&0
  "$@" <&3 &
  server=$!
  trap '"$1" "$2" status "$(cat "$file")" --hook --profile "$profile" > "$file.new" 2>&1; mv "$file.new" "$file.done"' USR1
  while kill -0 $server 2>&-; do wait $server; done`

class HookedAgent implements AsyncDisposable {
  readonly agent: Agent
  readonly #file: string

  private constructor(agent: Agent, file: string) {
    this.agent = agent
    this.#file = file
  }

  static async start(profile: string, file: string): Promise<HookedAgent> {
    const launcher = ['sh', '-c', HOOKED_AGENT, 'agent', file, profile]
    const agent = await Agent.start(machine, ['--profile', profile], 'legacy', launcher)
    await expect.poll(() => agent.stderr).toContain('serving MCP as')
    return new HookedAgent(agent, file)
  }

  async runHook(status: string): Promise<void> {
    await writeFile(this.#file, status)
    process.kill(this.agent.pid, 'SIGUSR1')
    await expect.poll(() => readFile(`${this.#file}.done`, 'utf8').catch(() => null)).toBe('{}\n')
    await rm(`${this.#file}.done`)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.agent[Symbol.asyncDispose]()
  }
}

test('a hook sets the status of its own agent, and an agent in dnd leaves the mail to the others', async () => {
  const name = await newMember()
  await using first = await HookedAgent.start(name, join(machine.folder, 'first'))
  await using second = await HookedAgent.start(name, join(machine.folder, 'second'))
  for (const { agent } of [first, second]) await expect.poll(() => addressOf(agent)).not.toBe('')
  const statuses = async () => {
    const listed = jsonLinesOf(await machine.run(['sessions', '--json', '--profile', name]))
    return [first, second].map(({ agent }) => {
      const label = addressOf(agent).split('/')[1]
      return listed.find((session) => session.label === label).availability
    })
  }
  await first.runHook('working')
  await expect.poll(statuses).toEqual(['working', 'idle'])
  await second.runHook('dnd')
  await expect.poll(statuses).toEqual(['working', 'dnd'])
  await second.runHook('idle')
  await first.runHook('idle')
  await expect.poll(statuses).toEqual(['idle', 'dnd'])
  for (const text of ['one', 'two', 'three']) {
    await send(name, text)
    const { text: read, messageId } = await first.agent.readOne()
    expect(read).toBe(text)
    await first.agent.call('settle_message', { messageId })
  }
})
