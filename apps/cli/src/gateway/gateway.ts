/** `sealpost gateway` serves this profile's peer over HTTP on this machine, and calls webhooks. */
import { chmod, rm } from 'node:fs/promises'
import { isDeepStrictEqual } from 'node:util'
import type { Message, PeerKey } from '@sealpost/sdk'
import { OnceStore, sendOnce } from '@sealpost/sdk/once'
import { sentLogOf } from '@sealpost/sdk/sent'
import { OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { Webhook } from 'standardwebhooks'
import { takeGroupLeave } from '../members/group-leaves.ts'
import { resolveRecipient, SenderNames } from '../members/member-list.ts'
import type { Content } from '../messages/content.ts'
import { downloadFile, type FileReaders, finishMessage, retryPause, unsavedOutcome } from '../messages/files.ts'
import { labelOf, messageForPrograms } from '../messages/incoming-message.ts'
import { escapeName } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
import { callPeer, openSession, type PeerSession } from '../session/peer-session.ts'
import { parseInteger } from '../settings.ts'
import { abortable, examples, type RunAction, type Shell } from '../shell.ts'
import { type GatewayPorts, gatewayApi } from './api.ts'
import {
  entriesCommand,
  type Forward,
  forwardCommand,
  hookCommand,
  readEntries,
  removeCommand,
  tokenCommand,
} from './config.ts'
import { GatewayInbox, type HeldMessage } from './inbox.ts'

/** The number of messages that the gateway holds; the others stay with the broker. */
const CREDIT = 64
const PORT = 7461
/** The time limit of a call to a webhook. */
const WEBHOOK_WITHIN_MS = 15_000
/** How often the gateway reads its list of webhooks again. */
const FORWARDS_EVERY_MS = 1_000

interface GatewayOptions {
  readonly port: number
  readonly socket?: string
  readonly as: string
}

export function gatewayCommand(run: RunAction): Command {
  return new Command('gateway')
    .description(
      'Serve this profile over HTTP on this machine, so that any program can send and receive sealed messages. Runs until Ctrl-C.',
    )
    .addOption(
      new Option('--port <PORT>', 'the port on 127.0.0.1; 0 chooses a free port')
        .argParser(parseInteger(0, 65_535))
        .default(PORT),
    )
    .option(
      '--as <NAME>',
      'the name of this session, which keeps its address YOU/NAME, its messages and its idempotency keys across restarts',
      'gateway',
    )
    .option('--socket <PATH>', 'serve on this Unix socket, which only your account can open, instead of a port')
    .addHelpText(
      'after',
      examples(
        'sealpost gateway',
        'sealpost gateway --socket ~/sealpost.sock',
        'sealpost gateway token builds --to alice',
      ),
    )
    .action(run(gateway))
    .addCommand(tokenCommand(run))
    .addCommand(hookCommand(run))
    .addCommand(forwardCommand(run))
    .addCommand(entriesCommand(run))
    .addCommand(removeCommand(run))
}

async function gateway(shell: Shell, { port, socket, as }: GatewayOptions): Promise<void> {
  const stores: OnceStore[] = []
  const wrapStore = (store: ConstructorParameters<typeof OnceStore>[0]) => {
    const once = new OnceStore(store)
    stores.push(once)
    return once
  }
  const inbox = new GatewayInbox()
  const terms = { as, credit: CREDIT, wrapStore, readWhen: 'marked' } as const
  const opened = Promise.withResolvers<Fetch>()
  // The address is taken first, so that a failure leaves no session behind. Calls wait until the session is open.
  using server = await listen(async (call) => (await opened.promise)(call), { port, socket })
  await using session = await openSession(shell, { ...terms, onWithdrawn: (message) => inbox.withdraw(message) })
  inbox.onTaken = (message) => session.session.markRead(message)
  const ports = portsOf(shell, { session, inbox, store: stores[0]! })
  opened.resolve(gatewayApi(ports).fetch)
  using _server = server // ends before the session
  shell.output.info(`gateway at ${server.place}; press Ctrl-C to end`)
  using _webhooks = new Webhooks(shell, ports)
  session.session.onMessage(async (message) => {
    if (!(await takeGroupLeave(shell, message))) await inbox.add(message)
  })
  await abortable(session.failed, shell.signal)
}

interface Parts {
  readonly session: PeerSession
  readonly inbox: GatewayInbox
  readonly store: OnceStore
}

function portsOf(shell: Shell, { session, inbox, store }: Parts): GatewayPorts {
  const { peer } = session
  const names = new SenderNames(session, shell.output)
  return {
    inbox,
    entries: () => readEntries(shell.profile),
    resolve: (word) => resolveRecipient(shell, word),
    send: async ({ to, content, keyOf, ...terms }) => {
      const isNews = to.some((key) => !store.has(keyOf(key)))
      const attached = isNews ? await attachmentFor(content, to) : {}
      const send = (key: PeerKey) =>
        sendOnce(peer, store, key, content.body, { ...terms, ...attached, key: keyOf(key) })
      return Promise.allSettled(sentLogOf(peer).together({ audience: null }, () => to.map(send)))
    },
    request: async (to, { content, ...terms }, timeoutMs) => {
      const options = { ...terms, ...(await attachmentFor(content, to)), timeoutMs }
      const answer = await peer.request(to, content.body, options)
      finishMessage(answer, unsavedOutcome(answer))
      return { ...(await contentOf(answer)), isError: answer.isError }
    },
    reply: async (message, content, isError) => {
      const options = { isAutomatic: true, ...(await attachmentFor(content, message.sender)) }
      if (isError) return message.replyError(new TextDecoder().decode(content.body), options)
      return message.reply(content.body, options)
    },
    fileOf: async function* (message, attachment) {
      yield* downloadFile(shell, attachment, await session.identityFor(message))
    },
    peers: async () => {
      const members = await callPeer(shell, { method: 'members', params: null })
      return members.map(({ peer: key, name, role }) => ({ key, name, role }))
    },
    isOnline: () => peer.isOnline,
    contentOf: async ({ messageId, message }) => ({ messageId, ...(await contentOf(message)) }),
  }

  async function attachmentFor(content: Content, to: FileReaders): Promise<{ attachment?: string }> {
    const file = await content.upload(shell, to)
    return file ? { attachment: file.text } : {}
  }

  async function contentOf(message: Message): Promise<object> {
    await names.learn(message.user)
    const contacts = await Contacts.read(shell.profile.contactsFile)
    return messageForPrograms(message, contacts, unsavedOutcome(message))
  }
}

/** Event streams may be silent for longer than Bun's default timeout. */
const HTTP = { idleTimeout: 0, development: false } as const

type Fetch = (request: Request) => Response | Promise<Response>

interface Served extends Disposable {
  /** The URL, or the path of the socket. */
  readonly place: string
}

/** Opens the port or the socket. @throws OperatingError `port_taken`, `socket_unusable` */
async function listen(
  fetch: Fetch,
  { port, socket }: { readonly port: number; readonly socket: string | undefined },
): Promise<Served> {
  if (socket === undefined) {
    const server = served(
      () => Bun.serve({ ...HTTP, hostname: '127.0.0.1', port, fetch, reusePort: false }),
      `port ${port}`,
    )
    return { place: `http://127.0.0.1:${server.port}`, [Symbol.dispose]: () => void server.stop(true) }
  }
  if (await isServed(socket)) throw inUse(`the socket ${escapeName(socket)}`)
  await rm(socket, { force: true })
  const before = process.umask(0o177) // only this account may connect, from the first moment on
  try {
    const server = served(
      () => Bun.serve({ unix: socket, fetch, development: false, reusePort: false } as never),
      `the socket ${escapeName(socket)}`,
    )
    await chmod(socket, 0o600)
    return { place: escapeName(socket), [Symbol.dispose]: () => void server.stop(true) }
  } finally {
    process.umask(before)
  }
}

function served<T>(serve: () => T, place: string): T {
  try {
    return serve()
  } catch (cause) {
    if ((cause as { code?: string }).code === 'EADDRINUSE') throw inUse(place)
    throw new OperatingError('socket_unusable', `The gateway can't listen at ${place}.`, { cause })
  }
}

const inUse = (place: string) => new OperatingError('port_taken', `Another program uses ${place}.`)

async function isServed(socket: string): Promise<boolean> {
  return fetch('http://gateway/', { unix: socket }).then(
    () => true,
    () => false,
  )
}

/** Connects each outgoing webhook to the inbox, and follows changes of the list. */
class Webhooks implements Disposable {
  readonly #shell: Shell
  readonly #ports: GatewayPorts
  readonly #timer: ReturnType<typeof setInterval>
  #forwards: readonly Forward[] = []
  #disconnects: (() => void)[] = []

  constructor(shell: Shell, ports: GatewayPorts) {
    this.#shell = shell
    this.#ports = ports
    this.#timer = setInterval(() => void this.#refresh(), FORWARDS_EVERY_MS)
    void this.#refresh()
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer)
    for (const disconnect of this.#disconnects) disconnect()
  }

  async #refresh(): Promise<void> {
    const entries = await this.#ports.entries().catch(() => null)
    const forwards = entries?.filter((entry) => entry.kind === 'forward')
    if (!forwards || isDeepStrictEqual(forwards, this.#forwards)) return
    this.#forwards = forwards
    for (const disconnect of this.#disconnects) disconnect()
    this.#disconnects = await Promise.all(forwards.map((forward) => this.#connect(forward)))
  }

  async #connect(forward: Forward): Promise<() => void> {
    const from =
      forward.from && (await Promise.all(forward.from.map((word) => this.#ports.resolve(word).catch(() => null))))
    return this.#ports.inbox.connect((held) => {
      if (from && !from.includes(held.message.user)) return false
      void this.#call(forward, held)
      return true
    })
  }

  /** Calls the webhook. A failed call returns the message to the queue for a while. */
  async #call(forward: Forward, held: HeldMessage): Promise<void> {
    const { inbox, contentOf } = this.#ports
    const failure = await post(forward, held.messageId, await contentOf(held)).catch((error: Error) => error.name)
    if (!inbox.isHeld(held)) return
    if (failure === null) return inbox.finish(held.messageId, (message) => message.settle())
    const afterMs = retryPause(held.message)
    const { user, deviceLabel } = held.message
    const from = labelOf(await Contacts.read(this.#shell.profile.contactsFile), user, deviceLabel)
    this.#shell.output.warn(
      `${escapeName(from)}: the webhook ${forward.name} failed (${failure}); next call in ${afterMs / 1000} s`,
    )
    inbox.finish(held.messageId, (message) => message.retry(afterMs))
  }
}

/** Returns null on success, or the reason of the failure. */
async function post({ url, secret }: Forward, id: string, content: object): Promise<string | null> {
  const body = JSON.stringify(content)
  const at = new Date()
  const response = await fetch(url, {
    method: 'POST',
    body,
    redirect: 'manual',
    signal: AbortSignal.timeout(WEBHOOK_WITHIN_MS),
    headers: {
      'content-type': 'application/json',
      'webhook-id': id,
      'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
      'webhook-signature': new Webhook(secret).sign(id, at, body),
    },
  })
  await response.body?.cancel()
  return response.ok ? null : `status ${response.status}`
}
