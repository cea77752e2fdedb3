/** What `sealpost group` and `sealpost pool` show alike. */
import type { PeerKey } from '@sealpost/sdk'
import { Contacts } from './contacts.ts'
import { labelOf } from './peer-news.ts'
import type { RosterFacts } from './roster-facts.ts'
import type { Shell } from './shell.ts'
import { escapeName } from './terminal-text.ts'

export const MEMBERS = ['<MEMBER...>', 'names, or keys of 64 hex digits'] as const

/** A row for each. */
export async function listRosters({ output, profile }: Shell, all: readonly RosterFacts<string>[]): Promise<void> {
  const contacts = await Contacts.read(profile.contactsFile)
  const rowOf = ({ name, members, owner, id }: RosterFacts<string>) => [
    escapeName(name),
    String(members.length),
    escapeName(labelOf(contacts, owner)),
    id,
  ]
  await output.answers(all, () => output.table(['NAME', 'MEMBERS', 'OWNER', 'ID'], all.map(rowOf)))
}

export async function showRoster(
  { output, profile }: Shell,
  noun: 'group' | 'pool',
  roster: RosterFacts<string>,
): Promise<void> {
  const contacts = await Contacts.read(profile.contactsFile)
  const own = (await profile.readKeys()).identity.signing.publicKey
  const label = (key: PeerKey) => (key === own ? 'you' : escapeName(labelOf(contacts, key)))
  await output.answer(roster, () =>
    output.facts([
      [noun, escapeName(roster.name)],
      ['id', roster.id],
      ['owner', label(roster.owner)],
      ['members', roster.members.map(label).join(', ')],
    ]),
  )
}
