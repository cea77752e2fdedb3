/** Bytes of chunks that this process has in memory, of which there are only so many at a time. */
export class Transit {
  private readonly bytesMax: number
  private held = 0

  constructor(bytesMax: number) {
    this.bytesMax = bytesMax
  }

  get bytes(): number {
    return this.held
  }

  /** Gives back what was taken when it is called, once; `null`: there is no room now. */
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
