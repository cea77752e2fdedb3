/**
 * Tracks the blocks of ids from which other shards lease deliveries to one session on insert. The ids of a block are
 * committed in order, so new deliveries have higher ids than the last collected one, and none is missed if a hint is
 * lost.
 *
 * A session may collect from a block after a complete scan of the queue that began after a delivery of the block was
 * seen. A block is drawn after its sender's mail through other shards was committed, so the scan has returned that mail
 * (P6). Only the database establishes what was seen, never a hint.
 */
import type { Delivery, IdRange } from '@sealpost/protocol'
import { blockOf, type DeliveryId, ID_BLOCK, type Millis } from '@sealpost/std'

interface Block {
  readonly upTo: number
  readonly atMs: Millis
}

/** The maximum number of tracked blocks, one per shard that leases to the peer. Mail in further blocks is claimed. */
const BLOCKS_MAX = 32

export class RemoteLeaseCursor {
  private readonly collected = new Map<number, Block>()
  /** Announced blocks from which nothing may be collected yet. */
  private readonly unverifiedBlocks = new Set<number>()
  /** The last seen id of each verified block. */
  private readonly scannedBlocks = new Map<number, number>()
  readonly readyBlocks = new Set<number>()

  /** Call when a hint has announced a delivery. Returns false if only a claim can find it. */
  announced(id: DeliveryId): boolean {
    const block = blockOf(id)
    const known = this.collected.get(block)
    if (known === undefined) {
      if (this.unverifiedBlocks.size < BLOCKS_MAX) this.unverifiedBlocks.add(block)
      return false
    }
    if (known.upTo < id) this.readyBlocks.add(block)
    return true
  }

  takeReady(): IdRange | null {
    for (const block of this.readyBlocks) {
      this.readyBlocks.delete(block)
      return { from: this.collected.get(block)!.upTo + 1, to: (block + 1) * ID_BLOCK - 1 }
    }
    return null
  }

  /** Call when a claim for all mail begins, which scans every announced block. */
  scanBegins(): void {
    this.readyBlocks.clear()
  }

  /** Returns the last id of each block, for `Want.collected`. */
  get lastIds(): readonly number[] {
    return this.collected.size === 0 ? NONE : [...this.collected.values()].map(({ upTo }) => upTo)
  }

  /** Call when a claim has returned these deliveries. `isComplete`: whether no delivery is left in the queue. */
  scanned(deliveries: readonly Delivery[], at: { isComplete: boolean; nowMs: Millis; staleMs: Millis }): void {
    for (const { id } of deliveries) {
      const block = blockOf(id)
      if (this.unverifiedBlocks.has(block) || this.collected.has(block))
        this.scannedBlocks.set(block, Math.max(this.scannedBlocks.get(block) ?? 0, id))
    }
    if (!at.isComplete) return
    for (const [block, id] of this.scannedBlocks) this.begin(block, id, at)
    this.scannedBlocks.clear()
  }

  collectedOf({ from }: IdRange, deliveries: readonly Delivery[], nowMs: Millis): void {
    if (deliveries.length === 0) return
    const upTo = deliveries.reduce((last, { id }) => Math.max(last, id), from - 1)
    this.collected.set(blockOf(from), { upTo, atMs: nowMs })
  }

  /** Call when the session has received a new epoch, which voids all its leases. */
  reset(): void {
    this.collected.clear()
    this.unverifiedBlocks.clear()
    this.scannedBlocks.clear()
    this.readyBlocks.clear()
  }

  private begin(block: number, id: number, { nowMs, staleMs }: { nowMs: Millis; staleMs: Millis }): void {
    // Keep the cursors of all blocks with valid leases.
    if (this.collected.size >= BLOCKS_MAX)
      for (const [old, { atMs }] of this.collected) if (nowMs - atMs > staleMs) this.collected.delete(old)
    this.unverifiedBlocks.delete(block)
    const upTo = Math.max(id, this.collected.get(block)?.upTo ?? 0)
    if (this.collected.size < BLOCKS_MAX || this.collected.has(block)) this.collected.set(block, { upTo, atMs: nowMs })
  }
}

const NONE: readonly number[] = []
