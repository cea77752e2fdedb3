/** Simulates the peers' stores on slow disks. */
import type { Message, StoreChange, StoreRecord } from '@sealpost/sdk'
import type { EngineStore } from '@sealpost/sdk/engine'
import { type Millis, type Random, seededRandom } from '@sealpost/std'
import type { VirtualClock } from '../clock.ts'

const DISK_SALT = 0x5757
const WRITE_MS_MAX: Millis = 400

/** Gives peers a store on a slow disk in some worlds, with a separate random source, like `Ends`. */
export class Disks {
  private readonly clock: VirtualClock
  private readonly random: Random
  private readonly isOn: boolean

  constructor(clock: VirtualClock, seed: number) {
    this.clock = clock
    this.random = seededRandom(seed ^ DISK_SALT)
    this.isOn = this.random.chance(0.2)
  }

  /** Returns the next peer's store, if it has one. `written` is called when a batch is stored. */
  create(written: () => void): SimulatedStore | null {
    if (!this.isOn || this.random.chance(0.5)) return null
    return new SimulatedStore((store) => this.clock.after(this.random.next() * WRITE_MS_MAX, store), written)
  }
}

export class SimulatedStore implements EngineStore {
  readonly records: readonly StoreRecord[] = []
  private readonly stored = new Map<string, StoreRecord>()
  private readonly later: (store: () => void) => void
  private readonly written: () => void
  private waiters: { readonly message: Message; readonly marked: () => void }[] = []

  constructor(later: SimulatedStore['later'], written: () => void) {
    this.later = later
    this.written = written
  }

  write(changes: readonly StoreChange[]): void {
    this.later(() => {
      for (const { key, record } of changes) {
        if (record) this.stored.set(key, record)
        else this.stored.delete(key)
      }
      const { waiters } = this
      this.waiters = waiters.filter(({ message }) => !this.isMarked(message))
      for (const waiter of waiters) if (!this.waiters.includes(waiter)) waiter.marked()
      this.written()
    })
  }

  /** Calls back when a message's mark is stored, after which no process of the peer receives it again. */
  whenMarked(message: Message, marked: () => void): void {
    this.waiters.push({ message, marked })
  }

  private isMarked({ sender, envelopeId, stream }: Message): boolean {
    for (const record of this.stored.values()) {
      if (record.kind === 'loose' && record.sender === sender && record.envelopeId === envelopeId) return true
      if (record.kind !== 'mark' || record.sender !== sender || record.streamId !== stream?.streamId) continue
      const { settled } = record
      if (settled.some((from, i) => i % 2 === 0 && from <= stream.seq && stream.seq <= settled[i + 1]!)) return true
    }
    return false
  }
}
