/** What the script and its generators say to each other. In order: prepare, connect, exchange, tap, start, tap, collect. */
import type { BrokerAddress, SecretKeys } from '@sealpost/harness/members/mesh'
import type { Form } from '@sealpost/protocol'
import type { PeerCounters } from '@sealpost/sdk'
import type { MeshId, PeerKey } from '@sealpost/std'
import type { Plan, Share } from './plan.ts'

export interface Preparation {
  readonly plan: Plan
  readonly share: Share
  /** Where the brokers are, those of the first cell first. */
  readonly places: readonly BrokerAddress[]
  readonly meshIds: readonly MeshId[]
  readonly form: Form
  /** Null: the SDK's own. */
  readonly window: number | null
  /** Of all peers, by their number. */
  readonly peerKeys: readonly PeerKey[]
  /** Of the share's peers. */
  readonly secrets: readonly SecretKeys[]
  /** How the names of the files begin that its records go to. */
  readonly journal: string
}

export type Order =
  | ({ readonly do: 'prepare' } & Preparation)
  | { readonly do: 'connect' }
  | { readonly do: 'exchange' }
  | { readonly do: 'tap' }
  | { readonly do: 'start'; readonly atMs: number }
  | { readonly do: 'collect' }

/** Counts of one generator so far. */
export interface Progress {
  /** Connections, exchanged messages and answers before the run: what shows that something still moves. */
  readonly prepared: number
  readonly called: number
  readonly acked: number
  readonly refused: number
  /** Distinct messages that arrived as they should. */
  readonly delivered: number
  /** All is sent and answered, and all that was to come came. */
  readonly isDone: boolean
}

export interface Collected {
  readonly cpuSeconds: number
  readonly rssMbPeak: number
  readonly called: number
  /** Of all peers together. */
  readonly counters: PeerCounters
  readonly refusals: Readonly<Record<string, number>>
  readonly events: Readonly<Record<string, number>>
}

export type Answer =
  | { readonly did: 'prepare' | 'connect' | 'tap' }
  | { readonly did: 'exchange'; readonly messages: number }
  | ({ readonly did: 'progress' } & Progress)
  | ({ readonly did: 'collect' } & Collected)
  | { readonly did: 'fail'; readonly reason: string }
