/** Becoming a device of a person, by the one line that the person made. `connect` comes afterwards, as for any other peer. */
import {
  bindBoxKey,
  type DeviceInvite,
  type Identity,
  readDeviceInvite,
  ready,
  signEnrolment,
  type Transcript,
} from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import { OperatingError, type PeerKey } from '@sealpost/std'
import { SealpostError } from './errors.ts'
import { enrolAt, type JoinOptions, type Membership } from './join.ts'
import { BINDING_MS } from './own-keys.ts'
import { platformWebSocket } from './web-socket.ts'

export interface DeviceMembership extends Membership {
  /** Whose device it is now. */
  readonly person: PeerKey
  readonly label: string
}

/**
 * Uses the invite of a person, for a device with keys of its own. Said again with the same identity, after a lost answer,
 * it is the same enrolment.
 * @throws SealpostError `invite_malformed`, `wrong_broker`; from the broker `invite_refused` (expired, used, of a person
 *   that is no member, or not of this broker: one answer), `too_many_devices`, `already_member`, `name_taken`, `revoked`;
 *   retryable `connection_lost`, `try_later`, `restarting`, `moved`
 */
export async function joinAsDevice(options: Omit<JoinOptions, 'name'>): Promise<DeviceMembership> {
  await ready()
  const { identity, form = 'binary', webSocket = platformWebSocket() } = options
  const invite = read(options.invite)
  const { url, brokerKey, voucher } = invite
  const { meshId, person, label } = voucher
  const enrolled = await enrolAt({ url, brokerKey, meshId }, { identity, form, webSocket }, (transcript) =>
    enrolFrame(invite, identity, transcript),
  )
  return { url: enrolled.url, brokerKey, meshId, name: enrolled.name, person, label }
}

function enrolFrame(invite: DeviceInvite, identity: Identity, transcript: Transcript): FrameOf<'enrolDevice'> {
  const binding = bindBoxKey(identity, transcript.meshId, Date.now() + BINDING_MS)
  const statement = invite.statement(identity.signing)
  const { label: name } = invite.voucher
  const enrolment = { invite: statement, name, bindingSignature: binding.signature }
  return {
    type: 'enrolDevice',
    version: transcript.version,
    clientNonce: transcript.clientNonce,
    statement,
    boxKey: binding.boxKey,
    boxEpoch: binding.boxEpoch,
    bindingNotAfterMs: binding.notAfterMs,
    bindingSignature: binding.signature,
    signature: signEnrolment(identity.signing, transcript, enrolment),
  }
}

function read(text: string): DeviceInvite {
  try {
    return readDeviceInvite(text)
  } catch (error) {
    if (!(error instanceof OperatingError)) throw error
    throw new SealpostError('invite_malformed', error.message)
  }
}
