/** What an attack is, and what it has to work with. */
import type { MeshId, PeerKey } from '@sealpost/std'
import type { Member } from './stage.ts'

/** Where the broker is. `Place` of the wire client, without an identity. */
export interface Target {
  /** ws://127.0.0.1:port/v1/ws */
  readonly url: string
  readonly httpUrl: string
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
}

export interface AttackContext {
  readonly target: Target
  /** Enrolled members that belong to the attacker; as many as the attack asks for. */
  readonly members: readonly Member[]
  /** Aborted at the end of the turn. */
  readonly signal: AbortSignal
  /** Counts an answer of the broker: a status, a close code, or the attacker's own word. */
  readonly count: (answer: string | number) => void
}

/** What honest peers try beside their messages: once a second, from another address than the attacker. */
export type Probe = 'join' | 'file' | 'replay'

export interface Attack {
  readonly name: string
  /** One sentence for `--list`. */
  readonly does: string
  /** Members that the attacker has. */
  readonly members?: number
  /** One unproven address, which may cost 5 % of a core. */
  readonly isOneUnprovenAddress?: true
  /** Default: `join`. */
  readonly probe?: Probe
  /** The mesh has a history (`HISTORY` of `stage`) of which its members may read. */
  readonly hasHistory?: true
  /** Settings of the broker that differ from the defaults. */
  readonly env?: Readonly<Record<string, string>>
  /** Attacks until `signal` is aborted, then returns within a second. */
  readonly run: (context: AttackContext) => Promise<void>
}
