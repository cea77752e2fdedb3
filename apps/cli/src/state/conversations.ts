/** `sealpost conversations` lists the groups whose messages are recorded, with the last and the unread messages. */
import { join } from 'node:path'
import type { GroupId } from '@sealpost/sdk'
import type { HistoryMessage } from '@sealpost/sdk/state'
import { Command } from 'commander'
import { labelOf, textOf } from '../messages/incoming-message.ts'
import { escapeName, escapeText } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
import { isRecord, type Profile, readJsonFile, updateJsonFile } from '../profile/profile.ts'
import { callPeer } from '../session/peer-session.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { meshPlaceOf, withStateAt } from './open-state.ts'

/** The file of the newest event that this profile has read in each space. */
const fileOf = ({ folder }: Profile): string => join(folder, 'read.json')

type ReadPositions = Readonly<Record<string, number>>

function isReadPositions(value: unknown): value is ReadPositions {
  return isRecord(value) && Object.values(value).every(Number.isSafeInteger)
}

/** Records that this profile has read the events of a space up to a number. */
export async function markRead({ profile }: Shell, spaceId: string, seq: number): Promise<void> {
  await updateJsonFile(fileOf(profile), isReadPositions, (read = {}) => ({
    ...read,
    [spaceId]: Math.max(seq, read[spaceId] ?? 0),
  }))
}

export interface GroupConversation {
  readonly group: { readonly id: GroupId; readonly name: string }
  readonly last: HistoryMessage | null
  readonly unread: number
}

/**
 * Returns the conversations of this profile's groups, the newest message first. Skips groups without a space or keys.
 */
export async function listConversations(shell: Shell): Promise<GroupConversation[]> {
  const groups = await callPeer(shell, { method: 'groups', params: null })
  const read = (await readJsonFile(fileOf(shell.profile), isReadPositions)) ?? {}
  const place = await meshPlaceOf(shell)
  const found: GroupConversation[] = []
  for (const { id, name } of groups) {
    const options = { readUpTo: read[id] ?? 0 }
    try {
      const { last, unread } = await withStateAt(shell, { ...place, group: id }, (state) => state.conversation(options))
      found.push({ group: { id, name }, last, unread })
    } catch (error) {
      if (!isUnreadable(error)) throw error
    }
  }
  const timeOf = ({ last }: GroupConversation) => last?.atUs ?? 0
  return found.toSorted((a, b) => timeOf(b) - timeOf(a))
}

const UNREADABLE: ReadonlySet<string> = new Set(['space_unknown', 'key_missing', 'before_horizon'])

/** Returns whether the group has no history that this member can read. */
function isUnreadable(error: unknown): boolean {
  const { code = '' } = error as { code?: string }
  return UNREADABLE.has(code)
}

export function conversationsCommand(run: RunAction): Command {
  return new Command('conversations')
    .description(
      'List the groups whose messages are recorded, with the last message and the number of unread messages. "history --group GROUP" reads the messages.',
    )
    .addHelpText('after', examples('sealpost conversations', 'sealpost conversations --json'))
    .action(run(list))
}

async function list(shell: Shell): Promise<void> {
  const { output } = shell
  const contacts = await Contacts.read(shell.profile.contactsFile)
  const all = await listConversations(shell)
  await output.results(
    all.map((conversation) => conversationForPrograms(conversation, contacts)),
    () =>
      output.table(
        ['GROUP', 'UNREAD', 'LAST', 'FROM', 'MESSAGE'],
        all.map((conversation) => rowOf(conversation, contacts)),
      ),
  )
}

function rowOf({ group, last, unread }: GroupConversation, contacts: Contacts): string[] {
  if (!last) return [escapeName(group.name), String(unread), '', '', '']
  const text = escapeText(previewOf(last), '')
  const time = new Date(last.atUs / 1000).toISOString().slice(0, 16)
  return [escapeName(group.name), String(unread), `${time}Z`, escapeName(labelOf(contacts, last.author)), text]
}

const PREVIEW_CHARS = 60

/** Returns the beginning of a message's first line. */
export function previewOf({ body }: Pick<HistoryMessage, 'body'>): string {
  const [line = ''] = (textOf({ body }) ?? `(${body.length} bytes)`).split('\n')
  return line.length > PREVIEW_CHARS ? `${line.slice(0, PREVIEW_CHARS - 1)}…` : line
}

function conversationForPrograms({ group, last, unread }: GroupConversation, contacts: Contacts): object {
  const from = last && {
    author: last.author,
    name: contacts.nameOf(last.author) ?? null,
    verified: contacts.isVerified(last.author),
  }
  return { group, unread, last: last && { ...from, seq: last.seq, sentAtMs: last.sentAtMs, preview: previewOf(last) } }
}
