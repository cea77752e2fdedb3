/** What a command knows of its place in the mesh. */
import { Contacts } from './contacts.ts'
import type { Membership } from './profile.ts'
import type { Shell } from './shell.ts'

export interface Place {
  readonly membership: Membership
  readonly contacts: Contacts
}

/** @throws OperatingError `profile_missing`, `not_joined`, and those of the profile's files */
export async function readPlace({ profile }: Shell): Promise<Place> {
  const membership = await profile.readMembership()
  return { membership, contacts: await Contacts.read(profile.contactsFile) }
}
