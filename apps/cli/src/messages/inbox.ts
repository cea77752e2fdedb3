/** `sealpost inbox` looks at the waiting messages without taking them. */
import { readAttachment } from '@sealpost/sdk/attachments'
import { peekInbox, type WaitingMessage } from '@sealpost/sdk/peek'
import { OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { escapeName, escapeText, formatTime, type Output } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
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
    .addHelpText(
      'after',
      examples('sealpost inbox', 'sealpost inbox --limit 5', "sealpost inbox --json | jq -r '.text'"),
    )
    .action(run(inbox))
}

async function inbox(shell: Shell, { limit }: { readonly limit: number }): Promise<void> {
  const { formerBoxKeys, formerKeys } = await shell.profile.readKeys()
  const options = { limit, formerBoxKeys, formerKeys, signal: shell.signal, patienceMs: HTTP_PATIENCE_MS }
  const { messages, total } = await peekInbox(await meshPlaceOf(shell), options).catch(explain)
  const contacts = await Contacts.read(shell.profile.contactsFile)
  const { output } = shell
  await output.results(
    messages.map((message) => forPrograms(message, contacts)),
    () => forPeople(messages, { contacts, output }),
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

function explain(error: Error & { code?: string }): never {
  if (error.code !== 'not_found') throw error
  throw new OperatingError('broker_too_old', "The broker is an older version, which can't list waiting messages.")
}

function forPrograms({ content, ...facts }: WaitingMessage, contacts: Contacts): object {
  const name = contacts.nameOf(facts.sender) ?? null
  if (!content) return { ...facts, name, isReadable: false }
  const { body, attachment, ...rest } = content
  const file = attachment === null ? null : readAttachment(attachment)
  return {
    ...{ ...facts, name, isReadable: true, ...rest },
    file: file && { name: file.name, type: file.type, bytes: file.bytes },
    ...bodyForPrograms({ body }),
  }
}

function forPeople(
  messages: readonly WaitingMessage[],
  { contacts, output }: { readonly contacts: Contacts; readonly output: Output },
): string {
  const rows = messages.map((message) => [
    formatTime(message.enqueuedAtMs),
    escapeName(labelOf(contacts, message.sender)),
    message.priority,
    String(message.attempts),
    sizeOf(message.bytes),
    previewOf(message),
  ])
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
