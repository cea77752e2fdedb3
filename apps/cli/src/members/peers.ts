/** `sealpost peers`: who belongs to the mesh, and whether they are who this profile knows. */
import { fingerprint } from '@sealpost/identity'
import type { Availability, MemberEntry, PresenceEntry } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { Contacts } from '../profile/contacts.ts'
import { callPeer } from '../session/peer-session.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { escapeName } from '../terminal-text.ts'

interface PeersOptions {
  readonly accept?: string
}

export function peersCommand(run: RunAction): Command {
  return new Command('peers')
    .description('list the members of the mesh, and which of them are there now')
    .option('--accept <NAME>', 'take the key that the directory has for NAME now, instead of the one you knew')
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
        `${escapeName(name)} has another key than the one you know: compare fingerprints before you accept it.`,
      )
}

interface Presence {
  readonly isOnline: boolean
  /** As it says of itself. */
  readonly availability: Availability | null
  readonly summary: string
}

function presenceOf(entry: PresenceEntry | undefined): Presence {
  if (!entry) return { isOnline: false, availability: null, summary: '' }
  return { isOnline: true, availability: entry.availability, summary: entry.summary }
}

/** Nothing for who is away. */
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
  if (!member) throw new OperatingError('name_unknown', `Nobody in this mesh is called ${escapeName(name)}.`)
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
