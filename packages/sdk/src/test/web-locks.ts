/** Provides tests with the Web Locks of one browser, whose tabs can crash. */
import type { LockHolder, LockManager } from '../stores/web/indexeddb-store.ts'

export class TestingLocks implements LockManager {
  private held = new Set<string>()

  async request(name: string, _: { ifAvailable: true }, hold: LockHolder): Promise<void> {
    const { held } = this
    if (held.has(name)) return void (await hold(null))
    held.add(name)
    try {
      await hold({ name })
    } finally {
      held.delete(name)
    }
  }

  /** Releases the locks of all holders. */
  crash(): void {
    this.held = new Set()
  }
}
