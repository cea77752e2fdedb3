/** Tests that a message with an unsaved file stays in the queue, whichever command printed it. */

import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { openDatabase } from '@sealpost/pg'
import { openPeer } from '@sealpost/sdk'
import { Attachments, attachmentText } from '@sealpost/sdk/attachments'
import { openFileStore } from '@sealpost/sdk/file-store'
import { forwardSecrecy } from '@sealpost/sdk/forward'
import { poolsOf } from '@sealpost/sdk/pools'
import { connectAttaching } from '@sealpost/sdk/testing-attachments'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Profile } from '../profile/profile.ts'
import { AS_ALICE, type Ended, errorOf, jsonLinesOf, letIn, Machine, ownerUrl, startUp, type Up } from './cli.ts'
import { Agent } from './mcp.ts'

const PLAN = 'the plan itself'

let machine: Machine
let up: Up
let plan: string
let count = 0

beforeAll(async () => {
  machine = await Machine.make()
  up = await startUp(machine, AS_ALICE)
  plan = join(machine.folder, 'plan.txt')
  await Bun.write(plan, PLAN)
})
afterAll(() => machine[Symbol.asyncDispose]())

interface Heard {
  readonly text: string
  readonly attempt: number
  readonly file: { readonly name: string; readonly path: string | null } | null
}
const heardBy: (ended: { stdout: string }) => Heard[] = jsonLinesOf
const codeOf = (ended: Ended): string => errorOf(ended).code

/** Creates a member, so that no test reads another's messages. */
async function newMember(): Promise<{ name: string; profile: string[]; folder: string }> {
  count += 1
  const name = `peer-${count}`
  await letIn(machine, name)
  return { name, profile: ['--profile', name], folder: join(machine.folder, `files of ${name}`) }
}

async function send(to: string, ...words: string[]): Promise<void> {
  const sent = await machine.run(['send', to, ...words])
  expect(sent.code, sent.stderr).toBe(0)
}

/** Opens an SDK peer as Alice, like another program on her machine. Her store has the ratchets of her commands. */
async function alice() {
  const profile = new Profile({ home: machine.environment.SEALPOST_HOME! }, 'default')
  const { url, brokerKey, meshId } = await profile.readMembership()
  const { identity } = await profile.readKeys()
  const place = { url, brokerKey, meshId, identity }
  const files = new Attachments(place)
  const store = await openFileStore(join(profile.folder, 'messages'))
  const peer = await openPeer({ ...place, store, secrecy: forwardSecrecy() })
  return {
    place,
    files,
    peer,
    keyOf: async (name: string) => (await peer.members()).find((member) => member.name === name)!.peer,
    [Symbol.asyncDispose]: async () => {
      await files.close()
      await peer.close()
    },
  }
}

/** Sends a message whose file is then removed. */
async function sendLost(name: string) {
  await using sender = await alice()
  const to = await sender.keyOf(name)
  const file = await sender.files.upload(new Blob([PLAN]), { to, name: 'plan.txt' })
  await sender.peer.send(to, 'too late', { attachment: attachmentText(file) })
  await sender.files.remove(file)
  return to
}

/** Returns the messages left for this peer's next process. */
async function leftFor(to: string): Promise<Heard[]> {
  const listener = machine.start(['listen', '--json', '--profile', to])
  await send(to, 'end')
  await listener.until('the end came', ({ stdout }) => heardBy({ stdout }).some(({ text }) => text === 'end'))
  return heardBy(await listener.interrupt())
}

test('listen without --files does not settle a message that has a file, and handles the messages behind it', async () => {
  const { name, profile, folder } = await newMember()
  await send(name, 'before')
  await send(name, 'the plan', '--file', plan)
  await send(name, 'behind')
  const first = await machine.run(['listen', '--count', '3', '--json', ...profile])
  expect(heardBy(first).map(({ text }) => text)).toEqual(['before', 'the plan', 'behind'])
  expect([first.code, codeOf(first)]).toEqual([1, 'file_not_saved'])
  const second = await machine.run(['listen', '--count', '1', '--json', '--files', folder, ...profile])
  expect(second.code).toBe(0)
  expect(heardBy(second)).toMatchObject([{ text: 'the plan', attempt: 2, file: { path: join(folder, 'plan.txt') } }])
  expect(await readFile(join(folder, 'plan.txt'), 'utf8')).toBe(PLAN)
  expect((await leftFor(name)).map(({ text }) => text)).toEqual(['end'])
})

test('in text mode, listen mentions the option, and Ctrl-C reports which messages remain', async () => {
  const { name, profile } = await newMember()
  const listener = machine.start(['listen', ...profile])
  await send(name, 'the plan', '--file', plan)
  await listener.until('it is printed', ({ stdout }) => stdout.includes('plan.txt, 15 bytes, not saved'))
  const { code, stderr } = await listener.interrupt()
  expect([code, stderr]).toEqual([130, expect.stringContaining('--files FOLDER')])
  expect(await leftFor(name)).toMatchObject([{ text: 'the plan' }, { text: 'end' }])
})

