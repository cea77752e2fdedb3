/** Tests attachments through a real broker: access, refusals, and the cost of an interruption. */

import { randomBytes } from 'node:crypto'
import { readdir, readFile, readlink, realpath, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { connect, type Message } from '@sealpost/sdk'
import { FileUploadLog, fileSource, saveAttachment } from '@sealpost/sdk/attachment-files'
import { type Attachment, Attachments, attachmentOf, attachmentText } from '@sealpost/sdk/attachments'
import { groupsOf } from '@sealpost/sdk/groups'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { keyOf } from './member.ts'
import { until } from './process.ts'
import { testingS3 } from './s3.ts'
import { type Place, temporaryFolder, World } from './world.ts'

let world: World
let folder: string
beforeAll(async () => {
  folder = await temporaryFolder()
  world = await World.open()
})
afterAll(async () => {
  await world[Symbol.asyncDispose]()
  await rm(folder, { recursive: true, force: true })
})

const CHUNK_BYTES = 16_384
const to = (...places: readonly Place[]) => ({ to: places.map(keyOf), name: 'plan.bin', chunkBytes: CHUNK_BYTES })

async function read(files: Attachments, attachment: Attachment): Promise<Buffer> {
  const pieces: Uint8Array[] = []
  for await (const piece of files.download(attachment)) pieces.push(piece)
  return Buffer.concat(pieces)
}

const codeOf = (refused: Promise<unknown>) => refused.then(() => 'done', (error) => error.code) // biome-ignore format: one thing

/** Returns a `fetch` that counts chunk requests, and waits for what `beside` returns for each. */
function counting(place: Place, beside: (count: number) => unknown = () => undefined) {
  const counted = { puts: 0, gets: 0 }
  const call = async (url: string, init: RequestInit) => {
    const answer = fetch(url, init)
    answer.catch(() => undefined) // the caller receives the error
    if (url.includes('/chunks/') && init.method === 'PUT') await beside(++counted.puts)
    if (url.includes('/chunks/') && init.method === 'GET') await beside(++counted.gets)
    return answer
  }
  return { files: new Attachments(place, { fetch: call }), counted }
}

test('a file travels with a message, and other peers learn nothing about it', async () => {
  const [ann, bob, eve] = await world.enrolMany(3)
  await using sender = new Attachments(ann)
  await using reader = new Attachments(bob)
  await using stranger = new Attachments(eve)
  const bytes = randomBytes(100_000)
  const told: number[] = []
  const sent = await sender.upload(new Blob([bytes]), {
    ...to(bob),
    onProgress: (progress) => told.push(progress.bytes),
  })
  expect(told).toEqual([...told].sort((a, b) => a - b))
  expect(told.at(-1)).toBe(bytes.length)
  await using from = await connect(ann)
  await using into = await connect(bob)
  await from.send(keyOf(bob), 'the plan', { attachment: attachmentText(sent) })
  const { value: message } = (await into[Symbol.asyncIterator]().next()) as { value: Message }
  expect([message.text(), attachmentOf(message)]).toEqual(['the plan', sent])
  expect(await read(reader, sent)).toEqual(bytes)
  expect(await codeOf(read(stranger, sent))).toBe('attachment_unknown')
  expect(await codeOf(stranger.remove(sent))).toBe('attachment_unknown')
  expect(await codeOf(reader.remove(sent))).toBe('attachment_unknown')
  await sender.remove(sent)
  expect(await codeOf(read(reader, sent))).toBe('attachment_unknown')
})

test('current members of the group can fetch the file, and former members cannot', async () => {
  const [ann, bob, eve] = await world.enrolMany(3)
  const owner = await connect(ann)
  const group = await groupsOf(owner).create('crew', [keyOf(bob)])
  await using sender = new Attachments(ann)
  await using reader = new Attachments(bob)
  await using other = new Attachments(eve)
  const sent = await sender.upload(new Blob(['minutes']), { to: { group: group.id }, name: 'minutes.txt' })
  expect((await read(reader, sent)).toString()).toBe('minutes')
  expect(await codeOf(read(other, sent))).toBe('attachment_unknown')
  await group.remove(keyOf(bob))
  expect(await codeOf(read(reader, sent))).toBe('attachment_unknown')
  expect((await read(sender, sent)).toString()).toBe('minutes')
  await owner.close()
})

const CHUNKS = 40
const whole = () => randomBytes(CHUNKS * (CHUNK_BYTES - 17) - 1)

test('killing the broker during a transfer costs at most one chunk', async () => {
  const [ann, bob] = await world.enrolMany(2)
  const bytes = whole()
  let restarted: Promise<void> | undefined
  const { files, counted } = counting(ann, (count) => {
    if (count !== CHUNKS / 2) return
    world.broker.signal('SIGKILL')
    restarted = world.restart()
  })
  const sent = await files.upload(new Blob([bytes]), to(bob))
  await restarted
  expect(counted.puts).toBeLessThanOrEqual(CHUNKS + 1)
  await using reader = new Attachments(bob)
  expect((await read(reader, sent)).equals(bytes)).toBe(true)
  await files.close()
})

test('an upload resumes after a restart, and only with the same file', async () => {
  const [ann, bob] = await world.enrolMany(2)
  const [path, bytes] = [join(folder, 'plan.bin'), whole()]
  await writeFile(path, bytes)
  const log = new FileUploadLog(join(folder, 'upload'))
  const life = new AbortController()
  const first = counting(ann, (count) => count === CHUNKS / 2 && life.abort(new Error('the end')))
  const options = { ...to(bob), resume: log }
  await expect(first.files.upload(await fileSource(path), { ...options, signal: life.signal })).rejects.toThrow(
    'the end',
  )
  const second = counting(ann)
  await writeFile(path, Buffer.concat([randomBytes(1), bytes.subarray(1)]))
  expect(await codeOf(second.files.upload(await fileSource(path), options))).toBe('source_changed')
  expect(second.counted.puts).toBe(0)
  await writeFile(path, bytes)
  const sent = await second.files.upload(await fileSource(path), options)
  expect(first.counted.puts + second.counted.puts).toBeLessThanOrEqual(CHUNKS + 1)
  expect(await second.files.upload(await fileSource(path), options)).toEqual(sent)
  await using reader = new Attachments(bob)
  expect((await read(reader, sent)).equals(bytes)).toBe(true)
  for (const { files } of [first, second]) await files.close()
})

test('a download resumes after a restart, under a file name that cannot leave the folder', async () => {
  const [ann, bob] = await world.enrolMany(2)
  const bytes = whole()
  await using sender = new Attachments(ann)
  const sent = await sender.upload(new Blob([bytes]), { ...to(bob), name: '../../plan.bin' })
  const into = join(folder, 'received')
  const life = new AbortController()
  const first = counting(bob, (count) => count === CHUNKS / 2 && life.abort(new Error('the end')))
  await expect(saveAttachment(first.files, sent, { folder: into, signal: life.signal })).rejects.toThrow('the end')
  const second = counting(bob)
  const paths = [await saveAttachment(second.files, sent, { folder: into })]
  expect(first.counted.gets + second.counted.gets).toBeLessThanOrEqual(CHUNKS + 1)
  paths.push(await saveAttachment(second.files, sent, { folder: into }))
  expect(paths).toEqual(['_.._plan.bin', '_.._plan (2).bin'].map((name) => join(into, name)))
  for (const path of paths) expect((await readFile(path)).equals(bytes)).toBe(true)
  expect((await readdir(into)).sort()).toEqual(['_.._plan (2).bin', '_.._plan.bin'])
  for (const { files } of [first, second]) await files.close()
})

const openFiles = async (path: string) => {
  const names = await readdir('/proc/self/fd')
  const targets = await Promise.all(names.map((name) => readlink(`/proc/self/fd/${name}`).catch(() => '')))
  return targets.filter((target) => target === path).length
}

test.skipIf(process.platform !== 'linux')('two saves of a file into one folder end with the same file', async () => {
  const [ann, bob] = await world.enrolMany(2)
  const bytes = whole()
  await using sender = new Attachments(ann)
  const sent = await sender.upload(new Blob([bytes]), to(bob))
  const into = join(await realpath(folder), 'shared')
  const areBothOpen = Promise.withResolvers<void>()
  const pause = (count: number) => (count === CHUNKS / 2 ? areBothOpen.promise : undefined)
  const [first, second] = [counting(bob, pause), counting(bob, pause)]
  const saves = [first, second].map(({ files }) => saveAttachment(files, sent, { folder: into }))
  await until('both have the file open', async () => (await openFiles(join(into, `.sealpost-${sent.id}.part`))) === 2)
  areBothOpen.resolve()
  expect(await Promise.all(saves)).toEqual([join(into, 'plan.bin'), join(into, 'plan.bin')])
  expect((await readFile(join(into, 'plan.bin'))).equals(bytes)).toBe(true)
  expect(await readdir(into)).toEqual(['plan.bin'])
  expect(first.counted.gets + second.counted.gets).toBeLessThanOrEqual(CHUNKS + 1)
  for (const { files } of [first, second]) await files.close()
})

test('with a bucket configured, chunks are stored in and read from it', async () => {
  const s3 = await testingS3()
  await using away = await World.open(s3.env)
  const [ann, bob] = await away.enrolMany(2)
  await using sender = new Attachments(ann)
  await using reader = new Attachments(bob)
  const bytes = randomBytes(3 * CHUNK_BYTES)
  const sent = await sender.upload(new Blob([bytes]), to(bob))
  expect(await s3.objects()).toBe(4)
  expect(await read(reader, sent)).toEqual(bytes)
  await s3.close()
})

test('a peer and a mesh have limited space, and deleting an attachment frees it', async () => {
  await using small = await World.open({ LIMITS: 'on', ATTACHMENTS_PER_PEER: '1', ATTACHMENTS_PER_MESH: '2' })
  const places = await small.enrolMany(3)
  await using ann = new Attachments(places[0])
  await using bob = new Attachments(places[1])
  await using eve = new Attachments(places[2])
  const upload = (files: Attachments) => files.upload(new Blob(['minutes']), to(places[1]))
  const first = await upload(ann)
  expect(await codeOf(upload(ann))).toBe('quota_exceeded')
  await upload(bob)
  expect(await codeOf(upload(eve))).toBe('mesh_quota_exceeded')
  await ann.remove(first)
  expect(await codeOf(upload(eve))).toBe('done')
})
