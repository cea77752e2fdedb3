/** `sealpost group`: peers that are written to at once. A message is sealed and stored once, whatever their number. */
import { PRIORITIES, type Priority } from '@sealpost/protocol'
import { OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { readBody } from '../body.ts'
import { Contacts } from '../contacts.ts'
import { withDeadline } from '../deadline.ts'
import { uploadFile } from '../files.ts'
import { type GroupFacts, groupNamed, type MemberFare } from '../group-calls.ts'
import { labelOf } from '../peer-news.ts'
import { callPeer } from '../peer-session.ts'
import { recipientsOf } from '../recipient.ts'
import { listRosters, MEMBERS, showRoster } from '../roster-view.ts'
import { examples, type Run, type Shell } from '../shell.ts'
import { escapeName } from '../terminal-text.ts'
import { duration, timeOption } from '../words.ts'

const GROUP = ['<GROUP>', 'its name, or its id of 32 hex digits'] as const

export function groupCommand(run: Run): Command {
  return new Command('group')
    .description('write to several peers at once')
    .addCommand(createCommand(run))
    .addCommand(listCommand(run))
    .addCommand(showCommand(run))
    .addCommand(changeCommand(run, 'add', 'take peers in; only who made the group may'))
    .addCommand(changeCommand(run, 'remove', 'take peers out: what is sent from then on they can not open'))
    .addCommand(sendCommand(run))
    .addCommand(deleteCommand(run))
    .addHelpText(
      'after',
      examples('sealpost group create crew bob carol', "sealpost group send crew 'lunch?'", 'sealpost group list'),
    )
}

function createCommand(run: Run): Command {
  return new Command('create')
    .description('make a group of these peers and yourself')
    .argument('<NAME>', 'what it is called')
    .argument(...MEMBERS)
    .addHelpText('after', examples('sealpost group create crew bob carol'))
    .action(
      run(async (shell, _options: object, name: string, words: readonly string[]) => {
        const members = await recipientsOf(shell, words)
        await show(shell, await callPeer(shell, { method: 'createGroup', question: { name, members } }))
      }),
    )
}

function listCommand(run: Run): Command {
  return new Command('list')
    .description('the groups you are in, and those you made')
    .addHelpText('after', examples('sealpost group list', 'sealpost group list --json'))
    .action(
      run(async (shell) => {
        const groups = await callPeer(shell, { method: 'groups', question: null })
        await listRosters(shell, groups)
      }),
    )
}

function showCommand(run: Run): Command {
  return new Command('show')
    .description('who is in a group')
    .argument(...GROUP)
    .addHelpText('after', examples('sealpost group show crew'))
    .action(run(async (shell, _options: object, word: string) => show(shell, await find(shell, word))))
}

function changeCommand(run: Run, verb: 'add' | 'remove', description: string): Command {
  return new Command(verb)
    .description(description)
    .argument(...GROUP)
    .argument(...MEMBERS)
    .addHelpText('after', examples(`sealpost group ${verb} crew dave`))
    .action(
      run(async (shell, _options: object, word: string, words: readonly string[]) => {
        const { id: group } = await find(shell, word)
        const peers = await recipientsOf(shell, words)
        const question = { group, add: [], remove: [], [verb]: peers }
        await show(shell, await callPeer(shell, { method: 'changeGroup', question }))
      }),
    )
}

function deleteCommand(run: Run): Command {
  return new Command('delete')
    .description('end a group for good: nobody can write to it any more; only who made it may')
    .argument(...GROUP)
    .addHelpText('after', examples('sealpost group delete crew'))
    .action(
      run(async (shell, _options: object, word: string) => {
        const { id: group, name } = await find(shell, word)
        await callPeer(shell, { method: 'deleteGroup', question: { group } })
        await shell.output.answer({ deleted: group }, () => `${escapeName(name)} is deleted`)
      }),
    )
}

interface SendOptions {
  readonly file?: string
  readonly keep?: boolean
  readonly priority: Priority
  readonly ttl?: number
  readonly timeout: number
}

function sendCommand(run: Run): Command {
  return new Command('send')
    .description(
      'send a message to every member: TEXT, a file beside it, or stdin; done when the broker has stored it for each',
    )
    .argument(...GROUP)
    .argument('[TEXT]', 'the message; without it and without --file it is read from stdin')
    .option(
      '-f, --file <PATH>',
      'a file that goes with it, of any size; sent again after a cut it goes on where it was',
    )
    .option('--keep', 'keep it in the history of the group, which "sealpost space open --messages" begins')
    .addOption(new Option('--priority <PRIORITY>', 'how urgent').choices(PRIORITIES).default('next'))
    .option('--ttl <TIME>', 'how long the broker keeps it for an absent peer, like 2h or 14d', duration)
    .addOption(timeOption('--timeout <TIME>', 'how long to wait for the broker', '30s'))
    .addHelpText('after', examples("sealpost group send crew 'lunch?'", 'git diff | sealpost group send crew'))
    .action(run(send))
}

async function send(asked: Shell, options: SendOptions, word: string, text: string | undefined): Promise<void> {
  const { timeout, file: path, keep: isKept = false, priority, ttl: ttlSeconds = 0 } = options
  const body = await readBody({ text: path === undefined ? text : (text ?? ''), file: undefined })
  const known = path === undefined ? null : await find(asked, word)
  const file = known && (await uploadFile(asked, path!, { group: known.id }))
  using shell = withDeadline(asked, timeout, `The broker has not stored it for all of them after ${timeout} s. ${KEPT}`)
  const { id: group, name } = await find(shell, word)
  const attachment = file && { attachment: file.text }
  const terms = { priority, ttlSeconds, isKept, ...attachment }
  const question = { group, bodyBase64: Buffer.from(body).toString('base64'), ...terms }
  const fares = await callPeer(shell, { method: 'sendToGroup', question, withinMs: timeout * 1000 })
  await file?.done()
  await tell(shell, { name, fares, bytes: body.length })
}

const KEPT = 'What is left of it leaves with the next command of this profile: do not send it again.'

interface Sent {
  readonly name: string
  readonly fares: readonly MemberFare[]
  readonly bytes: number
}

async function tell({ output, profile }: Shell, { name, fares, bytes }: Sent): Promise<void> {
  const stored = fares.filter(({ code }) => code === null)
  if (output.isJson) await output.answer({ group: name, bytes, members: fares }, () => '')
  else output.note(`stored for ${stored.length} of ${fares.length} in ${escapeName(name)}, ${bytes} bytes`)
  const contacts = await Contacts.read(profile.contactsFile)
  const refused = fares.filter(({ code }) => code !== null)
  for (const { peer, code } of refused) output.warn(`not for ${escapeName(labelOf(contacts, peer))} (${code})`)
  if (refused.length > 0 && stored.length === 0)
    throw new OperatingError(refused[0]!.code!, 'The message was stored for none of them.')
}

async function find(shell: Shell, word: string): Promise<GroupFacts> {
  return groupNamed(await callPeer(shell, { method: 'groups', question: null }), word)
}

const show = (shell: Shell, group: GroupFacts): Promise<void> => showRoster(shell, 'group', group)
