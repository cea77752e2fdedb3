/** `sealpost listen` prints each message or runs a program for it, and settles it on success. */

import { spawn } from 'node:child_process'
import type { Message } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { takeGroupLeave } from '../members/group-leaves.ts'
import { SenderNames } from '../members/member-list.ts'
import { escapeName } from '../output.ts'
import { openSession, type PeerSession } from '../session/peer-session.ts'
import { findPools, PoolHolds } from '../session/pool-holds.ts'
import { environmentForExec, maxAgeOption, parseDuration, parseInteger, sessionNameOption } from '../settings.ts'
import { abortable, examples, type RunAction, type Shell, warnOfUnset, withDeadline } from '../shell.ts'
import { contentOf } from './content.ts'
import { type FileOutcome, nextMessage, retryPause, SavedFiles, UnsavedFiles } from './files.ts'
import { labelOf, messageForExec, messageForPeople, messageForPrograms } from './incoming-message.ts'

interface ListenOptions {
  readonly exec?: string
  readonly reply?: boolean
  readonly count?: number
  readonly pool?: readonly string[]
  readonly files?: string
  readonly env?: readonly string[]
  readonly maxAge?: number
  readonly as?: string
}

/** The number of attempts after which a pool message with a lost file is rejected; until then, others may fetch it. */
const POOL_ATTEMPTS_MAX = 5
/** The maximum number of messages that the session holds, which exceeds those left open because of their files. */
const CREDIT = 128
/** The pool gives one message at a time. An older host may also give messages that are not for the pool. */
const JOB_CREDIT = 8

export function listenCommand(run: RunAction): Command {
  return new Command('listen')
    .description('Receive messages one at a time, until Ctrl-C')
    .option(
      '-e, --exec <CMD>',
      'run CMD in a shell for each message, with the body on stdin. Its environment contains SEALPOST_FROM, _FROM_NAME, _FROM_DEVICE, _ENVELOPE_ID, _PRIORITY, _ATTEMPT, _SENT_AT_MS, _ENQUEUED_AT_MS, _GROUP, _POOL, _FILE and _IS_REQUEST, the usual variables (PATH, HOME, LANG, TERM, SEALPOST_HOME and the like) and those of --env. If CMD exits with a code other than 0, the message is delivered again later',
    )
    .option('--env <NAME...>', 'pass these environment variables to CMD; you can repeat this option')
    .option('--reply', 'reply to each request with the output of CMD')
    .option(
      '--pool <POOL...>',
      'also receive messages of these pools (names or ids), one message at a time from each pool',
    )
    .option(
      '--files <FOLDER>',
      'save the files of messages in this folder, each under a new name; if this option is omitted, messages with files stay in the queue',
    )
    .addOption(maxAgeOption())
    .addOption(sessionNameOption())
    .option('-n, --count <N>', 'exit after N messages', parseInteger(1, 1_000_000_000))
    .addHelpText(
      'after',
      examples(
        'sealpost listen',
        "sealpost listen --json | jq -r '.text'",
        'sealpost listen --count 1',
        'sealpost listen --files ~/Downloads',
        `sealpost listen --exec 'notify-send "$SEALPOST_FROM_NAME" "$(cat)"'`,
        "sealpost listen --exec './answer.sh' --reply",
        "sealpost listen --exec './answer.sh' --reply --env SERVICE_API_KEY",
        "sealpost listen --pool reviewers --exec './review.sh'",
        'sealpost listen --as builds',
      ),
    )
    .action(run(listen))
}

async function listen(
  shell: Shell,
  { exec, reply = false, count = Infinity, pool = [], files, env = [], maxAge, as }: ListenOptions,
): Promise<void> {
  if (reply && exec === undefined) throw new OperatingError('usage', '--reply needs --exec, whose output it sends.')
  warnOfUnset(shell, env)
  const pools = await findPools(shell, pool)
  // Accept no more messages than needed; the others go to other sessions or stay with the broker.
  await using session = await openSession(shell, { as, credit: Math.min(count, CREDIT), maxAgeSeconds: maxAge })
  await abortable(new PoolHolds(shell, session.session).joinAll(pools), shell.signal)
  shell.output.info(`listening as ${session.name}; press Ctrl-C to end`)
  const unsaved = new UnsavedFiles()
  const handling = { shell, session, exec, env, isReplying: reply, unsaved }
  await unsaved.reportAfter(handleAll(handling, count, files), shell.output)
}

