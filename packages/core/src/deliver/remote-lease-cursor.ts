/**
 * What one session knows of the blocks from which other shards lease to it at birth. The ids of a block are committed in
 * their order, so behind the last one that was collected lies what is new, and nothing of it is missed when a hint is lost.
 *
 * A block may be collected from once a look into the whole queue has been complete that began after something of the block
 * was seen. A sender writes into blocks drawn after all that it had stored through other shards was committed; so that look
 * has brought it, and what lies in the block comes behind it (P6). Only the database says what was seen, never a hint.
 */
import type { Delivery, IdRange } from '@sealpost/protocol'
import { blockOf, type DeliveryId, ID_BLOCK, type Millis } from '@sealpost/std'

interface Block {
  readonly upTo: number
  readonly atMs: Millis
}

/** Of shards that lease to one peer, each has one at a time. More are left to claims. */
const BLOCKS_MAX = 32

export class RemoteLeaseCursor {
  private readonly collected = new Map<number, Block>()
  /** Said to have something, and not collected from yet. */
  private readonly unverifiedBlocks = new Set<number>()
  /** Of these, the last id that was seen. */
  private readonly scannedBlocks = new Map<number, number>()
  /** Blocks with something to collect. */
  readonly readyBlocks = new Set<number>()

  /** Something of its block is there. Answers false when a claim is to look for it. */
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

  /** What to collect next. */
  takeReady(): IdRange | null {
    for (const block of this.readyBlocks) {
      this.readyBlocks.delete(block)
      return { from: this.collected.get(block)!.upTo + 1, to: (block + 1) * ID_BLOCK - 1 }
    }
    return null
  }

  /** A claim for everything begins; it finds all that was heard of. */
  scanBegins(): void {
    this.readyBlocks.clear()
  }

  /** The last id of each block, for `Want.collected`. */
  get lastIds(): readonly number[] {
    return this.collected.size === 0 ? NONE : [...this.collected.values()].map(({ upTo }) => upTo)
  }

  /** It ended, and brought these; complete: and nothing is left. */
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

  /** The session has another epoch: whatever was leased to it is free. */
  reset(): void {
    this.collected.clear()
    this.unverifiedBlocks.clear()
    this.scannedBlocks.clear()
    this.readyBlocks.clear()
  }

  private begin(block: number, id: number, { nowMs, staleMs }: { nowMs: Millis; staleMs: Millis }): void {
    // What was collected of a block must be known for as long as its leases hold.
    if (this.collected.size >= BLOCKS_MAX)
      for (const [old, { atMs }] of this.collected) if (nowMs - atMs > staleMs) this.collected.delete(old)
    this.unverifiedBlocks.delete(block)
    const upTo = Math.max(id, this.collected.get(block)?.upTo ?? 0)
    if (this.collected.size < BLOCKS_MAX || this.collected.has(block)) this.collected.set(block, { upTo, atMs: nowMs })
  }
}

const NONE: readonly number[] = []
