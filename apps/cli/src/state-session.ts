/** The state of a mesh or a group, opened as this profile for as long as a command lasts. */
import type { GroupId } from '@sealpost/sdk'
import { openState, type SpacePlace, type State, type StateEvent } from '@sealpost/sdk/state'
import { isHex, OperatingError } from '@sealpost/std'
import { groupNamed } from './group-calls.ts'
import { callPeer } from './peer-session.ts'
import { SharedStore } from './shared-store.ts'
import type { Shell } from './shell.ts'

export const GROUP_OPTION = ['-g, --group <GROUP>', 'of this group, by its name or id, not of the whole mesh'] as const

/** Where, and as whom. @throws OperatingError `profile_missing`, `not_joined`, `unknown_group` */
export async function spacePlaceOf(shell: Shell, group: string | undefined): Promise<SpacePlace> {
  const { url, brokerKey, meshId } = await shell.profile.readMembership()
  const { identity } = await shell.profile.readKeys()
  return { url, brokerKey, meshId, identity, ...(group !== undefined && { group: await groupIdOf(shell, group) }) }
}

/**
 * Calls with the state of the mesh, or of a group; it is closed afterwards.
 * @throws SealpostError `space_unknown`, and what the broker can be caught at
 */
export async function withState<T>(
  shell: Shell,
  group: string | undefined,
  use: (state: State) => Promise<T>,
): Promise<T> {
  const place = await spacePlaceOf(shell, group)
  const { formerBoxKeys, formerKeys } = await shell.profile.readKeys()
  const state = await openState({
    ...place,
    formerBoxKeys,
    ...(formerKeys && { formerKeys }),
    store: new SharedStore(shell.profile.stateFile),
    onEvent: (event) => shell.output.warn(warningOf(event)),
  }).catch((error) => {
    throw explained(error)
  })
  try {
    return await use(state)
  } catch (error) {
    throw explained(error)
  } finally {
    await state.close()
  }
}

async function groupIdOf(shell: Shell, word: string): Promise<GroupId> {
  if (isHex(word, 16)) return word as string as GroupId
  return groupNamed(await callPeer(shell, { method: 'groups', question: null }), word).id
}

const warningOf = ({ type, reason }: StateEvent): string => `the broker was caught at something: ${reason} (${type})`

const SENTENCES: Readonly<Record<string, string>> = {
  space_unknown: 'No state or history is kept here: its owner begins it with "sealpost space open".',
  key_missing:
    'You were not given the keys to it. Any member who has them gives them to you with the next command about state, or at once while one runs "sealpost state watch".',
}

function explained(error: unknown): unknown {
  const { code } = error as { code?: string }
  const sentence = code === undefined ? undefined : SENTENCES[code]
  return sentence === undefined ? error : new OperatingError(code!, sentence, { cause: error })
}
