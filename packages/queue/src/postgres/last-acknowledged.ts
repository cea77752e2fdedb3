/**
 * The envelopes whose commits were the last that this shard acknowledged. Whatever server has these has all that was
 * acknowledged before them, because a standby replays commits in their order (docs/adr/0010-failover.md).
 */

import type { Append } from '@sealpost/protocol'
import type { AckedEnvelope } from '@sealpost/store'
import { secondOf } from './commit-batch.ts'
import type { Outcome } from './outcomes.ts'

/** Of resends that were answered as duplicates in a row; beyond it nothing is proven until something new is stored. */
const RESENDS_MAX = 1_000

type Envelope = Pick<Append, 'meshId' | 'sender' | 'envelopeId'>

export class LastAcknowledged {
  #envelopes: Envelope[] = []
  #isTooMany = false
  /** Changes with each note. */
  #version = 0

  /** Null: more resends than are remembered. */
  get envelopes(): readonly AckedEnvelope[] | null {
    return this.#isTooMany ? null : this.#envelopes.map(acknowledgedOf)
  }

  get version(): number {
    return this.#version
  }

  /** Its commit came after all that were noted before. */
  stored(envelope: Envelope): void {
    this.#envelopes = [envelope]
    this.#isTooMany = false
    this.#version += 1
  }

  /**
   * What a checked statement decided. What it stored came after the duplicates that it saw. A duplicate of a statement that
   * stored nothing may have come after everything that is noted here, by another shard.
   */
  decided(appends: readonly Append[], decisions: readonly Outcome[]): void {
    const stored = decisions.findIndex(({ status }) => status === 'stored')
    if (stored >= 0) return this.stored(withoutBytes(appends[stored]!))
    const resent = appends.filter((_, i) => decisions[i]!.status === 'duplicate')
    if (resent.length === 0) return
    this.#envelopes.push(...resent.map(withoutBytes))
    this.#isTooMany ||= this.#envelopes.length > RESENDS_MAX
    if (this.#isTooMany) this.#envelopes = []
    this.#version += 1
  }

  /** A later commit of another kind stands for them, unless something was noted since this version. */
  forget(version: number): void {
    if (version !== this.#version) return
    this.#envelopes = []
    this.#isTooMany = false
  }
}

const withoutBytes = ({ meshId, sender, envelopeId }: Append): Envelope => ({ meshId, sender, envelopeId })

const acknowledgedOf = ({ meshId, sender, envelopeId }: Envelope): AckedEnvelope => ({
  ...{ meshId, sender, envelopeId },
  second: secondOf(envelopeId),
})
