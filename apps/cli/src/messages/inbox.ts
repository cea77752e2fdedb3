/** `sealpost inbox` looks at the waiting messages without taking them. */
import type { MemberEntry, PeerKey } from '@sealpost/sdk'
import { readAttachment } from '@sealpost/sdk/attachments'
import { peekInbox, type WaitingMessage } from '@sealpost/sdk/peek'
import { mailboxRecords, sessionIdentity } from '@sealpost/sdk/sessions'
import { OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { SenderNames } from '../members/member-list.ts'
import { findOwners, type OwnerOf } from '../members/owners.ts'
import { escapeName, escapeText, formatTime, type Output } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
import { callPeer } from '../session/peer-session.ts'
import { parseInteger } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { HTTP_PATIENCE_MS, meshPlaceOf } from '../state/open-state.ts'
import { bodyForPrograms, labelOf, textOf } from './incoming-message.ts'

const SHOWN = 50

export function inboxCommand(run: RunAction): Command {
  return new Command('inbox')
    .description(
      'List the messages that wait for you, without taking them. They stay in the queue, and their attempts are not counted. Works while another command receives messages.',
    )
    .addOption(
      new Option('-n, --limit <N>', 'the maximum number of messages').argParser(parseInteger(1, 100)).default(SHOWN),
    )
    .option('--as <NAME>', 'list the messages to this session of yours instead; it may be running')
    .addHelpText(
      'after',
      examples(
        'sealpost inbox',
        'sealpost inbox --limit 5',
        'sealpost inbox --as builds',
        "sealpost inbox --json | jq -r '.text'",
      ),
    )
    .action(run(inbox))
}

interface InboxOptions {
  readonly limit: number
  readonly as?: string
}

async function inbox(shell: Shell, { limit, as }: InboxOptions): Promise<void> {
  const { place, former } = as === undefined ? await memberMailbox(shell) : await sessionMailbox(shell, as)
  const records = await mailboxRecords(shell.profile.folder, as)
  const options = { records, limit, ...former, signal: shell.signal, patienceMs: HTTP_PATIENCE_MS }
  const { messages, total } = await peekInbox(place, options).catch(explain)
  const contacts = await Contacts.read(shell.profile.contactsFile)
  const senders = messages.map(({ sender }) => sender)
  const ownerOf = await findOwners(shell, contacts, senders)
  await learnNames(shell, contacts, new Set(senders.map((sender) => ownerOf(sender).user)))
  const names = { contacts, ownerOf }
  const { output } = shell
  await output.results(
    messages.map((message) => forPrograms(message, names)),
    () => forPeople(messages, { ...names, output }),
  )
  if (!output.isJson)
    output.info(
      total > messages.length
        ? `${messages.length} of ${total} messages`
        : total === 1
          ? '1 message'
          : `${total} messages`,
    )
}

async function memberMailbox(shell: Shell) {
  const { formerBoxKeys, formerKeys } = await shell.profile.readKeys()
  return { place: await meshPlaceOf(shell), former: { formerBoxKeys, formerKeys } }
}

async function sessionMailbox(shell: Shell, label: string) {
  const { profile } = shell
  const place = await meshPlaceOf(shell)
  const { formerKeys = [] } = await profile.readKeys()
  const passphrase = (await profile.findPassphrase()) ?? undefined
  const member = { identity: place.identity, formerKeys }
  const identity = await sessionIdentity({ folder: profile.folder, member, label, passphrase })
  if (identity) return { place: { ...place, identity }, former: {} }
  throw new OperatingError(
    'session_unknown',
    `This profile has no session ${escapeName(label)} on this machine. "sealpost sessions" lists your sessions.`,
  )
}

function explain(error: Error & { code?: string }): never {
  if (error.code !== 'not_found') throw error
  throw new OperatingError('broker_too_old', "The broker is an older version, which can't list waiting messages.")
}

/** Pins the names of senders, like the commands that receive their messages. */
async function learnNames(shell: Shell, contacts: Contacts, users: ReadonlySet<PeerKey>): Promise<void> {
  let listed: Promise<readonly MemberEntry[]> | undefined
  const members = () => (listed ??= callPeer(shell, { method: 'members', params: null }))
  const names = new SenderNames({ contacts, peer: { members } }, shell.output)
  for (const user of users) await names.learn(user)
}

interface Names {
  readonly contacts: Contacts
  readonly ownerOf: OwnerOf
}

function forPrograms({ content, ...message }: WaitingMessage, { contacts, ownerOf }: Names): object {
  const { user: person, deviceLabel: device } = ownerOf(message.sender)
  const facts = { ...message, name: contacts.nameOf(person) ?? null, person, device }
  if (!content) return { ...facts, isReadable: false }
  const { body, attachment, ...rest } = content
  const file = attachment === null ? null : readAttachment(attachment)
  return {
    ...{ ...facts, isReadable: true, ...rest },
    file: file && { name: file.name, type: file.type, bytes: file.bytes },
    ...bodyForPrograms({ body }),
  }
}

function forPeople(
  messages: readonly WaitingMessage[],
  { contacts, ownerOf, output }: Names & { readonly output: Output },
): string {
  const rows = messages.map((message) => {
    const { user, deviceLabel } = ownerOf(message.sender)
    const from = escapeName(labelOf(contacts, user, deviceLabel))
    const { enqueuedAtMs, priority, attempts, bytes } = message
    return [formatTime(enqueuedAtMs), from, priority, String(attempts), sizeOf(bytes), previewOf(message)]
  })
  return output.table(['TIME (UTC)', 'FROM', 'PRIORITY', 'ATTEMPTS', 'SIZE', 'TEXT'], rows)
}

const sizeOf = (bytes: number): string => (bytes < 1024 ? `${bytes} B` : `${Math.round(bytes / 1024)} kB`)

const PREVIEW_CHARACTERS = 60

/** Returns the beginning of the text on one line, with what the message is. */
function previewOf({ content, isHeld }: WaitingMessage): string {
  const held = isHeld ? '(being handled) ' : ''
  if (!content) return `${held}(can't be opened here)`
  const text = textOf(content)
  const line = escapeText(text ?? '(binary data)', '').replace(/\s+/g, ' ')
  const characters = [...line]
  const short = characters.length > PREVIEW_CHARACTERS ? `${characters.slice(0, PREVIEW_CHARACTERS).join('')}…` : line
  const marks = [content.isRequest && '(asks)', content.group && '(group)', content.attachment && '(file)']
  return [held.trim(), ...marks, short].filter(Boolean).join(' ')
}
