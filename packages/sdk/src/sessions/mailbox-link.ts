/**
 * Carries frames between the host and the sessions of a profile: lines of JSON through a Unix socket, which only the
 * owner of the profile can open. Works in Node and Bun. A reader ignores frames of unknown types, and unknown fields.
 */
import { chmod, rm } from 'node:fs/promises'
import { createConnection, createServer, type Server, type Socket } from 'node:net'
import { join } from 'node:path'
import type { Note } from '@sealpost/identity'
import { NO_THREAD, type Priority, type Terms } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, Millis, PeerKey, PoolId } from '@sealpost/std'
import { type SealpostCode, SealpostError } from '../errors.ts'
import { Message, type MessageActions, type MessageGroup, type MessagePool } from '../inbox/message.ts'
import type { FinalReply } from '../inbox/replies.ts'
import type { Receipt } from '../outbox/lane.ts'
import type { Status } from '../presence/presence-client.ts'
import type { FinalOutcome, MailId, MailOutcome, MailPlace, SessionReport } from './distribution.ts'

/** A frame from a session to the host. */
export type SessionFrame =
  | (SessionReport & { readonly type: 'hello'; readonly version: number })
  /** `isMarked`: the application has marked it. Otherwise, it has only been handed out. */
  | { readonly type: 'read'; readonly id: MailId; readonly isMarked?: boolean }
  | { readonly type: 'released'; readonly id: MailId }
  | { readonly type: 'ended'; readonly id: MailId; readonly outcome: MailOutcome }
  /** An outcome with a reply, which hosts before version 2 ignore. */
  | { readonly type: 'answered'; readonly id: MailId; readonly outcome: MailOutcome }
  | { readonly type: 'extend'; readonly id: MailId; readonly forMs: Millis | null }
  | { readonly type: 'status'; readonly status: Status }
  | { readonly type: 'pools'; readonly pools: readonly PoolId[] }
  | { readonly type: 'thread'; readonly thread: string }
  /** Asks for the folder of one of these unnamed sessions, of which the host receives the mail. */
  | { readonly type: 'vacate'; readonly names: readonly string[] }

/** A frame from the host to a session. */
export type HostFrame =
  | { readonly type: 'welcome'; readonly version: number }
  | { readonly type: 'message'; readonly id: MailId; readonly message: MailFields }
  | { readonly type: 'recall'; readonly id: MailId }
  /** The outcome is stored: no other session will get the message. */
  | { readonly type: 'confirmed'; readonly id: MailId }
  /** Another session has the message. */
  | { readonly type: 'lost'; readonly id: MailId }
  /** The reply was refused, and the message is in the queue again. */
  | { readonly type: 'refused'; readonly id: MailId; readonly error: LinkError }
  /** What the broker has replied to the stored reply. */
  | { readonly type: 'receipt'; readonly id: MailId; readonly receipt: Receipt | LinkError }
  /** The reply to `vacate`: the folder that the host has unlocked, or null. */
  | { readonly type: 'vacated'; readonly name: string | null }

export const LINK_VERSION = 2

export interface LinkError {
  readonly code: SealpostCode
  readonly message: string
  readonly isRetryable: boolean
}

/** Returns the outcome as JSON. */
export function outcomeOf({ body, options, rejectedFor: reason }: FinalReply): FinalOutcome {
  const reply = { body: Buffer.from(body).toString('base64'), options }
  return reason === null ? { kind: 'settled', reply } : { kind: 'rejected', reason, reply }
}

/** Returns the reply of an outcome, or null. */
export function finalReplyOf(outcome: MailOutcome): FinalReply | null {
  if (outcome.kind === 'returned' || !outcome.reply) return null
  const { body, options } = outcome.reply
  const rejectedFor = outcome.kind === 'rejected' ? outcome.reason : null
  return { body: new Uint8Array(Buffer.from(body, 'base64')), options, rejectedFor }
}

/** A message as JSON. */
export interface MailFields {
  readonly sender: PeerKey
  readonly user: PeerKey
  readonly deviceLabel: string | null
  readonly envelopeId: EnvelopeId
  readonly place: MailPlace | null
  readonly bodyId: string | null
  /** Base64. */
  readonly body: string
  readonly priority: Priority
  readonly attempt: number
  readonly isRedriven: boolean
  readonly enqueuedAtMs: Millis
  readonly receivedAtMs: Millis
  readonly sentAtMs: Millis
  readonly group: MessageGroup | null
  readonly pool: MessagePool | null
  readonly note: Note
  readonly terms: Terms
}

