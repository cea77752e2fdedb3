/** Limits the bytes of chunks that this process holds in memory. */
export class Transit {
  private readonly bytesMax: number
  private held = 0

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax
  }

  get bytes(): number {
    return this.held
  }

  /** Returns a function that releases the bytes, once; `null` without space. */
  take(bytes: number): (() => void) | null {
    if (this.held + bytes > this.bytesMax) return null
    this.held += bytes
    let isHeld = true
    return () => {
      if (isHeld) this.held -= bytes
      isHeld = false
    }
  }
}
