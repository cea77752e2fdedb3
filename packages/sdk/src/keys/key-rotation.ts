/** The turn of a peer's own box key. */
import type { BoxKeys, Identity, KeyBinding } from '@sealpost/identity'
import type { Millis } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { UserKeys } from '../ports.ts'
import type { RequestBroker } from '../requests/members.ts'

export interface OwnKeys {
  /** Signs it, and opens with it from now on: others may seal to it before we hear that it is published. */
  bindNext(next: BoxKeys, notAfterMs: Millis): KeyBinding
  /** Seals with it from now on. */
  activate(next: BoxKeys): void
  /** A binding of another identity's box key, by that one. */
  bindIdentity(next: Identity, notAfterMs: Millis): KeyBinding
  readonly user: UserKeys
}

/** Nothing renews a key binding by itself, and a peer whose binding is over gets no mail. */
export const BINDING_MS = 10 * 365 * 24 * 3600_000

/** May be said again after a lost answer, with the same key. @throws SealpostError `stale_epoch`, `key_refused` */
export async function rotateBoxKey(ask: RequestBroker, own: OwnKeys, next: BoxKeys): Promise<void> {
  const { boxKey, boxEpoch, notAfterMs, signature } = own.bindNext(next, Date.now() + BINDING_MS)
  const { outcome } = await ask({ type: 'bind', boxKey, boxEpoch, notAfterMs, signature })
  if (outcome === 'stale_epoch')
    throw new SealpostError('stale_epoch', `The broker knows a box key of this peer from epoch ${boxEpoch} or later.`)
  if (outcome !== 'done') throw new SealpostError('key_refused', 'The broker does not take this key binding.')
  own.activate(next)
}

/** @throws SealpostError `key_taken`, `key_refused` */
export async function rotateIdentity(ask: RequestBroker, keys: OwnKeys, next: Identity): Promise<void> {
  const { boxKey, boxEpoch, notAfterMs, signature } = keys.bindIdentity(next, Date.now() + BINDING_MS)
  const binding = { boxKey, boxEpoch, bindingNotAfterMs: notAfterMs, bindingSignature: signature }
  const { outcome } = await ask({ type: 'succeed', statement: keys.user.rotateIdentity(next), ...binding })
  if (outcome === 'key_taken') throw new SealpostError('key_taken', 'The new key is, or was, that of a member.')
  if (outcome !== 'done') throw new SealpostError('key_refused', `The broker does not take this identity (${outcome}).`)
}
