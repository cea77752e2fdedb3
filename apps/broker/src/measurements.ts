/** Looks what waits for recipients: one statement at a time, for all that were asked about meanwhile. */
import type { Measured } from '@sealpost/protocol'
import type { Recipient } from '@sealpost/queue'

interface Ports {
  readonly ask: (recipients: readonly Recipient[]) => Promise<Measured[][]>
  /** `null`: no answer came. */
  readonly found: (recipient: Recipient, found: readonly Measured[] | null) => void
  readonly failed: (error: unknown) => void
}

/** A full mailbox is 10,000 rows to look at. */
const RECIPIENTS_MAX = 16

export class Measurements {
  private readonly ports: Ports
  private waiting: Recipient[] = []
  private isAsking = false

  constructor(ports: Ports) {
    this.ports = ports
  }

  add(recipient: Recipient): void {
    this.waiting.push(recipient)
    void this.work()
  }

  private async work(): Promise<void> {
    if (this.isAsking) return
    this.isAsking = true
    while (this.waiting.length > 0) {
      const asked = this.waiting.splice(0, RECIPIENTS_MAX)
      const answers = await this.ports.ask(asked).catch((error) => {
        this.ports.failed(error)
        return null
      })
      for (const [i, recipient] of asked.entries()) this.ports.found(recipient, answers?.[i] ?? null)
    }
    this.isAsking = false
  }
}
