/** Opens the state of a mesh or a group for this profile. */
import {
  type OpenStateOptions,
  openState,
  type SpaceOptions,
  type SpaceTerms,
  type State,
  type StateEvent,
  setSpace,
} from '@sealpost/sdk/state'
import { OperatingError } from '@sealpost/std'
import { openProfileKeyEpochs, SharedStore } from '../profile/contacts.ts'
import { openProfileProofs } from '../profile/proofs.ts'
import type { Shell } from '../shell.ts'

/** Returns the mesh's addresses and the identity. @throws OperatingError `profile_missing`, `not_joined` */
export async function meshPlaceOf({ profile }: Shell): Promise<SpaceOptions> {
  const { brokerKey, meshId } = await profile.readMembership()
  const { identity } = await profile.readKeys()
  return { url: await profile.readUrls(), brokerKey, meshId, identity }
}

/** Opens the state for a call. @throws SealpostError `space_unknown`, and errors that show that the broker cheats */
export async function withStateAt<T>(
  shell: Shell,
  place: SpaceOptions & Pick<OpenStateOptions, 'statement'>,
  use: (state: State) => Promise<T>,
): Promise<T> {
  const keys = await shell.profile.readKeys()
  const { formerBoxKeys, formerKeys } = keys
  try {
    await using keyEpochs = await openProfileKeyEpochs(shell.profile, keys, place.meshId)
    await using members = await openProfileProofs(shell)
    await using state = await openState({
      ...place,
      ...requestsOf(shell),
      formerBoxKeys,
      ...(formerKeys && { formerKeys }),
      store: new SharedStore(shell.profile.stateFile),
      keyEpochs,
      members,
      onEvent: (event) => shell.output.warn(warningOf(event)),
    })
    return await use(state)
  } catch (error) {
    shell.signal.throwIfAborted()
    throw explained(error)
  }
}

/** Sets the terms of a space. @throws SealpostError from `setSpace`, and the errors that `withStateAt` explains */
export async function declareSpace(shell: Shell, place: SpaceOptions, terms: SpaceTerms): Promise<void> {
  try {
    await setSpace({ ...place, ...requestsOf(shell) }, terms)
  } catch (error) {
    shell.signal.throwIfAborted()
    throw explained(error)
  }
}

/** How long a command waits for a broker that does not respond over HTTP. */
export const HTTP_PATIENCE_MS = 30_000

const requestsOf = ({ signal }: Shell) => ({ patienceMs: HTTP_PATIENCE_MS, signal })

const warningOf = ({ type, reason }: StateEvent): string => `the broker returned invalid state: ${reason} (${type})`

const SENTENCES: Readonly<Record<string, string>> = {
  connection_lost: 'The broker does not respond over HTTP. Run `sealpost doctor` to check the connection.',
  space_unknown: 'This mesh or group has no space. Its owner can open one with "sealpost space open".',
  before_horizon: 'The history does not reach back so far. "sealpost space show" prints its start.',
  moment_in_future: 'This time is in the future.',
  key_missing:
    'You don\'t have the keys of this space. A member who has them sends them to you with their next state command, or immediately while they run "sealpost state watch".',
}

function explained(error: unknown): unknown {
  const { code } = error as { code?: string }
  const sentence = code === undefined ? undefined : SENTENCES[code]
  return sentence === undefined ? error : new OperatingError(code!, sentence, { cause: error })
}
