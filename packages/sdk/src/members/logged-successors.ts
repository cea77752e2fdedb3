/** Reads from a log which recoveries of lost keys took effect, and whether their users had cancelled them (docs/adr/0016). */
import { type Recovery, readHeirs, readIdentityRotation, readRecovery } from '@sealpost/identity'
import type { LogEntry } from '@sealpost/identity/log'
import type { PeerKey } from '@sealpost/std'

export interface LoggedRecovery {
  readonly former: PeerKey
  readonly successor: PeerKey
  readonly statement: Uint8Array
  /** Whether the former key has named heirs again, or has signed a succession to another key. */
  readonly isCancelled: boolean
}

export class LoggedSuccessors {
  /** The successors of each key, of either kind. */
  readonly #successors = new Map<PeerKey, Set<PeerKey>>()
  /** The successors that former keys have signed themselves. */
  readonly #rotated = new Map<PeerKey, Set<PeerKey>>()
  /** The highest epoch of the heirs of each key. */
  readonly #heirEpochs = new Map<PeerKey, number>()
  /** The recovery with the highest epoch of each pair of keys. */
  readonly #recoveries = new Map<string, { readonly recovery: Recovery; readonly statement: Uint8Array }>()

  constructor(entries: readonly LogEntry[]) {
    for (const { kind, statement } of entries) {
      if (kind === 'heirs') this.#addHeirs(statement)
      else if (kind === 'succession') this.#addSuccession(statement)
      else if (kind === 'recovery') this.#addRecovery(statement)
    }
  }

  /** Returns whether the log names a successor of the key. */
  isFormer(key: PeerKey): boolean {
    return this.#successors.has(key)
  }

  /** Returns the recoveries whose successor is listed, or a key that followed it. Others may wait for an objection. */
  applied(listed: ReadonlySet<PeerKey>): readonly LoggedRecovery[] {
    const all = [...this.#recoveries.values()].filter(({ recovery }) => this.#leadsTo(recovery.successor, listed))
    return all.map(({ recovery: { former, successor, epoch }, statement }) => {
      const others = [...(this.#rotated.get(former) ?? [])].filter((key) => key !== successor)
      const isCancelled = (this.#heirEpochs.get(former) ?? 0) > epoch || others.length > 0
      return { former, successor, statement, isCancelled }
    })
  }

  #leadsTo(key: PeerKey, listed: ReadonlySet<PeerKey>): boolean {
    const reached = new Set([key])
    for (const at of reached) {
      if (listed.has(at)) return true
      for (const next of this.#successors.get(at) ?? []) reached.add(next)
    }
    return false
  }

  #addHeirs(statement: Uint8Array): void {
    const heirs = readHeirs(statement)
    if (heirs) this.#heirEpochs.set(heirs.user, Math.max(heirs.epoch, this.#heirEpochs.get(heirs.user) ?? 0))
  }

  #addSuccession(statement: Uint8Array): void {
    const rotation = readIdentityRotation(statement)
    if (!rotation) return
    add(this.#successors, rotation)
    add(this.#rotated, rotation)
  }

  #addRecovery(statement: Uint8Array): void {
    const recovery = readRecovery(statement)
    if (!recovery) return
    add(this.#successors, recovery)
    const pair = `${recovery.former} ${recovery.successor}`
    const known = this.#recoveries.get(pair)?.recovery
    if (!known || known.epoch < recovery.epoch) this.#recoveries.set(pair, { recovery, statement })
  }
}

function add(
  to: Map<PeerKey, Set<PeerKey>>,
  { former, successor }: { readonly former: PeerKey; readonly successor: PeerKey },
): void {
  to.set(former, (to.get(former) ?? new Set()).add(successor))
}
