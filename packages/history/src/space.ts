/** The types of spaces. The bytes, including signatures, were verified by the caller. */
import type { Micros, PeerKey, SpaceRef } from '@sealpost/std'

export const HISTORY_FOR = ['none', 'joined', 'all'] as const
type HistoryFor = (typeof HISTORY_FOR)[number]

/** The terms that a space's owner has signed. */
export interface SpaceDefinition extends SpaceRef {
  /** Only increases. */
  readonly epoch: number
  readonly historyFor: HistoryFor
  readonly keepsMessages: boolean
  readonly keepSeconds: number
  readonly keepBytes: number
  readonly statement: Uint8Array
}

export interface Space extends SpaceDefinition {
  /** By the database's clock. */
  readonly now: Micros
  /** The newest granted space key; 0: none. */
  readonly keyEpoch: number
  /** The newest event; 0: none. */
  readonly lastSeq: number
  readonly lastAt: Micros | null
  /** The time from which events are recorded; null: none are. */
  readonly keptSince: Micros | null
  /** Including deleted ones. */
  readonly entries: number
  readonly entryBytes: number
  readonly historyBytes: number
  /** Bytes of entries and history in all spaces of the mesh. */
  readonly meshBytes: number
}

export type PutSpaceOutcome = 'done' | 'stale' | 'not_owner'

export interface SpaceMember {
  readonly peer: PeerKey
  /** The newest key that was granted to it; 0: none. */
  readonly keyEpoch: number
}

export interface GrantNeeds {
  readonly memberCount: number
  /** Peers that were granted the newest key and are no longer members. */
  readonly departed: number
  readonly lacking: readonly SpaceMember[]
}
