/**
 * Rotations of box keys: the bindings in the database, and their times. It has a random source of its own, like `Ends`.
 */
import type { FrameOf, KeyBindingEntry } from '@sealpost/protocol'
import type { MemoryStore } from '@sealpost/queue/memory'
import { type MeshId, type PeerKey, seededRandom } from '@sealpost/std'

const SALT = 0xb0cce
const TURNS_MAX = 4

export class BoxKeyTurns {
  /** Their times, as fractions of the fault period. */
  readonly shares: readonly number[]
  private readonly formers = new Map<string, KeyBindingEntry[]>()

  constructor(seed: number) {
    const random = seededRandom(seed ^ SALT)
    const count = random.chance(0.5) ? 1 + random.below(TURNS_MAX) : 0
    this.shares = Array.from({ length: count }, random.next)
  }

  /** The newest binding applies, and the same one may be repeated. */
  bind(store: MemoryStore, { meshId, peer }: Owner, bind: FrameOf<'bind'>): FrameOf<'bound'>['outcome'] {
    const member = store.findByKey(meshId, peer)!
    const { boxKey, boxEpoch, notAfterMs, signature } = bind
    const former = member.binding
    if (boxEpoch === former.boxEpoch && isSame(boxKey, former.boxKey)) return 'done'
    if (boxEpoch <= former.boxEpoch) return 'stale_epoch'
    this.formers.set(meshId + peer, [former, ...this.formersOf({ meshId, peer })])
    member.binding = { peer, boxKey, boxEpoch, notAfterMs, signature }
    return 'done'
  }

  /** Newest first. */
  formersOf({ meshId, peer }: Owner): readonly KeyBindingEntry[] {
    return this.formers.get(meshId + peer) ?? []
  }
}

interface Owner {
  readonly meshId: MeshId
  readonly peer: PeerKey
}

export const isSame = (a: Uint8Array, b: Uint8Array): boolean =>
  a.length === b.length && a.every((byte, i) => byte === b[i])

/** The box keys of one peer, as its device stores them. */
export class KeyRing {
  private readonly keys: { boxKey: Uint8Array; boxEpoch: number }[] = []
  private currentEpoch = 0

  /** Accepts envelopes sealed to this key from now on. */
  add(boxKey: Uint8Array, boxEpoch: number): void {
    this.keys.push({ boxKey, boxEpoch })
  }

  /** Seals with this key from now on; older ones are ignored. */
  turnTo(boxEpoch: number): void {
    this.currentEpoch = Math.max(this.currentEpoch, boxEpoch)
  }

  get newestEpoch(): number {
    return this.keys.at(-1)!.boxEpoch
  }

  get current(): Uint8Array {
    return this.keys.find(({ boxEpoch }) => boxEpoch === this.currentEpoch)!.boxKey
  }

  holds(boxKey: Uint8Array): boolean {
    return this.keys.some((own) => isSame(own.boxKey, boxKey))
  }
}
