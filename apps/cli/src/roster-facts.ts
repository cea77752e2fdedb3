/** What groups and pools have in common for whoever asks about them: named lists of peers with an owner. */
import type { PeerKey } from '@sealpost/sdk'

export interface RosterFacts<Id extends string> {
  readonly id: Id
  readonly name: string
  readonly epoch: number
  readonly owner: PeerKey
  readonly members: readonly PeerKey[]
}

export const factsOf = <Id extends string>({ id, name, epoch, owner, members }: RosterFacts<Id>): RosterFacts<Id> => ({
  id,
  name,
  epoch,
  owner,
  members,
})

interface Changeable<Id extends string> extends RosterFacts<Id> {
  add(...peers: PeerKey[]): Promise<void>
  remove(...peers: PeerKey[]): Promise<void>
}

export interface RosterChange {
  readonly add: readonly PeerKey[]
  readonly remove: readonly PeerKey[]
}

/** @returns what it is then */
export async function changeRoster<Id extends string>(
  roster: Changeable<Id>,
  { add, remove }: RosterChange,
): Promise<RosterFacts<Id>> {
  if (add.length > 0) await roster.add(...add)
  if (remove.length > 0) await roster.remove(...remove)
  return factsOf(roster)
}
