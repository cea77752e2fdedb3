/** Caches database reads of the admin API for five seconds, for all clients together. */
import type { Millis } from '@sealpost/std'

const GOOD_FOR_MS = 5000

export class Cached<T> {
  private readonly look: () => Promise<T>
  private known: { readonly value: T; readonly atMs: Millis } | null = null
  private asking: Promise<T> | null = null

  constructor(look: () => Promise<T>) {
    this.look = look
  }

  async read(): Promise<T> {
    if (this.known && performance.now() - this.known.atMs < GOOD_FOR_MS) return this.known.value
    this.asking ??= this.ask().finally(() => {
      this.asking = null
    })
    return this.asking
  }

  private async ask(): Promise<T> {
    const value = await this.look()
    this.known = { value, atMs: performance.now() }
    return value
  }
}
