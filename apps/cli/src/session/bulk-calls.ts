/** Defines the calls that send one message to several recipients. */
import type { EnvelopeId, GroupId, Peer, PeerKey, Priority, SealpostCode, SealpostError } from '@sealpost/sdk'
import { type Group, groupsOf } from '@sealpost/sdk/groups'
import { usersOf } from '@sealpost/sdk/users'
import type { Millis } from '@sealpost/std'

export interface PostParams {
  readonly bodyBase64: string
  readonly priority: Priority
  /** The time to live; 0 for the broker's default. */
  readonly ttlSeconds: number
  /** A reference to an uploaded file. */
  readonly attachment?: string
}

/** `code`: why the message was not stored for this member; null if it was. */
export interface MemberResult {
  readonly peer: PeerKey
  readonly code: SealpostCode | null
}

export interface SendEachParams extends PostParams {
  readonly peers: readonly PeerKey[]
  readonly groups: readonly GroupId[]
  /** When the broker delivers the message. */
  readonly notBefore?: Millis
}

/** `group`: the group through which the peer is a recipient; null if it was named itself. */
export interface EachOutcome extends MemberResult {
  readonly group: GroupId | null
  readonly envelopeId: EnvelopeId | null
}

export interface BulkCalls {
  /** Returns all other members of the mesh, without devices. */
  everybody(params: null): Promise<readonly PeerKey[]>
  /** Sends one message to each recipient. Resolves with each outcome. */
  sendEach(params: SendEachParams): Promise<readonly EachOutcome[]>
}

export function bulkCallsOf(peer: Peer): BulkCalls {
  return {
    everybody: async () => {
      const others = (await peer.members()).map((member) => member.peer).filter((key) => key !== peer.key)
      return usersOf(peer).omitDevices(others)
    },
    sendEach: async ({ peers, groups: ids, bodyBase64, ...options }) => {
      const body = Buffer.from(bodyBase64, 'base64')
      const groups = await Promise.all(ids.map((id) => groupsOf(peer).find(id)))
      const direct = peers.map((to) => outcomeOf(peer, { to, body, options, group: null }))
      const shared = groups.map((group) => sendToGroup(peer, group, { body, options }))
      return [...(await Promise.all(direct)), ...(await Promise.all(shared)).flat()]
    },
  }
}

type Options = Omit<SendEachParams, 'peers' | 'groups' | 'bodyBase64'>

interface Sending {
  readonly body: Uint8Array
  readonly options: Options
}

function outcomeOf(
  peer: Peer,
  { to, body, options, group }: Sending & { readonly to: PeerKey; readonly group: GroupId | null },
): Promise<EachOutcome> {
  return peer.send(to, body, options).then(
    ({ envelopeId }) => ({ peer: to, group, envelopeId, code: null }),
    ({ code }: SealpostError) => ({ peer: to, group, envelopeId: null, code }),
  )
}

/** A delayed message is sent to each member on its own, because the broker can't delay a shared body. */
async function sendToGroup(peer: Peer, group: Group, { body, options }: Sending): Promise<EachOutcome[]> {
  const { notBefore, ...rest } = options
  if (notBefore !== undefined) {
    const members = group.members.filter((member) => member !== peer.key)
    return Promise.all(members.map((to) => outcomeOf(peer, { to, body, options, group: group.id })))
  }
  const outcomes = await (await group.send(body, rest)).stored
  return outcomes.map(({ peer: to, receipt, error }) => ({
    peer: to,
    group: group.id,
    envelopeId: receipt?.envelopeId ?? null,
    code: error?.code ?? null,
  }))
}