async function handleAll(
  handling: Omit<Handling, 'outcome'> & { readonly session: PeerSession },
  count: number,
  folder: string | undefined,
): Promise<void> {
  const { shell, session } = handling
  const names = new SenderNames(session, shell.output)
  const saved = new SavedFiles()
  for (let done = 0; done < count; ) {
    const { value: message } = await abortable(nextMessage(session.session), shell.signal)
    if (message === undefined) return session.failed
    if (await takeGroupLeave(shell, message)) continue
    await names.learn(message.user)
    const outcome = await saved.receive(shell, message, { folder, identity: await session.identityFor(message) })
    if (!(await handle(message, { ...handling, outcome }))) continue
    saved.forget(message)
    done += 1
  }
}

interface TakeOptions {
  readonly exec?: string
  readonly reply?: boolean
  readonly env?: readonly string[]
  readonly files?: string
  readonly timeout?: number
}

export function takeCommand(run: RunAction): Command {
  return new Command('take')
    .description(
      'Take one message from a pool that you work for, print it or run a program for it, and exit. The message leaves the pool only on success.',
    )
    .argument('<POOL>', 'the name of the pool, or its id (64 hex digits)')
    .option('-e, --exec <CMD>', 'run CMD in a shell for the message, like "listen --exec"')
    .option('--env <NAME...>', 'pass these environment variables to CMD; you can repeat this option')
    .option('--reply', 'if the message is a request, reply with the output of CMD')
    .option('--files <FOLDER>', 'save the file of the message in this folder')
    .option(
      '--timeout <TIME>',
      'how long to wait for a message, such as 30s or 10m; default: until Ctrl-C',
      parseDuration,
    )
    .addHelpText(
      'after',
      examples(
        'sealpost pool take reviewers',
        "sealpost pool take reviewers --exec './review.sh' --reply",
        'sealpost pool take reviewers --timeout 30s --json',
      ),
    )
    .action(run(take))
}

async function take(asked: Shell, options: TakeOptions, pool: string): Promise<void> {
  const { exec, reply: isReplying = false, env = [], files, timeout } = options
  if (isReplying && exec === undefined)
    throw new OperatingError('usage', '--reply needs --exec, whose output it sends.')
  const pools = await findPools(asked, [pool])
  await using session = await openSession(asked, { takes: 'pools', credit: JOB_CREDIT })
  await abortable(new PoolHolds(asked, session.session).joinAll(pools), asked.signal)
  using shell =
    timeout === undefined
      ? { ...asked, [Symbol.dispose]: () => undefined }
      : withDeadline(asked, timeout, `The pool had no message for you within ${timeout} s.`)
  const { value: message } = await abortable(nextMessage(session.session), shell.signal)
  if (message === undefined) return session.failed
  await new SenderNames(session, shell.output).learn(message.user)
  const identity = await session.identityFor(message)
  const outcome = await new SavedFiles().receive(asked, message, { folder: files, identity })
  const handling = { shell: asked, session, exec, env, isReplying, outcome, unsaved: new UnsavedFiles() }
  if (!(await handle(message, handling)))
    throw new OperatingError('job_failed', 'The message went back to the pool, because it was not handled.')
}

interface Handling {
  readonly shell: Shell
  readonly session: Pick<PeerSession, 'contacts'>
  readonly exec: string | undefined
  /** Additional variables to pass. */
  readonly env: readonly string[]
  readonly isReplying: boolean
  readonly outcome: FileOutcome
  readonly unsaved: UnsavedFiles
}