test("open messages above the session's byte limit do not hold back others", async () => {
  const { name, profile } = await newMember()
  await using sender = await alice()
  const to = await sender.keyOf(name)
  const file = await sender.files.upload(new Blob([PLAN]), { to, name: 'plan.txt' })
  const large = 'x'.repeat(60_000)
  for (let i = 0; i < 20; i++) await sender.peer.send(to, large, { attachment: attachmentText(file) })
  await sender.peer.send(to, 'behind')
  const listener = await machine.run(['listen', '--count', '21', '--json', ...profile])
  expect(heardBy(listener).map(({ text }) => text)).toEqual([...Array(20).fill(large), 'behind'])
  expect([listener.code, codeOf(listener)]).toEqual([1, 'file_not_saved'])
})

test('listen --exec without --files does not run the command for a message with a file', async () => {
  const { name, profile, folder } = await newMember()
  await send(name, 'the plan', '--file', plan)
  await send(name, 'plain')
  const exec = ['listen', '--exec', 'cat; echo " $(basename "$SEALPOST_FILE")"', ...profile]
  const without = await machine.run([...exec, '--count', '2', '--json'])
  expect([without.code, without.stdout, codeOf(without)]).toEqual([1, 'plain \n', 'file_not_saved'])
  const saving = await machine.run([...exec, '--count', '1', '--files', folder])
  expect([saving.code, saving.stdout]).toEqual([0, 'the plan plan.txt\n'])
})

test('a command that fails gets the same saved file again, and no second copy is created', async () => {
  const { name, profile, folder } = await newMember()
  await send(name, 'the plan', '--file', plan)
  const mark = join(machine.folder, `mark of ${name}`)
  const exec = `echo "$SEALPOST_ATTEMPT $SEALPOST_FILE"; test -e '${mark}' || { touch '${mark}'; exit 1; }`
  const worked = await machine.run(['listen', '--count', '1', '--files', folder, '--exec', exec, ...profile])
  const path = join(folder, 'plan.txt')
  expect([worked.code, worked.stdout]).toEqual([0, `1 ${path}\n2 ${path}\n`])
  expect(await readdir(folder)).toEqual(['plan.txt'])
})

test('a pool worker without --files returns a message with a file to the pool, and one with --files processes it', async () => {
  const { name, profile, folder } = await newMember()
  const pool = `pool of ${name}`
  expect((await machine.run(['pool', 'create', pool, name])).code).toBe(0)
  await using sender = await alice()
  const file = await sender.files.upload(new Blob([PLAN]), { to: await sender.keyOf(name), name: 'plan.txt' })
  const { id } = (await poolsOf(sender.peer).list()).find((each) => each.name === pool)!
  await sender.peer.close() // frees the peer's only session
  await using attaching = await connectAttaching(sender.place, attachmentText(file))
  await (await poolsOf(attaching).find(id)).send('work')
  const exec = ['listen', '--pool', pool, '--exec', 'cat; echo " $(basename "$SEALPOST_FILE")"', ...profile]
  const without = machine.start(exec)
  await without.until('it gives it back', ({ stderr }) => stderr.includes('released'))
  expect(await without.interrupt()).toMatchObject({ code: 130, stdout: '' })
  const saving = await machine.run([...exec, '--count', '1', '--files', folder])
  expect([saving.code, saving.stdout]).toEqual([0, 'work plan.txt\n'])
})

test('a pool message whose file is gone is first retried, and rejected at its fifth delivery', async () => {
  const { name, profile, folder } = await newMember()
  const pool = `pool of ${name}`
  const { id } = JSON.parse((await machine.run(['pool', 'create', pool, name, '--json'])).stdout)
  await using sender = await alice()
  const file = await sender.files.upload(new Blob([PLAN]), { to: await sender.keyOf(name), name: 'plan.txt' })
  await sender.files.remove(file)
  await sender.peer.close() // frees the peer's only session
  await using attaching = await connectAttaching(sender.place, attachmentText(file))
  await (await poolsOf(attaching).find(id)).send('work')
  const words = ['listen', '--pool', pool, '--exec', 'echo ran', '--files', folder, '--count', '1', ...profile]
  const first = machine.start(words)
  await first.until('it gives it back', ({ stderr }) => stderr.includes('released: its file was not saved'))
  expect(await first.interrupt()).toMatchObject({ code: 130, stdout: '' })
  const db = await openDatabase(await ownerUrl(up), { connections: 1 })
  await db.run(
    (sql) => sql`
      update message_queue q set attempts = 4 from member m
      where m.mesh_id = q.mesh_id and m.peer_no = q.recipient and m.is_pool and m.peer_key = decode(${id}, 'hex')`,
  )
  await db.close()
  const last = await machine.run(words)
  expect([last.code, last.stdout, last.stderr]).toEqual([0, '', expect.stringContaining('rejected, because its file')])
})