export function fieldsOf(message: Message): MailFields {
  const { sender, user, deviceLabel, envelopeId, priority, attempt, isRedriven, group, pool, stream } = message
  const { enqueuedAtMs, receivedAtMs, sentAtMs, bodyId, note, hops, noAutoReply, receipts } = message
  return {
    ...{ sender, user, deviceLabel, envelopeId, priority, attempt, isRedriven, group, pool, note: note ?? {} },
    ...{ enqueuedAtMs, receivedAtMs, sentAtMs, bodyId },
    place: stream && { streamId: stream.streamId, seq: stream.seq },
    body: Buffer.from(message.body).toString('base64'),
    terms: { receipts, thread: NO_THREAD, hops, noAutoReply },
  }
}

/** Returns the message of the fields. Its actions are the caller's. */
export function messageOf(fields: MailFields, actions: MessageActions): Message {
  const { sender, user, deviceLabel, envelopeId, priority, attempt, enqueuedAtMs, receivedAtMs } = fields
  const { sentAtMs, note, terms, group, pool, bodyId } = fields
  const body = new Uint8Array(Buffer.from(fields.body, 'base64'))
  const message = new Message(actions, {
    pushed: {
      ...{ id: 0 as DeliveryId, envelopeId, sender, priority, attempt, enqueuedAtMs, terms },
      envelope: new Uint8Array(0),
    },
    opened: {
      ...{ ok: true, header: { stream: null, sentAtMs }, headerHash: null, note, body },
      ...(group && { group }),
      ...(pool && { pool }),
      ...(bodyId !== null && { bodyId }),
    },
    from: { user, deviceLabel },
    receivedAtMs,
    sessionNo: 0,
  })
  message.isRedriven = fields.isRedriven
  return message
}

/** The longest line: a message of the maximum size has 88 KB. */
const LINE_CHARS_MAX = 1024 * 1024

const END_WITHIN_MS: Millis = 1_000

export interface LinkHandlers<In> {
  readonly received: (frame: In) => void
  readonly closed: () => void
}

/** One end of a connection. */
export class MailboxLink<In, Out> {
  readonly #socket: Socket
  #text = ''
  #isClosed = false

  constructor(socket: Socket, { received, closed }: LinkHandlers<In>) {
    this.#socket = socket
    socket.setEncoding('utf8')
    socket.on('data', (text) => this.#take(String(text), received))
    socket.on('error', () => socket.destroy()) // `close` follows
    socket.on('close', () => this.#close(closed))
  }

  send(frame: Out): void {
    if (!this.#isClosed) this.#socket.write(`${JSON.stringify(frame)}\n`)
  }

  /** Sends what was written, then closes the connection, even if the other process is suspended. */
  end(): void {
    this.#socket.destroySoon()
    setTimeout(() => this.destroy(), END_WITHIN_MS).unref()
  }

  destroy(): void {
    this.#socket.destroy()
  }

  #take(text: string, received: (frame: In) => void): void {
    const lines = (this.#text + text).split('\n')
    this.#text = lines.pop()!
    if (this.#text.length > LINE_CHARS_MAX) return this.destroy()
    for (const line of lines) {
      if (this.#isClosed) return
      const frame = frameOf<In>(line)
      if (!frame) return this.destroy()
      received(frame)
    }
  }

  #close(closed: () => void): void {
    if (this.#isClosed) return
    this.#isClosed = true
    closed()
  }
}

function frameOf<In>(line: string): In | null {
  try {
    return JSON.parse(line) as In
  } catch {
    return null
  }
}

export const sessionsFolderOf = (folder: string): string => join(folder, 'sessions')

const PATH_BYTES_MAX = 103 // the shortest limit of all platforms

/**
 * Returns the path of the host's socket. The folders of sessions contain no dot in their names. @throws SealpostError
 * `folder_path_too_long`
 */
export function socketPathOf(folder: string): string {
  const path = join(sessionsFolderOf(folder), 'host.sock')
  if (Buffer.byteLength(path) <= PATH_BYTES_MAX) return path
  throw new SealpostError('folder_path_too_long', `The path ${folder} is too long for a socket in it.`)
}

export type HostLink = MailboxLink<HostFrame, SessionFrame>
export type SessionLink = MailboxLink<SessionFrame, HostFrame>

/** Connects to the host. Returns null if there is none. */
export function dialHost(path: string, handlers: LinkHandlers<HostFrame>): Promise<HostLink | null> {
  return new Promise((resolve) => {
    const socket = createConnection(path)
    const failed = () => {
      socket.destroy()
      resolve(null)
    }
    socket.once('error', failed)
    socket.once('connect', () => {
      socket.off('error', failed)
      resolve(new MailboxLink(socket, handlers))
    })
  })
}

/** Listens at the path. Only the holder of the host's lock may call it, because it removes a stale socket. */
export async function listenAt(path: string, connected: (socket: Socket) => void): Promise<Server> {
  await rm(path, { force: true })
  const server = createServer(connected)
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(path, () => {
      server.off('error', reject)
      resolve()
    })
  })
  await chmod(path, 0o600)
  return server
}
