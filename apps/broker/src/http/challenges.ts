/** Challenges that wait for the signature of a token request. Each is valid once, until its expiry. */
import type { FrameOf } from '@sealpost/protocol'

type Greeting = FrameOf<'hello'>

/** The oldest is dropped first. One takes about 400 bytes. */
const WAITING_MAX = 10_000

export class Challenges {
  private readonly greet: () => Greeting
  private readonly waiting = new Map<string, { greeting: Greeting; untilMs: number }>()

  constructor(greet: () => Greeting) {
    this.greet = greet
  }

  ask(): Greeting {
    const greeting = this.greet()
    this.waiting.set(nameOf(greeting.connectionId), { greeting, untilMs: performance.now() + greeting.authWithinMs })
    if (this.waiting.size > WAITING_MAX) this.waiting.delete(this.waiting.keys().next().value!)
    return greeting
  }

  take(connectionId: Uint8Array): Greeting | undefined {
    const name = nameOf(connectionId)
    const found = this.waiting.get(name)
    this.waiting.delete(name)
    return found && performance.now() < found.untilMs ? found.greeting : undefined
  }
}

const nameOf = (connectionId: Uint8Array): string => Buffer.from(connectionId).toString('base64url')
