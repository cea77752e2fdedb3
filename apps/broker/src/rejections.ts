/**
 * What recipients rejected, on its way to the dead letters. A dead letter is a second copy of its envelope, and everybody's
 * commits are synced behind it in the write-ahead log: so one statement at a time, and few envelopes in each.
 */
import type { Reject, Settle } from '@sealpost/protocol'
import { Serial } from './serial.ts'

interface Ports {
  readonly reject: (rejects: readonly Reject[]) => Promise<void>
  /** Senders wanted to hear of these, and they are committed. */
  readonly told: (told: readonly Settle[]) => void
  readonly failed: (error: unknown) => void
}

/** With the largest envelopes 2 MiB. */
const REJECTS_MAX = 16

interface Rejection {
  readonly reject: Reject
  /** With the last one of a frame. */
  readonly told: readonly Settle[]
}

export class Rejections {
  readonly #ports: Ports
  readonly #serial = new Serial<Rejection>(REJECTS_MAX, (rejections) => this.#run(rejections))

  constructor(ports: Ports) {
    this.#ports = ports
  }

  /** As `Serial.add`. */
  add(rejects: readonly Reject[], told: readonly Settle[]): Promise<boolean> {
    return this.#serial.add(rejects.map((reject, i) => ({ reject, told: i === rejects.length - 1 ? told : [] })))
  }

  async #run(rejections: readonly Rejection[]): Promise<boolean> {
    try {
      await this.#ports.reject(rejections.map(({ reject }) => reject))
    } catch (error) {
      this.#ports.failed(error) // what is still there is pushed again
      return false
    }
    const told = rejections.flatMap((rejection) => rejection.told)
    if (told.length > 0) this.#ports.told(told)
    return true
  }
}
