/** `sealpost listen`: takes messages as they come, prints each or runs a program for it, and settles what went well. */
import { spawn } from 'node:child_process'
import type { Message } from '@sealpost/sdk'
import { attachmentOf } from '@sealpost/sdk/attachments'
import { OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { abortable } from '../deadline.ts'
import { saveFile } from '../files.ts'
import { messageForExec, messageForPeople, messageForPrograms } from '../incoming-message.ts'
import { labelOf } from '../peer-news.ts'
import { openSession, type PeerSession } from '../peer-session.ts'
import { poolNamed } from '../pool-calls.ts'
import { SenderNames } from '../sender-names.ts'
import { withoutSecrets } from '../settings.ts'
import { examples, type Run, type Shell } from '../shell.ts'
import { escapeName } from '../terminal-text.ts'
import { whole } from '../words.ts'

interface ListenOptions {
  readonly exec?: string
  readonly reply?: boolean
  readonly count?: number
  readonly pool?: readonly string[]
  readonly files?: string
  readonly env?: readonly string[]
}

const RETRY_BASE_MS = 1_000
const RETRY_MAX_MS = 300_000

export function listenCommand(run: Run): Command {
  return new Command('listen')
    .description('take messages as they come, one after the other, until Ctrl-C')
    .option(
      '-e, --exec <CMD>',
      'run CMD in a shell for each message: the body is its stdin, SEALPOST_FROM, _FROM_NAME, _FROM_DEVICE, _ENVELOPE_ID, _PRIORITY, _ATTEMPT, _SENT_AT_MS, _ENQUEUED_AT_MS, _GROUP, _POOL, _FILE and _IS_REQUEST its environment, beside yours without its secrets; with an exit code other than 0 the message comes again later',
    )
    .option(
      '--env <NAME...>',
      'pass these variables on to CMD although their names are those of tokens, keys or passwords',
    )
    .option('--reply', 'what CMD prints for a request is sent back as its answer')
    .option('--pool <POOL...>', 'take work of these pools as well, one message at a time of each: names or ids')
    .option('--files <FOLDER>', 'save files that come with messages there, each under a name of its own')
    .option('-n, --count <N>', 'end after N messages', whole(1, 1_000_000_000))
    .addHelpText(
      'after',
      examples(
        'sealpost listen',
        "sealpost listen --json | jq -r '.text'",
        'sealpost listen --count 1',
        'sealpost listen --files ~/Downloads',
        `sealpost listen --exec 'notify-send "$SEALPOST_FROM_NAME" "$(cat)"'`,
        "sealpost listen --exec './answer.sh' --reply",
        "sealpost listen --pool reviewers --exec './review.sh'",
      ),
    )
    .action(run(listen))
}

async function listen(
  shell: Shell,
  { exec, reply = false, count = Infinity, pool = [], files, env = [] }: ListenOptions,
): Promise<void> {
  if (reply && exec === undefined) throw new OperatingError('usage', '--reply sends what the CMD of --exec prints.')
  // No more than are wanted, so that the others stay with the broker.
  await using session = await openSession(shell, count === Infinity ? {} : { credit: Math.min(count, 512) })
  await abortable(joinPools(session, pool), shell.signal)
  shell.output.note(`listening as ${session.membership.name || session.peer.key}; Ctrl-C ends it`)
  const names = new SenderNames(session, shell.output)
  const messages = session.peer[Symbol.asyncIterator]()
  for (let done = 0; done < count; ) {
    const { value: message } = await abortable(messages.next(), shell.signal)
    if (message === undefined) return session.failed
    await names.learn(message.person)
    const path = await saved(message, { shell, files })
    if (await take(message, { shell, session, exec, env, isReplying: reply, path })) done += 1
  }
}

async function joinPools({ peer }: PeerSession, words: readonly string[]): Promise<void> {
  if (words.length === 0) return
  const pools = await peer.pools.list()
  for (const word of words) await poolNamed(pools, word).join()
}

/** Of a file that is not there any more, or that is not the one that was sent, the message is all that comes. */
async function saved(
  message: Message,
  { shell, files }: { shell: Shell; files: string | undefined },
): Promise<string | undefined> {
  const file = attachmentOf(message)
  if (!file || files === undefined) return undefined
  try {
    return await saveFile(shell, file, files)
  } catch (error) {
    const { code, message: sentence } = error as { code?: string; message: string }
    if (!code || !LOST.includes(code)) throw error
    shell.output.warn(`${escapeName(file.name)} was not saved: ${sentence} (${code})`)
    return undefined
  }
}

const LOST: readonly string[] = ['attachment_unknown', 'attachment_changed', 'attachment_truncated', 'chunk_missing']

interface Taking {
  readonly shell: Shell
  readonly session: PeerSession
  readonly exec: string | undefined
  /** Secrets to be passed on to it, by their names. */
  readonly env: readonly string[]
  readonly isReplying: boolean
  /** Where its file was saved. */
  readonly path: string | undefined
}

/** @returns whether it was settled */
async function take(message: Message, taking: Taking): Promise<boolean> {
  const { shell, session, exec, isReplying, path } = taking
  const { output } = shell
  if (exec === undefined) {
    const { contacts } = session
    const forPeople = () => messageForPeople(message, contacts, output.paint, path)
    await output.answer(messageForPrograms(message, contacts, path), forPeople)
    message.settle()
    return true
  }
  const isAnswered = isReplying && message.isRequest
  const { failure, printed } = await execute(exec, message, { ...taking, isReplying: isAnswered })
  if (failure === null) {
    if (isAnswered) await message.reply(printed, { isAutomatic: true })
    message.settle()
    return true
  }
  const afterMs = Math.min(RETRY_MAX_MS, RETRY_BASE_MS * 2 ** Math.min(message.attempt - 1, 16))
  message.retry(afterMs)
  output.warn(
    `${labelOf(session.contacts, message.sender)}: the command ended ${failure}; again in ${afterMs / 1000} s`,
  )
  return false
}

interface Executed {
  /** How it failed, or null. */
  readonly failure: string | null
  /** Of an answer; otherwise it is on our own stdout. */
  readonly printed: Uint8Array
}

function execute(command: string, message: Message, taking: Taking): Promise<Executed> {
  const { shell, session, env, isReplying, path } = taking
  const child = spawn(command, {
    shell: true,
    stdio: ['pipe', isReplying ? 'pipe' : 'inherit', 'inherit'],
    env: { ...withoutSecrets(shell.settings.environment, env), ...messageForExec(message, session.contacts, path) },
  })
  const printed: Buffer[] = []
  child.stdout?.on('data', (bytes: Buffer) => printed.push(bytes))
  child.stdin!.on('error', () => undefined) // it need not read what it is given
  child.stdin!.end(message.body)
  return new Promise((resolve) => {
    const ended = (failure: string | null) => resolve({ failure, printed: Buffer.concat(printed) })
    child.on('error', (error) => ended(`before it began (${error.message})`))
    child.on('close', (code, signal) => ended(code === 0 ? null : signal ? `by ${signal}` : `with exit code ${code}`))
  })
}
