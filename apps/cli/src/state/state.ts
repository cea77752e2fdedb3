/**
 * `sealpost state` and `sealpost history` show and change a mesh's or group's values and show their history, which the
 * broker can't read.
 */
import type { GroupId } from '@sealpost/sdk'
import type { HistoryEvent, HistoryMessage, SpaceOptions, State, StateEntry } from '@sealpost/sdk/state'
import { isHex, OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { readBody } from '../messages/content.ts'
import { unsavedOutcome } from '../messages/files.ts'
import { bodyForPrograms, fileForPrograms, labelOf, textOf } from '../messages/incoming-message.ts'
import { escapeName, escapeText, type Paint } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
import { findGroup } from '../session/peer-calls.ts'
import { callPeer } from '../session/peer-session.ts'
import { parseInteger, parseTimestamp } from '../settings.ts'
import { abortable, examples, type RunAction, type Shell } from '../shell.ts'
import { markRead } from './conversations.ts'
import { meshPlaceOf, withStateAt } from './open-state.ts'

const IF_REVISION = [
  '--if-revision <N>',
  'change the value only if its current revision is N; with 0, only if the key has no value',
  parseInteger(0, Number.MAX_SAFE_INTEGER),
] as const
const KEY = ['<KEY>', 'the key of the value, 1 to 512 bytes'] as const

export function stateCommand(run: RunAction): Command {
  return new Command('state')
    .description('Read and change the shared values of a mesh or a group')
    .addCommand(setCommand(run))
    .addCommand(getCommand(run))
    .addCommand(deleteCommand(run))
    .addCommand(listCommand(run))
    .addCommand(watchCommand(run))
    .addCommand(replayCommand(run))
    .addHelpText(
      'after',
      examples('sealpost state set topic tea', 'sealpost state get topic', 'sealpost state watch --json'),
    )
}

interface SetOptions {
  readonly group?: string
  readonly file?: string
  readonly ifRevision?: number
}

function setCommand(run: RunAction): Command {
  return new Command('set')
    .description(
      'Set the value of a key to VALUE, the contents of a file, or stdin. The command succeeds when the broker has stored the value.',
    )
    .argument(...KEY)
    .argument('[VALUE]', 'the value; if VALUE and --file are omitted, the value is read from stdin')
    .option(...GROUP_OPTION)
    .option('-f, --file <PATH>', 'read the value from this file; use - for stdin')
    .option(...IF_REVISION)
    .addHelpText('after', examples('sealpost state set topic tea', 'sealpost state set plan --file plan.json -g crew'))
    .action(
      run(async (shell, { group, file, ifRevision }: SetOptions, key: string, value: string | undefined) => {
        const body = await readBody({ text: value, file })
        const terms = ifRevision === undefined ? {} : { ifRevision }
        await tellWritten(shell, key, await withState(shell, group, (state) => state.set(key, body, terms)))
      }),
    )
}

function deleteCommand(run: RunAction): Command {
  return new Command('delete')
    .description('Delete the value of a key')
    .argument(...KEY)
    .option(...GROUP_OPTION)
    .option(...IF_REVISION)
    .addHelpText('after', examples('sealpost state delete topic'))
    .action(
      run(async (shell, { group, ifRevision }: SetOptions, key: string) => {
        const terms = ifRevision === undefined ? {} : { ifRevision }
        await tellWritten(shell, key, await withState(shell, group, (state) => state.delete(key, terms)))
      }),
    )
}

async function tellWritten(
  { output }: Shell,
  key: string,
  { revision, seq, atUs }: Awaited<ReturnType<State['set']>>,
): Promise<void> {
  const at = atUs === null ? null : instantText(atUs)
  await output.result({ key, revision, seq, at }, () => `${escapeName(key)} is at revision ${revision}`)
}

function getCommand(run: RunAction): Command {
  return new Command('get')
    .description('Print the value of a key, without escaping it')
    .argument(...KEY)
    .option(...GROUP_OPTION)
    .addHelpText('after', examples('sealpost state get topic', 'sealpost state get plan --group crew > plan.json'))
    .action(
      run(async (shell, { group }: { group?: string }, key: string) => {
        const entry = await withState(shell, group, (state) => state.get(key))
        if (!entry) throw new OperatingError('key_unknown', `The key ${escapeName(key)} has no value.`)
        const contacts = await Contacts.read(shell.profile.contactsFile)
        await shell.output.result(eventForPrograms(entry, contacts), () => valueText(entry.value))
      }),
    )
}

function listCommand(run: RunAction): Command {
  return new Command('list')
    .description('List all values')
    .option(...GROUP_OPTION)
    .addHelpText('after', examples('sealpost state list', 'sealpost state list --group crew --json'))
    .action(
      run((shell, { group }: { group?: string }) => withState(shell, group, (state) => showAll(shell, state.list()))),
    )
}

function replayCommand(run: RunAction): Command {
  return new Command('replay')
    .description('List all values as they were at a given time')
    .requiredOption('--at <TIME>', 'a time such as 2026-11-22T14:03Z, or an age such as 2h', parseTimestamp)
    .option(...GROUP_OPTION)
    .addHelpText(
      'after',
      examples('sealpost state replay --at 2h', 'sealpost state replay --at 2026-11-22T14:03:00Z --json'),
    )
    .action(
      run((shell, { group, at }: { group?: string; at: { us: number } }) =>
        withState(shell, group, (state) => showAll(shell, state.replay({ at }))),
      ),
    )
}

/** Prints all entries: as a table or, with `--json`, each as it arrives. */
async function showAll(shell: Shell, entries: AsyncIterable<StateEntry>): Promise<void> {
  const { output } = shell
  const contacts = await Contacts.read(shell.profile.contactsFile)
  const rows: string[][] = []
  for await (const entry of entries) {
    shell.signal.throwIfAborted()
    if (output.isJson) await output.result(eventForPrograms(entry, contacts), () => '')
    else rows.push(rowOf(entry, contacts))
  }
  if (!output.isJson) await output.results([], () => output.table(['key', 'value', 'revision', 'by', 'at'], rows))
}

function rowOf({ key, value, revision, author, atUs }: StateEntry, contacts: Contacts): string[] {
  const [text = ''] = valueText(value).split('\n')
  const short = text.length > 60 ? `${text.slice(0, 59)}…` : text
  return [escapeName(key), short, String(revision), escapeName(labelOf(contacts, author)), instantText(atUs)]
}

interface WatchOptions {
  readonly group?: string
  readonly after?: number
  readonly count?: number
}

function watchCommand(run: RunAction): Command {
  return new Command('watch')
    .description(
      "Print every change as it happens, until Ctrl-C. While it runs, the command also sends the space's keys to new members.",
    )
    .option(...GROUP_OPTION)
    .option('--after <N>', 'start after event number N', parseInteger(0, Number.MAX_SAFE_INTEGER))
    .option('-n, --count <N>', 'exit after N events', parseInteger(1, 1_000_000_000))
    .addHelpText('after', examples('sealpost state watch', "sealpost state watch --json | jq -r '.key'"))
    .action(
      run((shell, { group, after, count = Infinity }: WatchOptions) =>
        withState(shell, group, async (state) => {
          shell.output.info('watching; press Ctrl-C to end')
          await showEvents(shell, state.watch({ signal: shell.signal, ...(after !== undefined && { after }) }), count)
        }),
      ),
    )
}

/** Prints events as they arrive. Returns the highest event number. */
async function showEvents(shell: Shell, events: AsyncGenerator<HistoryEvent>, count = Infinity): Promise<number> {
  const { output } = shell
  const contacts = await Contacts.read(shell.profile.contactsFile)
  let last = 0
  for (let shown = 0; shown < count; shown++) {
    const { value: event, done } = await abortable(events.next(), shell.signal)
    if (done) return last
    last = Math.max(last, event.seq)
    await output.result(eventForPrograms(event, contacts), () => eventForPeople(event, contacts, output.paint))
  }
  await events.return(undefined)
  return last
}

interface HistoryOptions {
  readonly group?: string
  readonly from?: { us: number }
  readonly to?: { us: number }
  readonly after?: number
  readonly before?: number
  readonly newest?: boolean
  readonly files?: boolean
  readonly limit?: number
}

export function historyCommand(run: RunAction): Command {
  return new Command('history')
    .description(
      'Print the recorded changes and messages of a mesh or a group, oldest first. Marks them as read for "conversations".',
    )
    .option(...GROUP_OPTION)
    .option('--from <TIME>', 'start at a time such as 2026-11-22T14:03Z, or an age such as 2h', parseTimestamp)
    .option('--to <TIME>', 'end before a time such as 2026-11-22T14:03Z, or an age such as 2h', parseTimestamp)
    .option('--after <N>', 'start after event number N', parseInteger(0, Number.MAX_SAFE_INTEGER))
    .addOption(new Option('--newest', 'print the newest events first').conflicts(['from', 'to', 'after']))
    .addOption(
      new Option('--before <N>', 'print the events before event number N, newest first')
        .argParser(parseInteger(1, Number.MAX_SAFE_INTEGER))
        .conflicts(['from', 'to', 'after']),
    )
    .addOption(
      new Option('--files', 'print only the messages with files, newest first').conflicts(['from', 'to', 'after']),
    )
    .option('--limit <N>', 'exit after N events', parseInteger(1, 1_000_000_000))
    .addHelpText(
      'after',
      examples(
        'sealpost history --from 2h',
        'sealpost history --group crew --from 2026-11-22 --json',
        'sealpost history --group crew --newest --limit 20',
        'sealpost history --group crew --files',
      ),
    )
    .action(run(history))
}

function history(shell: Shell, { group, newest, files, ...bounds }: HistoryOptions): Promise<void> {
  return withState(shell, group, async (state) => {
    const options = { ...bounds, signal: shell.signal }
    const isBackward = newest || files || bounds.before !== undefined
    const events = files ? state.files(options) : isBackward ? state.recent(options) : state.history(options)
    const last = await showEvents(shell, events, bounds.limit)
    if (last > 0) await markRead(shell, state.spaceId, last)
  })
}

const INDENT = '    '

const fileOf = (message: HistoryMessage) => fileForPrograms(message, unsavedOutcome(message))

function fileText(event: HistoryMessage): string {
  const file = fileOf(event)
  return file ? `\n${INDENT}[${escapeName(file.name ?? 'a file')}, ${file.bytes ?? 'unknown'} bytes]` : ''
}

/** Formats an event as JSON. `at` is in UTC with microseconds, values are `text` or `bodyBase64`. */
export function eventForPrograms(event: HistoryEvent, contacts: Contacts): object {
  const { type, seq, author, sentAtMs } = event
  const who = { author, name: contacts.nameOf(author) ?? null, verified: contacts.isVerified(author) }
  const common = { type, seq, at: instantText(event.atUs), ...who, sentAtMs }
  switch (event.type) {
    case 'set':
      return { ...common, key: event.key, revision: event.revision, ...bodyForPrograms({ body: event.value }) }
    case 'deleted':
      return { ...common, key: event.key, revision: event.revision }
    case 'message':
      return { ...common, thread: event.thread, file: fileOf(event), ...bodyForPrograms(event) }
    case 'sealed':
      return { ...common, keyHash: event.keyHash }
  }
}

/** Formats an event as `14:03:07 bob  topic = tea`. */
function eventForPeople(event: HistoryEvent, contacts: Contacts, paint: Paint): string {
  const time = new Date(event.atUs / 1000).toTimeString().slice(0, 8)
  const who = paint.bold(escapeName(labelOf(contacts, event.author)))
  return `${paint.dim(time)} ${who}  ${whatOf(event, paint)}`
}

function whatOf(event: HistoryEvent, paint: Paint): string {
  switch (event.type) {
    case 'set':
      return `${escapeName(event.key)} ${paint.dim('=')} ${valueText(event.value)}`
    case 'deleted':
      return paint.dim(`${escapeName(event.key)} was deleted`)
    case 'message':
      return valueText(event.body) + paint.dim(fileText(event))
    case 'sealed':
      return paint.dim('(sealed before you joined)')
  }
}

function valueText(body: Uint8Array): string {
  const text = textOf({ body })
  return text === null ? `(${body.length} bytes of binary data; read them with --json)` : escapeText(text, INDENT)
}

export function instantText(us: number): string {
  const ms = Math.floor(us / 1000)
  return `${new Date(ms).toISOString().slice(0, -1)}${String(us - ms * 1000).padStart(3, '0')}Z`
}

export const GROUP_OPTION = ['-g, --group <GROUP>', 'use this group (name or id) instead of the mesh'] as const

/** Returns a mesh's or group's space. @throws OperatingError `unknown_group`, and the errors of `meshPlaceOf` */
export async function spacePlaceOf(shell: Shell, group: string | undefined): Promise<SpaceOptions> {
  return { ...(await meshPlaceOf(shell)), ...(group !== undefined && { group: await groupIdOf(shell, group) }) }
}

/** Opens a mesh's or group's state for a call. @throws the errors of `spacePlaceOf` and `withStateAt` */
export async function withState<T>(
  shell: Shell,
  group: string | undefined,
  use: (state: State) => Promise<T>,
): Promise<T> {
  return withStateAt(shell, await spacePlaceOf(shell, group), use)
}

async function groupIdOf(shell: Shell, word: string): Promise<GroupId> {
  if (isHex(word, 16)) return word as string as GroupId
  return findGroup(await callPeer(shell, { method: 'groups', params: null }), word).id
}
