import { mkdtemp, rm, stat } from 'node:fs/promises'
import { createConnection, type Server, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Terms } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, GroupId, PeerKey } from '@sealpost/std'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Message, type MessageActions, type MessageParts } from '../inbox/message.ts'
import {
  dialHost,
  fieldsOf,
  type HostFrame,
  listenAt,
  MailboxLink,
  messageOf,
  type SessionFrame,
  socketPathOf,
} from './mailbox-link.ts'

let folder: string
let server: Server | undefined
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-link-'))
})
afterEach(async () => {
  server?.close()
  await rm(folder, { recursive: true })
})

const READ: SessionFrame = { type: 'read', id: '/a b' }

/** Listens, and returns the frames that arrive, and a promise for the end of the first connection. */
async function listening() {
  const path = join(folder, 'host.sock')
  const frames: SessionFrame[] = []
  let ended!: () => void
  const end = new Promise<void>((resolve) => {
    ended = resolve
  })
  const links: MailboxLink<SessionFrame, HostFrame>[] = []
  server = await listenAt(path, (socket) => {
    links.push(new MailboxLink(socket, { received: (frame) => frames.push(frame), closed: ended }))
  })
  return { path, frames, end, links }
}

/** Connects without a link. */
function raw(path: string): Promise<Socket> {
  return new Promise((resolve) => {
    const socket = createConnection(path, () => resolve(socket))
  })
}

test('frames pass in both directions, and the end of one side ends the other', async () => {
  const { path, frames, end, links } = await listening()
  const heard: HostFrame[] = []
  let closed!: () => void
  const closing = new Promise<void>((resolve) => {
    closed = resolve
  })
  const link = await dialHost(path, { received: (frame) => void (heard.push(frame) && link!.end()), closed })
  link!.send(READ)
  await expect.poll(() => frames).toEqual([READ])
  links[0]!.send({ type: 'lost', id: '/c d' })
  await Promise.all([closing, end])
  expect(heard).toEqual([{ type: 'lost', id: '/c d' }])
})

test('a frame may arrive in pieces that divide a character', async () => {
  const { path, frames, end } = await listening()
  const bytes = Buffer.from(`${JSON.stringify({ ...READ, id: '/ä 😀' })}\n`)
  const socket = await raw(path)
  socket.setNoDelay(true)
  for (const byte of bytes) await new Promise((sent) => socket.write(Uint8Array.of(byte), sent))
  socket.end()
  await end
  expect(frames).toEqual([{ type: 'read', id: '/ä 😀' }])
})

test.each([
  ['that is not JSON', 'nonsense\n'],
  ['that is too long', 'x'.repeat(1024 * 1024 + 1)],
])('a line %s ends the connection', async (_, text) => {
  const { path, frames, end } = await listening()
  const socket = await raw(path)
  socket.on('error', () => undefined)
  socket.write(text)
  await end
  socket.destroy()
  expect(frames).toEqual([])
})

test('without a host, there is no link, even if a killed one has left its socket', async () => {
  const handlers = { received: () => undefined, closed: () => undefined }
  expect(await dialHost(join(folder, 'none.sock'), handlers)).toBeNull()
  const path = join(folder, 'host.sock')
  const program = `require('node:net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`
  await Bun.spawn([process.execPath, '-e', program]).exited
  expect((await stat(path)).isSocket()).toBe(true)
  expect(await dialHost(path, handlers)).toBeNull()
  await listening()
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  const link = await dialHost(path, handlers)
  link!.destroy()
})

test('a path that is too long for a socket is refused', () => {
  expect(() => socketPathOf('/'.padEnd(100, 'a'))).toThrow('too long for a socket')
  expect(socketPathOf('/home/ada')).toBe('/home/ada/sessions/host.sock')
})

test('a message is the same on both sides of a link', () => {
  const actions = {} as MessageActions
  const hex = (digit: string, length = 64) => digit.repeat(length)
  const terms: Terms = { receipts: 'end', thread: hex('0', 32), hops: 3, noAutoReply: true }
  const parts: MessageParts = {
    pushed: {
      ...{ id: 7 as DeliveryId, envelopeId: hex('e', 32) as EnvelopeId, sender: hex('a') as PeerKey, terms },
      ...{ priority: 'now', attempt: 2, enqueuedAtMs: 5, envelope: new Uint8Array(3) },
    },
    opened: {
      ...{ ok: true, header: { stream: null, sentAtMs: 4 }, headerHash: null },
      note: {
        ...{ thread: hex('b', 32), inReplyTo: hex('f', 32) as EnvelopeId, attachment: 'a file' },
        ...{ isRequest: true, isError: true, user: hex('c') as PeerKey },
      },
      body: Uint8Array.of(0, 255, 128),
      group: { id: hex('d', 32) as GroupId, name: 'all', epoch: 1 },
      bodyId: hex('9'),
    },
    from: { user: hex('c') as PeerKey, deviceLabel: 'api' },
    ...{ receivedAtMs: 6, sessionNo: 1 },
  }
  const message = new Message(actions, parts)
  message.isRedriven = true
  const copy = messageOf(JSON.parse(JSON.stringify(fieldsOf(message))), actions)
  expect(fieldsOf(copy)).toEqual(fieldsOf(message))
  expect(copy.note).toEqual(message.note)
  expect(copy).toMatchObject({ thread: hex('b', 32), hops: 3, isRequest: true, toUser: hex('c'), body: message.body })
})
