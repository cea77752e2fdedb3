/** The attacks: `bun scripts/attack.ts --list`. A new one goes into the file of its kind. */
import type { MeshId, PeerKey } from '@sealpost/std'
import type { StageMember } from './measure.ts'
import { memberAttacks } from './members.ts'
import { unprovenAttacks } from './unproven.ts'

/** A broker and a mesh on it. */
export interface AttackTarget {
  /** ws://127.0.0.1:port/v1/ws */
  readonly url: string
  readonly httpUrl: string
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
}

export interface AttackContext {
  readonly target: AttackTarget
  /** Enrolled members of the attacker; as many as the attack needs. */
  readonly members: readonly StageMember[]
  /** Aborts at the end of the turn. */
  readonly signal: AbortSignal
  /** Counts a reply of the broker: a status, a close code, or a word of the attacker. */
  readonly count: (answer: string | number) => void
}

/** What honest peers try once a second besides their messages, from a different address than the attacker's. */
export type ProbeKind = 'join' | 'file' | 'replay'

export interface Attack {
  readonly name: string
  /** A sentence for `--list`. */
  readonly does: string
  /** The number of members of the attacker. */
  readonly members?: number
  /** One unproven address, which may cost 5 % of a core. */
  readonly isOneUnprovenAddress?: true
  /** Default: `join`. */
  readonly probe?: ProbeKind
  /** The mesh has a history (`HISTORY` in `measure.ts`) that its members may read. */
  readonly hasHistory?: true
  /** Settings of the broker that differ from the defaults. */
  readonly env?: Readonly<Record<string, string>>
  /** Attacks until `signal` aborts, then returns within a second. */
  readonly run: (context: AttackContext) => Promise<void>
}

export const attacks: readonly Attack[] = [...unprovenAttacks, ...memberAttacks]