/** Returns whether the message counts: handled, or left open for the first time. */
async function handle(message: Message, handling: Handling): Promise<boolean> {
  const { outcome, unsaved } = handling
  switch (outcome.name) {
    case 'left':
      if (message.pool) return retryLater(message, handling, 'saving its file requires --files FOLDER')
      return unsaved.leave(message) && (await leaveOpen(message, handling))
    case 'later':
      return retryLater(message, handling, `its file was not saved (${outcome.code})`)
    case 'lost':
      if (message.pool && message.attempt < POOL_ATTEMPTS_MAX)
        return retryLater(message, handling, `its file was not saved (${outcome.code})`)
      return refuse(message, handling, outcome.code)
    default:
      return printOrExecute(message, handling)
  }
}

async function leaveOpen(message: Message, handling: Handling): Promise<true> {
  if (handling.exec === undefined) await print(message, handling)
  else warnOf(message, handling, 'the command did not run, because the file was not saved: set --files FOLDER')
  return true
}

/** Rejects a message whose file is lost, which makes it a dead letter. */
async function refuse(message: Message, handling: Handling, code: string): Promise<true> {
  if (handling.exec === undefined) await print(message, handling)
  warnOf(message, handling, `rejected, because its file is lost (${code})`)
  message.reject(code)
  return true
}

function retryLater(message: Message, handling: Handling, why: string): false {
  const afterMs = retryPause(message)
  message.retry(afterMs)
  warnOf(message, handling, `released: ${why}; next delivery in ${afterMs / 1000} s`)
  return false
}

function warnOf(message: Message, { shell, session }: Handling, what: string): void {
  shell.output.warn(`${escapeName(labelOf(session.contacts, message.user, message.deviceLabel))}: ${what}`)
}

function print(message: Message, { shell: { output }, session: { contacts }, outcome }: Handling): Promise<void> {
  const forPeople = () => messageForPeople(message, contacts, output.paint, outcome)
  return output.result(messageForPrograms(message, contacts, outcome), forPeople)
}

async function printOrExecute(message: Message, handling: Handling): Promise<boolean> {
  const { exec, isReplying } = handling
  if (exec === undefined) {
    await print(message, handling)
    message.settle()
    return true
  }
  const isAnswered = isReplying && message.isRequest
  const { failure, printed } = await execute(exec, message, { ...handling, isReplying: isAnswered })
  if (failure === null) {
    if (isAnswered) await replyWith(printed, message, handling)
    message.settle()
    return true
  }
  const afterMs = retryPause(message)
  message.retry(afterMs)
  warnOf(message, handling, `the command ended ${failure}; next delivery in ${afterMs / 1000} s`)
  return false
}

/** Replies with a program's output, which becomes a file if it exceeds a message. */
async function replyWith(printed: Uint8Array, message: Message, { shell }: Handling): Promise<void> {
  const content = contentOf(printed)
  const file = await content.upload(shell, message.sender)
  await message.reply(content.body, { isAutomatic: true, ...(file && { attachment: file.text }) })
}

interface Executed {
  readonly failure: string | null
  /** The program's output, which becomes the reply; without one, it goes to stdout. */
  readonly printed: Uint8Array
}

function execute(command: string, message: Message, handling: Handling): Promise<Executed> {
  const { shell, session, env, isReplying, outcome } = handling
  const child = spawn(command, {
    shell: true,
    stdio: ['pipe', isReplying ? 'pipe' : 'inherit', 'inherit'],
    env: {
      ...environmentForExec(shell.settings.environment, env),
      ...messageForExec(message, session.contacts, outcome),
    },
  })
  const printed: Buffer[] = []
  child.stdout?.on('data', (bytes: Buffer) => printed.push(bytes))
  child.stdin!.on('error', () => undefined) // the program may not read its input
  child.stdin!.end(message.body)
  return new Promise((resolve) => {
    const ended = (failure: string | null) => resolve({ failure, printed: Buffer.concat(printed) })
    child.on('error', (error) => ended(`before it started (${error.message})`))
    child.on('close', (code, signal) => ended(code === 0 ? null : signal ? `by ${signal}` : `with exit code ${code}`))
  })
}
