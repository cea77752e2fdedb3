/** What the script and its programs of peers say to each other. */

import type { SecretKeys } from '@sealpost/harness/members/mesh'
import type { MeshId, PeerKey } from '@sealpost/std'
import type { Kind } from '../judgement/ledger.ts'

/** One of the population, for the program that plays it. */
export interface Role {
  readonly no: number
  readonly meshId: MeshId
  readonly secret: SecretKeys
}

export interface PeerSetup {
  readonly ledgerFile: string
  readonly url: string
  readonly brokerKey: PeerKey
  readonly roles: readonly Role[]
  /** Of the whole population, by number. */
  readonly keys: readonly PeerKey[]
  /** Whom each of the population may write to, by number. */
  readonly correspondents: readonly (readonly number[])[]
  readonly bodyBytes: number
  readonly seed: number
}

export type PeerCommand =
  | ({ readonly do: 'prepare' } & PeerSetup)
  /** Answered when each has its first session. */
  | { readonly do: 'join'; readonly peers: readonly number[] }
  | { readonly do: 'leave'; readonly peers: readonly number[] }
  /** Messages a second, of those that have joined together; 0 ends it. */
  | { readonly do: 'pace'; readonly perSecond: number }
  /** Answered when all are taken by the outbox. */
  | { readonly do: 'burst'; readonly from: number; readonly to: number; readonly count: number; readonly kind: Kind }
  /** How long an application is at work on each message. */
  | { readonly do: 'dawdle'; readonly peers: readonly number[]; readonly forMs: number }
  /** Writes down what is in memory. */
  | { readonly do: 'flush' }

export interface PeerProgress {
  readonly sent: number
  readonly acked: number
  /** Messages that its applications got, once each. */
  readonly got: number
  /** Sends without an answer. */
  readonly pending: number
  readonly online: number
  readonly joined: number
}

export type PeerReply =
  | ({ readonly did: 'progress' } & PeerProgress)
  | { readonly did: Exclude<PeerCommand['do'], 'pace' | 'dawdle'> }
  | { readonly did: 'fail'; readonly reason: string }
