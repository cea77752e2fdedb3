/** Resolves recipients named on the command line, and defines the commands that groups and pools share. */

import { fingerprint, readFingerprint } from '@sealpost/identity'
import type { MemberEntry, PeerKey } from '@sealpost/sdk'
import { type Millis, OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { labelOf } from '../messages/incoming-message.ts'
import { escapeName, type Output } from '../output.ts'
import { Contacts, isPeerKey, isUsableName, keyChanged } from '../profile/contacts.ts'
import { explainRecovered } from '../profile/recovery-checks.ts'
import type { MemberListChange, MemberListFacts } from '../session/peer-calls.ts'
import { callPeer, type PeerSession } from '../session/peer-session.ts'
import { abortable, examples, type RunAction, type Shell } from '../shell.ts'
import { typedName, unknownName } from './names.ts'

/**
 * Returns the key of an argument: a fingerprint, a pinned name, `PERSON/LABEL` for a device, or another name, which is
 * looked up within `withinMs` and pinned.
 * @throws OperatingError `name_unknown`, `name_unusable`, `unknown_device`, and the errors of `callPeer`
 */
export async function resolveRecipient(shell: Shell, text: string, withinMs?: Millis): Promise<PeerKey> {
  if (isPeerKey(text)) return text
  const contacts = await Contacts.read(shell.profile.contactsFile)
  const print = readFingerprint(text)
  if (print) return contacts.keyByFingerprint(print) ?? (await keyByFingerprint(shell, print, withinMs))
  const word = typedName(text)
  if (word === '') throw new OperatingError('name_unknown', 'The name of the recipient is empty.')
  if (word.includes(','))
    throw new OperatingError('usage', `${escapeName(word)} is not one peer. Name a single peer here.`)
  const pinned = contacts.keyOf(word)
  if (pinned) return pinned
  if (word.includes('/')) return await resolveDevice(shell, word, withinMs)
  const key = await lookUp(shell, word, withinMs)
  await contacts.pin(word, key)
  shell.output.info(
    `pinned the key of ${escapeName(word)}: ${fingerprint(key)}. Compare the fingerprint with them once, then run: sealpost peers --verify '${escapeName(word)}' FINGERPRINT`,
  )
  return key
}

/** Finds a key in the directory by its fingerprint, which proves it. */
async function keyByFingerprint(shell: Shell, print: string, withinMs?: Millis): Promise<PeerKey> {
  const found = (await members(shell, withinMs)).find(({ peer }) => fingerprint(peer) === print)
  if (found) return found.peer
  throw new OperatingError('name_unknown', `This mesh has no member with the fingerprint ${print}.`)
}

/** Resolves `PERSON/LABEL` to the device that this user has signed. */
async function resolveDevice(shell: Shell, word: string, withinMs?: Millis): Promise<PeerKey> {
  const at = word.lastIndexOf('/')
  const person = await resolveRecipient(shell, word.slice(0, at), withinMs)
  const devices = await callPeer(shell, {
    method: 'devices',
    params: person,
    ...(withinMs === undefined ? {} : { withinMs }),
  })
  const found = devices.find(({ label }) => label === word.slice(at + 1))
  if (found) return found.key
  throw unknownName('unknown_device', `There is no session or device ${escapeName(word)}.`, {
    word,
    names: devices.map(({ label }) => word.slice(0, at + 1) + label),
  })
}

async function resolveRecipients(shell: Shell, words: readonly string[]): Promise<PeerKey[]> {
  const keys: PeerKey[] = []
  for (const word of words) keys.push(await resolveRecipient(shell, word))
  return keys
}

/** Explains an unknown recipient, if its name now belongs to another key. @throws OperatingError `key_changed`, `key_recovered` */
export async function explainUnknown(shell: Shell, word: string): Promise<void> {
  const contacts = await Contacts.read(shell.profile.contactsFile)
  const name = typedName(word)
  const pinned = contacts.keyOf(name)
  if (pinned) await explainRecovered(shell, name, pinned)
  const offered = pinned && (await members(shell)).find((member) => member.name === name)?.peer
  if (pinned && offered && offered !== pinned)
    throw keyChanged(name, { pinned, offered, wasVerified: contacts.isVerified(pinned) })
}

/** Finds the key of a name in the directory. @throws OperatingError `name_unknown` */
async function lookUp(shell: Shell, word: string, withinMs?: Millis): Promise<PeerKey> {
  const all = await members(shell, withinMs)
  const found = all.find(({ name }) => name === word)
  if (found) return found.peer
  throw unknownMember(word, all)
}

export const unknownMember = (word: string, members: readonly MemberEntry[]): OperatingError =>
  unknownName('name_unknown', `This mesh has no member named ${escapeName(word)}.`, {
    word,
    names: members.map(({ name }) => name),
  })

function members(shell: Shell, withinMs?: Millis): Promise<readonly MemberEntry[]> {
  const patience = withinMs === undefined ? {} : { withinMs }
  return callPeer(shell, { method: 'members', params: null, ...patience })
}

const ANSWER_WITHIN_MS = 10_000

/** The contacts of a profile, and a peer that knows the members of the mesh. */
interface NameSources {
  readonly contacts: Contacts
  readonly peer: Pick<PeerSession['peer'], 'members'>
}

export class SenderNames {
  readonly #session: NameSources
  readonly #output: Output
  /** Keys that were looked up, once each, because the directory may lack a name. */
  readonly #asked = new Set<PeerKey>()

  constructor(session: NameSources, output: Output) {
    this.#session = session
    this.#output = output
  }

  /** Pins a key's name, unless it belongs to another key or the directory is silent. Never throws. */
  async learn(key: PeerKey): Promise<void> {
    const { contacts, peer } = this.#session
    if (contacts.nameOf(key) !== undefined || this.#asked.has(key)) return
    this.#asked.add(key)
    try {
      const members = await abortable(peer.members(), AbortSignal.timeout(ANSWER_WITHIN_MS))
      const name = members.find((member) => member.peer === key)?.name
      if (name !== undefined && isUsableName(name)) await contacts.pin(name, key)
    } catch (error) {
      if (error instanceof OperatingError && (error.code === 'key_changed' || error.code === 'name_confusable'))
        this.#output.warn(
          `The directory gives ${fingerprint(key)} the name of another peer that you have pinned, or a name that looks like it: see \`sealpost peers\`.`,
        )
    }
  }
}

type Roster = MemberListFacts<string>

/** What differs between groups and pools: texts and calls. */
export interface MemberListSpec<Facts extends Roster = Roster> {
  readonly noun: 'group' | 'pool'
  /** The argument's name and help. */
  readonly argument: readonly [name: string, description: string]
  /** The name used in examples. */
  readonly example: string
  readonly descriptions: Readonly<Record<'create' | 'list' | 'add' | 'remove' | 'delete', string>>
  list(shell: Shell): Promise<readonly Facts[]>
  /** Finds a list by name or id. @throws OperatingError if none or several match */
  named(all: readonly Facts[], word: string): Facts
  create(shell: Shell, params: { readonly name: string; readonly members: readonly PeerKey[] }): Promise<Facts>
  change(shell: Shell, roster: Facts, change: MemberListChange): Promise<Facts>
  delete(shell: Shell, roster: Facts): Promise<null>
}

const MEMBERS = ['<MEMBER...>', 'names, fingerprints or keys (64 hex digits) of peers'] as const

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
    .argument('<NAME>', 'the name of the new group or pool')
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
    .description(`Print the members of a ${noun}`)
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

export function deleteCommand<Facts extends Roster>(run: RunAction, kind: MemberListSpec<Facts>): Command {
  const { noun, argument, example, descriptions } = kind
  return new Command('delete')
    .description(descriptions.delete)
    .argument(...argument)
    .addHelpText('after', examples(`sealpost ${noun} delete ${example}`))
    .action(
      run(async (shell, _options: object, word: string) => {
        const roster = await findMemberList(shell, kind, word)
        await kind.delete(shell, roster)
        await shell.output.result({ deleted: roster.id }, () => `deleted ${escapeName(roster.name)}`)
      }),
    )
}

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
  const own = await profile.readOwnKey()
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
