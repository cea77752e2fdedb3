/** The state of the mesh or the group that a command names, opened for as long as it lasts. */
import type { GroupId } from '@sealpost/sdk'
import type { SpacePlace, State } from '@sealpost/sdk/state'
import { isHex } from '@sealpost/std'
import { groupNamed } from './group-calls.ts'
import { meshPlaceOf, withStateAt } from './open-state.ts'
import { callPeer } from './peer-session.ts'
import type { Shell } from './shell.ts'

export const GROUP_OPTION = ['-g, --group <GROUP>', 'of this group, by its name or id, not of the whole mesh'] as const

/** @throws OperatingError `unknown_group`, and as `meshPlaceOf` */
export async function spacePlaceOf(shell: Shell, group: string | undefined): Promise<SpacePlace> {
  return { ...(await meshPlaceOf(shell)), ...(group !== undefined && { group: await groupIdOf(shell, group) }) }
}

/** @throws as `spacePlaceOf` and `withStateAt` */
export async function withState<T>(
  shell: Shell,
  group: string | undefined,
  use: (state: State) => Promise<T>,
): Promise<T> {
  return withStateAt(shell, await spacePlaceOf(shell, group), use)
}

async function groupIdOf(shell: Shell, word: string): Promise<GroupId> {
  if (isHex(word, 16)) return word as string as GroupId
  return groupNamed(await callPeer(shell, { method: 'groups', question: null }), word).id
}
