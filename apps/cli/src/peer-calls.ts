/** What a command asks of its profile's peer, whichever command holds the session. Everything travels as JSON. */
import type { EnvelopeId, InviteId, MemberEntry, Peer, PeerKey, Priority } from '@sealpost/sdk'

export interface SendQuestion {
  readonly to: PeerKey
  readonly bodyBase64: string
  readonly priority: Priority
  /** 0: the broker's default. */
  readonly ttlSeconds: number
}

export type Durability = 'fsync' | 'degraded'

export interface SessionFacts {
  readonly durability: Durability
  /** Sends without an answer yet. */
  readonly waiting: number
}

export interface PeerCalls {
  /** Answers when the message is kept in the profile: it leaves now or later, once. */
  keep(question: SendQuestion): Promise<null>
  /** Answers when the broker has stored it. */
  send(question: SendQuestion): Promise<{ envelopeId: EnvelopeId; isDuplicate: boolean }>
  members(question: null): Promise<readonly MemberEntry[]>
  revokeInvite(inviteId: InviteId): Promise<null>
  /** Answers once the broker was reached. */
  facts(question: null): Promise<SessionFacts>
}

export function callsOf(peer: Peer, online: Promise<Durability>): PeerCalls {
  const post = ({ to, bodyBase64, priority, ttlSeconds }: SendQuestion) =>
    peer.post(to, Buffer.from(bodyBase64, 'base64'), { priority, ttlSeconds })
  return {
    keep: async (question) => {
      await post(question)
      return null
    },
    send: async (question) => {
      const { receipt } = await post(question)
      const { envelopeId, isDuplicate } = await receipt
      return { envelopeId, isDuplicate }
    },
    members: () => peer.members(),
    revokeInvite: async (inviteId) => {
      await peer.revokeInvite(inviteId)
      return null
    },
    facts: async () => ({ durability: await online, waiting: peer.pendingCount }),
  }
}
