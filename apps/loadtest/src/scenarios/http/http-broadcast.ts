/** A message to a group by HTTP: one sealed body, and for each member an envelope with the key to it. */

import {
  postJson as ask,
  type HttpSender,
  type HttpSendOutcome,
  type SendReply as Sent,
} from '@sealpost/harness/members/http-sender'
import { type KeyBinding, sealBody, sealEnvelope } from '@sealpost/identity'
import { type EnvelopeId, type GroupId, OperatingError, toHex } from '@sealpost/std'

/** As the broker has it. */
export interface Roster {
  readonly group: GroupId
  readonly epoch: number
}

const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url')

/** @throws OperatingError `no_group` when the sender belongs to none of this id */
export async function rosterOf({ url, token }: HttpSender, group: GroupId): Promise<Roster> {
  const answer = await fetch(`${url}/v1/groups`, { headers: { authorization: `Bearer ${token}` } })
  const { groups = [] } = (await answer.json()) as { readonly groups?: readonly Roster[] }
  const roster = groups.find((each) => each.group === group)
  if (!roster) throw new OperatingError('no_group', 'The broker lists no such group for its member.')
  return roster
}

/** @returns what became of it for each member. Never rejects */
export async function broadcast(
  { sealer, url, token }: HttpSender,
  { group, epoch }: Roster,
  { to, body }: { readonly to: readonly KeyBinding[]; readonly body: Uint8Array },
): Promise<HttpSendOutcome[]> {
  const sealed = sealBody(body)
  const sentAtMs = Date.now()
  const note = { group, groupEpoch: epoch }
  const envelopes = to.map((member) => {
    const envelopeId = toHex(crypto.getRandomValues(new Uint8Array(16))) as EnvelopeId
    const envelope = sealEnvelope(sealer, {
      ...{ to: member, envelopeId, stream: null, sentAtMs, note, body: sealed.ticket },
    })
    return { envelopeId, recipient: member.peerKey, envelope: base64url(envelope) }
  })
  const request = { group, rosterEpoch: epoch, bodyId: sealed.bodyId, body: base64url(sealed.bytes), envelopes }
  try {
    const { results, code } = (await ask(`${url}/v1/broadcast`, request, {
      authorization: `Bearer ${token}`,
    })) as Sent
    if (results) return results.map((each) => (each.status === 'refused' ? (each.code ?? 'refused') : each.status))
    return to.map(() => code ?? 'no_answer')
  } catch {
    return to.map(() => 'connection_lost')
  }
}
