/** `sealpost chat` sends each typed line to one peer, and prints the messages of all peers. */
import { createInterface, type Interface } from 'node:readline'
import type { Message, Peer, PeerKey } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { takeGroupLeave } from '../members/group-leaves.ts'
import { resolveRecipient, SenderNames } from '../members/member-list.ts'
import { escapeName, escapeText } from '../output.ts'
import { openSession, type PeerSession, REACH_WITHIN_MS } from '../session/peer-session.ts'
import { durationOption, sessionNameOption } from '../settings.ts'
import { abortable, examples, type RunAction, type Shell } from '../shell.ts'
import { contentOf } from './content.ts'
import { type FileOutcome, finishMessage, nextMessage, receiveFile, UnsavedFiles } from './files.ts'
import { labelOf, messageForPeople, messageForPrograms } from './incoming-message.ts'

interface ChatOptions {
  readonly timeout: number
  readonly files?: string
  readonly as?: string
}

/** The maximum number of messages that the session holds, which exceeds those left open because of their files. */
const CREDIT = 128

export function chatCommand(run: RunAction): Command {
  return new Command('chat')
    .description('Chat with a peer: send each line you type as a message, until Ctrl-D')
    .argument('<TO>', "the peer's name, fingerprint or key (64 hex digits)")
    .addOption(
      durationOption('--timeout <TIME>', 'how long to wait at the end for the broker to store your messages', '30s'),
    )
    .option(
      '--files <FOLDER>',
      'save the files of messages in this folder, each under a new name; if this option is omitted, messages with files stay in the queue',
    )
    .addOption(sessionNameOption())
    .addHelpText('after', examples('sealpost chat bob', 'sealpost chat bob --profile work --files ~/Downloads'))
    .action(run(chat))
}

async function chat(shell: Shell, { timeout, files, as }: ChatOptions, to: string): Promise<void> {
  const key = await resolveRecipient(shell, to)
  await using session = await openSession(shell, { as, credit: CREDIT, enrolWithinMs: REACH_WITHIN_MS })
  const unsaved = new UnsavedFiles()
  await unsaved.reportAfter(
    talk({ shell, session, lines: openLines(), files, unsaved }, { key, timeout }),
    shell.output,
  )
}

async function talk(chat: Chat, { key, timeout }: { key: PeerKey; timeout: number }): Promise<void> {
  const { shell, session, lines } = chat
  try {
    const [them, me] = [labelOf(session.contacts, key), session.name].map(escapeName)
    shell.output.info(`chatting with ${them} as ${me}; press Ctrl-D to end`)
    const outbox = new Sends(shell)
    const sender = new LineSender(shell, session.peer, key)
    const typed = readLines(lines, (line) => outbox.add(sender.send(line), line))
    await abortable(Promise.race([typed, showAll(chat), session.failed]), shell.signal)
    await abortable(outbox.settled(timeout), shell.signal)
  } finally {
    lines.close()
    if (lines.terminal) process.stdout.write('\r\x1b[K') // erases the prompt
  }
}

/** Opens the input, with a prompt only on a terminal. */
function openLines(): Interface {
  const isScreen = process.stdin.isTTY && process.stdout.isTTY
  const lines = createInterface({ input: process.stdin, ...(isScreen ? { output: process.stdout, prompt: '> ' } : {}) })
  return lines.on('SIGINT', () => process.kill(process.pid, 'SIGINT')) // readline intercepts the signal, so send it to this process
}

async function readLines(lines: Interface, take: (line: string) => void): Promise<void> {
  lines.prompt()
  for await (const line of lines) {
    if (line !== '') take(line)
    lines.prompt()
  }
}

interface Chat {
  readonly shell: Shell
  readonly session: PeerSession
  readonly lines: Interface
  readonly files: string | undefined
  readonly unsaved: UnsavedFiles
}

async function showAll(chat: Chat): Promise<never> {
  const { shell, session, files } = chat
  const names = new SenderNames(session, shell.output)
  for (;;) {
    const { value: message } = await nextMessage(session.session)
    if (message === undefined) return session.failed
    if (await takeGroupLeave(shell, message)) continue
    await names.learn(message.user)
    const outcome = await receiveFile(shell, message, { folder: files, identity: await session.identityFor(message) })
    await take(message, outcome, chat)
  }
}

async function take(message: Message, outcome: FileOutcome, chat: Chat): Promise<void> {
  if (outcome.name === 'left') {
    if (chat.unsaved.leave(message)) await show(message, outcome, chat)
    return
  }
  await show(message, outcome, chat)
  finishMessage(message, outcome)
}

/** Prints a message above the input line. */
async function show(message: Message, outcome: FileOutcome, chat: Chat): Promise<void> {
  const { output } = chat.shell
  const { contacts } = chat.session
  const text = () => messageForPeople(message, contacts, output.paint, outcome)
  await output.result(messageForPrograms(message, contacts, outcome), () =>
    process.stdout.isTTY ? `\r\x1b[K${text()}` : text(),
  )
  if (process.stdout.isTTY) chat.lines.prompt(true)
}

/** Sends lines in their order. A line over the limit of a message becomes a file. */
class LineSender {
  readonly #shell: Shell
  readonly #peer: Peer
  readonly #to: PeerKey
  #uploaded: Promise<unknown> = Promise.resolve()

  constructor(shell: Shell, peer: Peer, to: PeerKey) {
    this.#shell = shell
    this.#peer = peer
    this.#to = to
  }

  send(line: string): Promise<unknown> {
    const content = contentOf(new TextEncoder().encode(line))
    const uploaded = this.#uploaded.then(() => content.upload(this.#shell, this.#to))
    this.#uploaded = uploaded.catch(() => undefined) // the line reports the error
    return uploaded.then((file) => this.#peer.send(this.#to, content.body, file ? { attachment: file.text } : {}))
  }
}

/** Tracks typed lines that are not stored. */
class Sends {
  readonly #shell: Shell
  readonly #waiting = new Set<Promise<void>>()
  #failed = 0

  constructor(shell: Shell) {
    this.#shell = shell
  }

  add(receipt: Promise<unknown>, line: string): void {
    const done = receipt
      .then(
        () => undefined,
        (error) => this.#fail(error, line),
      )
      .finally(() => this.#waiting.delete(done))
    this.#waiting.add(done)
  }

  /** Waits until all lines are stored. @throws OperatingError `timeout`, `not_sent` */
  async settled(seconds: number): Promise<void> {
    const late = AbortSignal.timeout(seconds * 1000)
    await abortable(Promise.all(this.#waiting), late).catch(() => {
      throw new OperatingError(
        'timeout',
        `The broker did not store ${this.#waiting.size} of your messages within ${seconds} s.`,
      )
    })
    if (this.#failed > 0) throw new OperatingError('not_sent', `${this.#failed} of your messages were not sent.`)
  }

  #fail(error: Error & { code?: string }, line: string): void {
    this.#failed += 1
    this.#shell.output.warn(`not sent (${error.code ?? error.message}): ${escapeText(line, '  ')}`)
  }
}
