/** What is wrong with state or history as a broker handed it out, and what an application is told of it. */
import type { PeerKey, SpaceId } from '@sealpost/std'
import { SealpostError } from '../errors.ts'

/**
 * What a broker did that it can't have done by mistake. Each comes as an event, and reading ends with it as an error.
 *
 * - `state_rolled_back`: an older value under a key than one seen before, another one of the same revision, a successor
 *   that does not follow it, or none at all.
 * - `entry_forged`: not signed by its author, of another key, space or mesh, or sealed with an older key than its
 *   predecessor.
 * - `space_forged`: terms of the space that its owner did not sign, or older ones than were seen.
 * - `grant_forged`: keys from somebody who does not belong to the space, or that contradict those known. These are not
 *   taken, and nothing ends.
 * - `key_refused`: a box key of `author` that it did not sign, or an older one than was seen. It is given no keys of the
 *   space, and nothing ends.
 * - `history_gap`: events are missing between two others. Reading goes on.
 */
export type Tamper =
  | 'state_rolled_back'
  | 'entry_forged'
  | 'space_forged'
  | 'grant_forged'
  | 'key_refused'
  | 'history_gap'

export interface StateEvent {
  readonly type: Tamper
  readonly spaceId: SpaceId
  /** What exactly, in words. */
  readonly reason: string
  /** Of the entry, where it is about one: 64 hex digits. */
  readonly keyHash?: string
  /** Who signed what is missing or wrong, where that is known; of `key_refused` the member whose key it is. */
  readonly author?: PeerKey
}

export type TamperReport = Omit<StateEvent, 'spaceId'>

export function tampered({ type, reason }: TamperReport): SealpostError {
  return new SealpostError(type, `The broker handed out what it may not: ${reason}.`)
}

export const noKey = (): SealpostError =>
  new SealpostError('key_missing', 'It is sealed under a key that this member was not given, or not yet.', {
    isRetryable: true,
  })

export const noSpace = (): SealpostError =>
  new SealpostError('space_unknown', 'There is no such space, or this peer does not belong to it.')
