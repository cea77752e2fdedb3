/** Defines the calls that send one message to several recipients. */
import type {
  EnvelopeId,
  GroupId,
  Peer,
  PeerKey,
  Priority,
  ReceiptWish,
  SealpostCode,
  SealpostError,
} from '@sealpost/sdk'
import { type Group, groupsOf } from '@sealpost/sdk/groups'
import { type SentAudience, sentLogOf } from '@sealpost/sdk/sent'
import { usersOf } from '@sealpost/sdk/users'
import type { Millis } from '@sealpost/std'

export interface PostParams {
  readonly bodyBase64: string
  readonly priority: Priority
  /** The time to live; 0 for the broker's default. */
  readonly ttlSeconds: number
  /** A reference to an uploaded file. */
  readonly attachment?: string
  /** Default: none. */
  readonly receipts?: ReceiptWish
  /** Which confirmations to ask each recipient for. Default: none. */
  readonly confirm?: 'end' | 'all'
}

/** `code`: why the message was not stored for this member; null if it was. */
export interface MemberResult {
  readonly peer: PeerKey
  readonly code: SealpostCode | null
}

/** An outcome, and the id of the message if it has one. */
export interface DeviceResult extends MemberResult {
  readonly envelopeId: EnvelopeId | null
}

export interface SendEachParams extends PostParams {
  readonly peers: readonly PeerKey[]
  readonly groups: readonly GroupId[]
  /** Whether the peers are all members of the mesh. */
  readonly isEverybody?: boolean
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
    sendEach: async ({ peers, groups: ids, bodyBase64, isEverybody = false, ...options }) => {
      const body = Buffer.from(bodyBase64, 'base64')
      const groups = await Promise.all(ids.map((id) => groupsOf(peer).find(id)))
      const audience = isEverybody ? EVERYBODY : null
      const sends = sentLogOf(peer).together({ audience }, () => [
        ...peers.map((to) => outcomeOf(peer, { to, body, options, group: null })),
        ...groups.map((group) => sendToGroup(peer, group, { body, options })),
      ])
      return (await Promise.all(sends)).flat()
    },
  }
}

const EVERYBODY: SentAudience = { kind: 'everybody', id: '', name: '' }

type Options = Omit<SendEachParams, 'peers' | 'groups' | 'bodyBase64' | 'isEverybody'>

interface Sending {
  readonly body: Uint8Array
  readonly options: Options
}

function outcomeOf(
  peer: Peer,
  { to, body, options, group }: Sending & { readonly to: PeerKey; readonly group: GroupId | null },
): Promise<EachOutcome> {
  return sentLogOf(peer)
    .send(to, body, options)
    .then(
      ({ envelopeId }) => ({ peer: to, group, envelopeId, code: null }),
      ({ code }: SealpostError) => ({ peer: to, group, envelopeId: null, code }),
    )
}

/** A delayed message is sent to each member on its own, because the broker can't delay a shared body. */
async function sendToGroup(peer: Peer, group: Group, { body, options }: Sending): Promise<EachOutcome[]> {
  const { notBefore, ...rest } = options
  if (notBefore !== undefined) return sendDelayed(peer, group, { body, options })
  const outcomes = await (await group.send(body, rest)).stored
  return outcomes.map(({ peer: to, receipt, error }) => ({
    peer: to,
    group: group.id,
    envelopeId: receipt?.envelopeId ?? null,
    code: error?.code ?? null,
  }))
}

function sendDelayed(peer: Peer, { id, name, members }: Group, sending: Sending): Promise<EachOutcome[]> {
  const others = members.filter((member) => member !== peer.key)
  const sends = sentLogOf(peer).together({ audience: { kind: 'group', id, name } }, () =>
    others.map((to) => outcomeOf(peer, { to, ...sending, group: id })),
  )
  return Promise.all(sends)
}