test('a message whose file is gone is rejected without running a command', async () => {
  const { name, profile, folder } = await newMember()
  const env = { DATABASE_URL: await ownerUrl(up) }
  const key = await sendLost(name)
  const exec = await machine.run(['listen', '--count', '1', '--files', folder, '--exec', 'echo ran', ...profile])
  expect([exec.code, exec.stdout, exec.stderr]).toEqual([0, '', expect.stringContaining('(attachment_unknown)')])
  await sendLost(name)
  const printed = await machine.run(['listen', '--count', '1', '--json', '--files', folder, ...profile])
  expect(heardBy(printed)).toMatchObject([{ text: 'too late', file: { name: 'plan.txt', path: null } }])
  const dead = await machine.run(['dead', 'list', '--to', key, '--reason', 'rejected', '--json'], { env })
  const letters = jsonLinesOf(dead)
  expect(letters).toMatchObject([{ detail: 'attachment_unknown' }, { detail: 'attachment_unknown' }])
})

test('a file reference of a later version stays open without --files, and is rejected with it', async () => {
  const { name, profile, folder } = await newMember()
  {
    await using sender = await alice()
    await sender.peer.send(await sender.keyOf(name), 'the plan', { attachment: 'of a later version' })
  }
  const left = await machine.run(['listen', '--count', '1', ...profile])
  expect([left.code, left.stdout]).toEqual([
    1,
    expect.stringContaining('[a file from a later version of sealpost, not saved'),
  ])
  const refused = await machine.run(['listen', '--count', '1', '--json', '--files', folder, ...profile])
  expect([refused.code, refused.stderr]).toEqual([0, expect.stringContaining('(attachment_unreadable)')])
  expect(heardBy(refused)).toMatchObject([{ text: 'the plan', file: { name: null, path: null } }])
  expect((await leftFor(name)).map(({ text }) => text)).toEqual(['end'])
})

test('listen ends with a code if the folder is not writable, and the message stays', async () => {
  const { name, profile } = await newMember()
  await send(name, 'the plan', '--file', plan)
  const refused = await machine.run(['listen', '--count', '1', '--json', '--files', plan, ...profile])
  expect([refused.code, codeOf(refused)]).toEqual([1, 'folder_unusable'])
  expect((await leftFor(name)).map(({ text }) => text)).toEqual(['the plan', 'end'])
})

test('chat leaves a message with a file open, and settles it with --files', async () => {
  const { name, profile, folder } = await newMember()
  const chat = machine.start(['chat', 'alice', '--json', ...profile])
  await send(name, 'the plan', '--file', plan)
  await send(name, 'behind')
  await chat.until('it heard both', ({ stdout }) => heardBy({ stdout }).length === 2)
  chat.endInput()
  const ended = await chat.ended()
  expect([ended.code, codeOf(ended)]).toEqual([1, 'file_not_saved'])
  const saving = machine.start(['chat', 'alice', '--json', '--files', folder, ...profile])
  const heard = await saving.until('it heard it again', ({ stdout }) => heardBy({ stdout })[0])
  expect(heard).toMatchObject({ text: 'the plan', attempt: 2, file: { path: join(folder, 'plan.txt') } })
  saving.endInput()
  expect((await saving.ended()).code).toBe(0)
  expect((await leftFor(name)).map(({ text }) => text)).toEqual(['end'])
})

/** Opens a peer as Alice that replies with the plan. */
async function answering() {
  const program = await alice()
  program.peer.onMessage(async (message) => {
    const file = await program.files.upload(new Blob([PLAN]), { to: message.sender, name: 'plan.txt' })
    await message.reply('here it is', { attachment: attachmentText(file) })
  })
  return program
}

test('request saves the file of a reply, and without --files leaves the reply in the queue', async () => {
  const { name, profile, folder } = await newMember()
  const ask = (...words: string[]) => machine.run(['request', 'alice', 'the plan?', '--json', ...words, ...profile])
  {
    await using _ = await answering()
    const saved = await ask('--files', folder)
    expect([saved.code, JSON.parse(saved.stdout)]).toMatchObject([0, { file: { path: join(folder, 'plan.txt') } }])
    expect(await readFile(join(folder, 'plan.txt'), 'utf8')).toBe(PLAN)
    const left = await ask()
    expect([left.code, codeOf(left)]).toEqual([1, 'file_not_saved'])
    expect(heardBy(left)).toMatchObject([{ text: 'here it is', file: { name: 'plan.txt', path: null } }])
    // The same request, through the session of a command that saves files.
    const listener = machine.start(['listen', '--json', '--files', folder, ...profile])
    const [first] = await listener.until('the answer came again', ({ stdout }) => {
      const heard = heardBy({ stdout })
      return heard.length > 0 ? heard : null
    })
    expect(first).toMatchObject({ text: 'here it is', file: { path: join(folder, 'plan (2).txt') } })
    expect((await ask('--files', folder)).code).toBe(0)
    expect(codeOf(await ask())).toBe('file_not_saved')
    await listener.until('that answer came again, too', ({ stdout }) => heardBy({ stdout }).length === 2)
    await listener.interrupt()
  }
  expect((await leftFor(name)).map(({ text }) => text)).toEqual(['end'])
})

