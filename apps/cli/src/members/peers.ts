/** `sealpost peers` lists the mesh's members, and whether their keys match the pinned ones. */
import { fingerprint } from '@sealpost/identity'
import type { Availability, ConsentState, ConsentUpdate, MemberEntry, PeerKey, PresenceEntry } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { Argument, Command } from 'commander'
import { labelOf } from '../messages/incoming-message.ts'
import { escapeName } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
import { callPeer } from '../session/peer-session.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { resolveRecipient } from './member-list.ts'

interface PeersOptions {
  readonly accept?: string
}

export function peersCommand(run: RunAction): Command {
  return new Command('peers')
    .description('List the members of the mesh and their presence')
    .option('--accept <NAME>', 'replace the pinned key of NAME with the key that the broker now lists')
    .addHelpText('after', examples('sealpost peers', 'sealpost peers --accept bob'))
    .action(run(peers))
}

async function peers(shell: Shell, { accept }: PeersOptions): Promise<void> {
  const { members, online } = await callPeer(shell, { method: 'directory', params: null })
  const contacts = await Contacts.read(shell.profile.contactsFile)
  if (accept !== undefined) return acceptKey(shell, { name: accept, members, contacts })
  const own = (await shell.profile.readKeys()).identity.signing.publicKey
  const present = new Map(online.map((entry) => [entry.peer, entry]))
  const rows = members.map((member) => ({
    ...member,
    known: knownAs(member, contacts, own),
    ...presenceOf(present.get(member.peer)),
  }))
  const { output } = shell
  await output.results(
    rows.map((row) => ({ ...row, fingerprint: fingerprint(row.peer) })),
    () =>
      output.table(
        ['NAME', 'ROLE', 'NOW', 'FINGERPRINT', 'KNOWN'],
        rows.map(({ name, role, peer, known, ...presence }) => [
          escapeName(name),
          role,
          nowOf(presence),
          fingerprint(peer),
          known === 'CHANGED' ? output.paint.red(known) : known,
        ]),
      ),
  )
  for (const { name, known } of rows)
    if (known === 'CHANGED')
      output.warn(
        `The key of ${escapeName(name)} differs from the pinned one. Compare fingerprints before you accept it.`,
      )
}

interface Presence {
  readonly isOnline: boolean
  readonly availability: Availability | null
  readonly summary: string
}

function presenceOf(entry: PresenceEntry | undefined): Presence {
  if (!entry) return { isOnline: false, availability: null, summary: '' }
  return { isOnline: true, availability: entry.availability, summary: entry.summary }
}

/** Returns a peer's status; empty if it is offline. */
const nowOf = ({ availability, summary }: Presence): string =>
  availability === null ? '' : escapeName(summary ? `${availability}: ${summary}` : availability)

type Known = 'you' | 'yes' | '' | 'CHANGED'

export function knownAs({ name, peer }: MemberEntry, contacts: Contacts, own: string): Known {
  if (peer === own) return 'you'
  const pinned = contacts.keyOf(name)
  return pinned === undefined ? '' : pinned === peer ? 'yes' : 'CHANGED'
}

interface Acceptance {
  readonly name: string
  readonly members: readonly MemberEntry[]
  readonly contacts: Contacts
}

async function acceptKey({ output }: Shell, { name, members, contacts }: Acceptance): Promise<void> {
  const member = members.find((entry) => entry.name === name)
  if (!member) throw new OperatingError('name_unknown', `This mesh has no member named ${escapeName(name)}.`)
  const former = contacts.keyOf(name)
  await contacts.accept(name, member.peer)
  await output.result({ name, key: member.peer, former: former ?? null }, () =>
    output.facts([
      ['name', escapeName(name)],
      ['key now', fingerprint(member.peer)],
      ['before', former ? fingerprint(former) : 'unknown'],
    ]),
  )
}

/**
 * `sealpost consent` shows and changes which peers may send to you. The broker enforces it even while you are offline.
 */
export function consentCommand(run: RunAction): Command {
  return new Command('consent')
    .description('Manage who may write to you')
    .addCommand(showCommand(run))
    .addCommand(setCommand(run))
    .addCommand(nameCommand(run, 'allow', 'Allow peers to write to you, even if the policy is contacts'))
    .addCommand(
      nameCommand(
        run,
        'block',
        "Block peers, so that they can't write to you. Their earlier messages stay in your queue.",
      ),
    )
    .addCommand(nameCommand(run, 'forget', 'Remove peers from the lists of allowed and blocked peers'))
    .addHelpText(
      'after',
      examples('sealpost consent show', 'sealpost consent set contacts', 'sealpost consent allow bob alice'),
    )
}

function showCommand(run: RunAction): Command {
  return new Command('show')
    .description('Print who can write to you, and the peers that you allow or block')
    .addHelpText('after', examples('sealpost consent show', 'sealpost consent show --json'))
    .action(run((shell) => update(shell, {})))
}

function setCommand(run: RunAction): Command {
  return new Command('set')
    .description(
      'Set who can write to you. With open, all peers except the peers that you block can write to you; with contacts, only the peers that you allow.',
    )
    .addArgument(new Argument('<POLICY>', 'who can write to you').choices(['open', 'contacts']))
    .addHelpText('after', examples('sealpost consent set contacts', 'sealpost consent set open'))
    .action(run((shell, _options: object, policy: 'open' | 'contacts') => update(shell, { policy })))
}

function nameCommand(run: RunAction, verb: 'allow' | 'block' | 'forget', description: string): Command {
  return new Command(verb)
    .description(description)
    .argument('<NAME...>', 'names, fingerprints or keys (64 hex digits) of peers')
    .addHelpText('after', examples(`sealpost consent ${verb} bob`))
    .action(
      run(async (shell, _options: object, words: readonly string[]) => {
        const keys: PeerKey[] = []
        for (const word of words) keys.push(await resolveRecipient(shell, word))
        await update(shell, { [verb]: keys })
      }),
    )
}

async function update(shell: Shell, params: ConsentUpdate): Promise<void> {
  const state = await callPeer(shell, { method: 'consent', params })
  const contacts = await Contacts.read(shell.profile.contactsFile)
  await shell.output.result(state, () => describe(shell, state, contacts))
}

function describe({ output }: Shell, { policy, allowed, blocked }: ConsentState, contacts: Contacts): string {
  const names = (keys: ConsentState['allowed']) =>
    keys.map((key) => escapeName(labelOf(contacts, key))).join(', ') || 'nobody'
  return output.facts([
    ['who can write to you', policy === 'open' ? 'all peers except blocked ones (open)' : 'allowed peers (contacts)'],
    ['allowed', names(allowed)],
    ['blocked', names(blocked)],
  ])
}
