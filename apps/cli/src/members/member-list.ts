/** The commands that groups and pools have alike: who is in, and who comes in or leaves. */
import type { PeerKey } from '@sealpost/sdk'
import { Command } from 'commander'
import { Contacts } from '../profile/contacts.ts'
import type { MemberListChange, MemberListFacts } from '../session/group-calls.ts'
import { labelOf } from '../session/peer-events.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { escapeName } from '../terminal-text.ts'
import { resolveRecipients } from './peer-names.ts'

type Roster = MemberListFacts<string>

/** What has a roster, the words of its commands, and its calls of the profile's peer. */
export interface MemberListSpec<Facts extends Roster = Roster> {
  readonly noun: 'group' | 'pool'
  /** How one of them is named on the command line, and the line of the help about it. */
  readonly argument: readonly [name: string, description: string]
  /** A name for the examples. */
  readonly example: string
  readonly descriptions: Readonly<Record<'create' | 'list' | 'add' | 'remove', string>>
  list(shell: Shell): Promise<readonly Facts[]>
  /** @throws OperatingError when none or several are meant */
  named(all: readonly Facts[], word: string): Facts
  create(shell: Shell, params: { readonly name: string; readonly members: readonly PeerKey[] }): Promise<Facts>
  change(shell: Shell, roster: Facts, change: MemberListChange): Promise<Facts>
}

const MEMBERS = ['<MEMBER...>', 'names, fingerprints, or keys of 64 hex digits'] as const

/** `create`, `list`, `show`, `add` and `remove`. */
export function memberListCommands(run: RunAction, kind: MemberListSpec): Command[] {
  return [
    createCommand(run, kind),
    listCommand(run, kind),
    showCommand(run, kind),
    changeCommand(run, kind, 'add'),
    changeCommand(run, kind, 'remove'),
  ]
}

export async function findMemberList<Facts extends Roster>(
  shell: Shell,
  kind: MemberListSpec<Facts>,
  word: string,
): Promise<Facts> {
  return kind.named(await kind.list(shell), word)
}

function createCommand(run: RunAction, kind: MemberListSpec): Command {
  const { noun, example, descriptions } = kind
  return new Command('create')
    .description(descriptions.create)
    .argument('<NAME>', 'what it is called')
    .argument(...MEMBERS)
    .addHelpText('after', examples(`sealpost ${noun} create ${example} bob carol`))
    .action(
      run(async (shell, _options: object, name: string, words: readonly string[]) => {
        const members = await resolveRecipients(shell, words)
        await show(shell, noun, await kind.create(shell, { name, members }))
      }),
    )
}

function listCommand(run: RunAction, kind: MemberListSpec): Command {
  const { noun, descriptions } = kind
  return new Command('list')
    .description(descriptions.list)
    .addHelpText('after', examples(`sealpost ${noun} list`, `sealpost ${noun} list --json`))
    .action(run(async (shell) => list(shell, await kind.list(shell))))
}

function showCommand(run: RunAction, kind: MemberListSpec): Command {
  const { noun, argument, example } = kind
  return new Command('show')
    .description(`who is in a ${noun}`)
    .argument(...argument)
    .addHelpText('after', examples(`sealpost ${noun} show ${example}`))
    .action(
      run(async (shell, _options: object, word: string) => show(shell, noun, await findMemberList(shell, kind, word))),
    )
}

function changeCommand(run: RunAction, kind: MemberListSpec, verb: 'add' | 'remove'): Command {
  const { noun, argument, example, descriptions } = kind
  return new Command(verb)
    .description(descriptions[verb])
    .argument(...argument)
    .argument(...MEMBERS)
    .addHelpText('after', examples(`sealpost ${noun} ${verb} ${example} dave`))
    .action(
      run(async (shell, _options: object, word: string, words: readonly string[]) => {
        const roster = await findMemberList(shell, kind, word)
        const change = { add: [], remove: [], [verb]: await resolveRecipients(shell, words) }
        await show(shell, noun, await kind.change(shell, roster, change))
      }),
    )
}

/** A row for each. */
async function list({ output, profile }: Shell, all: readonly Roster[]): Promise<void> {
  const contacts = await Contacts.read(profile.contactsFile)
  const rowOf = ({ name, members, owner, id }: Roster) => [
    escapeName(name),
    String(members.length),
    escapeName(labelOf(contacts, owner)),
    id,
  ]
  await output.results(all, () => output.table(['NAME', 'MEMBERS', 'OWNER', 'ID'], all.map(rowOf)))
}

async function show({ output, profile }: Shell, noun: string, roster: Roster): Promise<void> {
  const contacts = await Contacts.read(profile.contactsFile)
  const own = (await profile.readKeys()).identity.signing.publicKey
  const label = (key: PeerKey) => (key === own ? 'you' : escapeName(labelOf(contacts, key)))
  await output.result(roster, () =>
    output.facts([
      [noun, escapeName(roster.name)],
      ['id', roster.id],
      ['owner', label(roster.owner)],
      ['members', roster.members.map(label).join(', ')],
    ]),
  )
}