test('an agent saves the file of a reply before it settles the reply', async () => {
  const { name, profile, folder } = await newMember()
  {
    await using _ = await answering()
    await using agent = await Agent.start(machine, [...profile, '--files', folder])
    const { structured } = await agent.call('request', { to: 'alice', text: 'the plan?' })
    const { messageId, file } = structured.answer!
    expect(file).toMatchObject({ name: 'plan.txt', path: null })
    const end = () => agent.call('settle_message', { messageIds: [messageId] })
    expect((await end()).error?.code).toBe('file_not_saved')
    expect((await agent.call('save_file', { messageId })).structured.path).toBe(join(folder, 'plan.txt'))
    expect((await end()).isError).toBe(false)
  }
  expect((await leftFor(name)).map(({ text }) => text)).toEqual(['end'])
})

test('an agent saves the file of a reply from a group, although another session of its profile is free', async () => {
  const { name, profile, folder } = await newMember()
  await using _ = await answering()
  expect((await machine.run(['group', 'create', `team-of-${name}`, 'alice', ...profile])).code).toBe(0)
  const listener = machine.start(['listen', '--json', '--files', folder, ...profile])
  await listener.until('it listens', ({ stderr }) => stderr.includes('listening'))
  await using agent = await Agent.start(machine, [...profile, '--files', join(folder, 'agent')])
  const { groups } = (await agent.call('list_groups')).structured
  const { structured } = await agent.call('request', { to: `@${groups[0]!.id}`, text: 'the plan?' })
  const { messageId, file } = structured.answers[0]!.answer!
  expect(file).toMatchObject({ name: 'plan.txt', path: null })
  expect((await agent.call('save_file', { messageId })).structured.path).toBe(join(folder, 'agent', 'plan.txt'))
  expect((await agent.call('settle_message', { messageIds: [messageId] })).isError).toBe(false)
  await listener.interrupt()
  expect(heardBy(listener)).toEqual([])
})

test('an agent can settle a message only after saving its file', async () => {
  const { name, profile, folder } = await newMember()
  await send(name, 'the plan', '--file', plan)
  await using agent = await Agent.start(machine, [...profile, '--files', folder])
  const { messageId, file } = await agent.readOne()
  expect(file).toEqual({ name: 'plan.txt', type: '', bytes: PLAN.length, path: null })
  const refused = await agent.call('settle_message', { messageIds: [messageId] })
  expect([refused.isError, refused.error?.code]).toEqual([true, 'file_not_saved'])
  const again = await agent.call('read_inbox', { includeOpen: true })
  expect(again.text).toContain('with a file (not saved: call save_file):')
  const path = join(folder, 'plan.txt')
  for (const _ of ['saved once', 'and told again'])
    expect((await agent.call('save_file', { messageId })).structured).toMatchObject({ isSaved: true, path })
  expect(await readFile(path, 'utf8')).toBe(PLAN)
  expect((await agent.call('read_inbox', { includeOpen: true })).structured.messages).toMatchObject([
    { file: { path } },
  ])
  expect((await agent.call('settle_message', { messageIds: [messageId] })).isError).toBe(false)
  await agent.client.close()
  expect((await leftFor(name)).map(({ text }) => text)).toEqual(['end'])
})

test('an agent learns that a message has no file, or that its file is gone', async () => {
  const { name, profile } = await newMember()
  await using agent = await Agent.start(machine, profile)
  await send(name, 'plain')
  const plain = await agent.readOne()
  expect(plain.file).toBeNull()
  expect((await agent.call('save_file', { messageId: plain.messageId })).error?.code).toBe('no_file')
  await sendLost(name)
  const { messageId } = await agent.readOne()
  for (const _ of ['once', 'and again'])
    expect((await agent.call('save_file', { messageId })).error?.code).toBe('attachment_unknown')
  expect((await agent.call('settle_message', { messageIds: [messageId] })).error?.code).toBe('file_not_saved')
  const ended = await agent.call('reject_message', { messageIds: [messageId], reason: 'attachment_unknown' })
  expect(ended.isError).toBe(false)
})
