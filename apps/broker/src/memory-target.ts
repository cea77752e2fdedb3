/**
 * Keeps the process near a size. The platform sizes its heap by the machine's memory, so that under a burst garbage
 * grows far past what is in use; here a collection is asked for, at most once for every few megabytes of mail, while the
 * process is over its target. Each costs 20–30 ms; below the target there is none.
 */
const BYTES_BETWEEN = 3 * 1024 * 1024

export class MemoryTarget {
  private readonly targetBytes: number
  private byteCount = 0

  constructor(targetBytes: number) {
    this.targetBytes = targetBytes
  }

  /** So many bytes of mail went through. */
  passed(byteCount: number): void {
    this.byteCount += byteCount
    if (this.byteCount < BYTES_BETWEEN) return
    this.byteCount = 0
    if (process.memoryUsage.rss() > this.targetBytes) Bun.gc(true)
  }
}
