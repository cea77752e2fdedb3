/** Extends the key binding of a member that uses only HTTP (`@sealpost/sdk/binding`). A connected peer does it by itself. */
import { bindBoxKey, ready } from '@sealpost/identity'
import { BINDING_DUE_MS, BINDING_MS } from '@sealpost/protocol'
import { type Millis, toBase64url } from '@sealpost/std'
import { HttpAccess, type HttpOptions, type PeerCredentials } from '../http/access.ts'

/**
 * Extends the binding of this identity's box key by 90 days, if less than 30 are left. Call it once a week. Returns until when the
 * binding is valid.
 * @throws SealpostError `stale_epoch` if the member has a newer box key; `not_found` if the broker is too old; the codes of HTTP
 * requests
 * @example const validUntilMs = await renewBinding({ ...membership, identity })
 */
export async function renewBinding(place: PeerCredentials, options: HttpOptions = {}): Promise<Millis> {
  await ready()
  const access = new HttpAccess(place, options)
  try {
    return await renewOver(access, place)
  } finally {
    await access.close()
  }
}

async function renewOver(access: HttpAccess, { identity, meshId }: PeerCredentials): Promise<Millis> {
  const peers = [identity.signing.publicKey]
  const reply = await access.ask({ method: 'POST', path: '/v1/lookup', json: { peers } })
  const { bindings } = reply.json<{ bindings: readonly { readonly boxEpoch: number; readonly notAfterMs: Millis }[] }>()
  const [current] = bindings
  const isOwn = current?.boxEpoch === identity.box.epoch
  if (isOwn && current.notAfterMs - Date.now() >= BINDING_DUE_MS) return current.notAfterMs
  const { boxKey, boxEpoch, notAfterMs, signature } = bindBoxKey(identity, meshId, Date.now() + BINDING_MS)
  const json = { boxKey: toBase64url(boxKey), boxEpoch, notAfterMs, signature: toBase64url(signature) }
  await access.ask({ method: 'PUT', path: '/v1/binding', json })
  return notAfterMs
}
