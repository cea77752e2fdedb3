/** The nouns of spaces. Bytes were checked before they come here, signatures among them. */
import type { Micros, PeerKey, SpaceRef } from '@sealpost/std'

export const HISTORY_FOR = ['none', 'joined', 'all'] as const
type HistoryFor = (typeof HISTORY_FOR)[number]

/** What a space's owner has signed. */
export interface SpaceDefinition extends SpaceRef {
  /** Only grows. */
  readonly epoch: number
  readonly historyFor: HistoryFor
  readonly keepsMessages: boolean
  readonly keepSeconds: number
  readonly keepBytes: number
  readonly statement: Uint8Array
}

/** A space as it is. */
export interface Space extends SpaceDefinition {
  /** By the database's clock. */
  readonly now: Micros
  /** Of the newest space key that was granted; 0: none was. */
  readonly keyEpoch: number
  /** Of the newest event; 0: there was none. */
  readonly lastSeq: number
  readonly lastAt: Micros | null
  /** From when on events are kept; null: they are not. */
  readonly keptSince: Micros | null
  /** Deleted ones among them. */
  readonly entries: number
  readonly entryBytes: number
  readonly historyBytes: number
  /** Of entries and history in all spaces of the mesh. */
  readonly meshBytes: number
}

export type PutSpaceOutcome = 'done' | 'stale' | 'not_owner'

export interface SpaceMember {
  readonly peer: PeerKey
  /** Of the newest key that was granted to it; 0: none was. */
  readonly keyEpoch: number
}

/** Who is to be given a key, and whether it is time for a new one. */
export interface GrantNeeds {
  readonly memberCount: number
  /** Peers that were granted the newest key and are no members any more. */
  readonly departed: number
  /** Members without the newest key; not more than were asked for. */
  readonly lacking: readonly SpaceMember[]
}
