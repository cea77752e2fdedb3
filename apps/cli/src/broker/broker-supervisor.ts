/**
 * Keeps one broker running: one that dies is started again on the same port, at growing intervals, so that its peers come
 * back by themselves. It gives up when the broker can't even start any more.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type BrokerFacts, type BrokerOptions, type BrokerProgram, startBroker } from '@sealpost/broker-program'
import { portOf } from '@sealpost/identity'
import type { Millis } from '@sealpost/std'

export interface BrokerSupervisorEvents {
  readonly died: (lastWords: string, inMs: Millis) => void
  readonly restarted: (facts: BrokerFacts) => void
}

const PAUSE_MIN_MS = 250
const PAUSE_MAX_MS = 10_000
/** A life of this length shows that the broker can run. */
const STEADY_AFTER_MS = 30_000

export class BrokerSupervisor implements AsyncDisposable {
  readonly first: BrokerFacts
  /** Rejects when the broker does not start again. */
  readonly gaveUp: Promise<never>
  #current: BrokerProgram
  readonly #stopping = new AbortController()

  private constructor(current: BrokerProgram, options: BrokerOptions, events: BrokerSupervisorEvents) {
    this.first = current
    this.#current = current
    this.gaveUp = this.#keep(options, events)
    this.gaveUp.catch(() => undefined) // whoever waits for it is told
  }

  /** @throws OperatingError `broker_not_started`, `port_taken` */
  static async start(options: BrokerOptions, events: BrokerSupervisorEvents): Promise<BrokerSupervisor> {
    const first = await startBroker(options)
    const environment = {
      ...options.environment,
      PORT: String(portOf(first.url)),
      ADMIN_PORT: String(portOf(first.adminUrl)),
    }
    return new BrokerSupervisor(first, { ...options, environment }, events)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stopping.abort()
    await this.#current.stop()
  }

  async #keep(options: BrokerOptions, events: BrokerSupervisorEvents): Promise<never> {
    const { signal } = this.#stopping
    for (let pauseMs = PAUSE_MIN_MS; ; ) {
      const startedAtMs = performance.now()
      const lastWords = await this.#current.exited
      if (signal.aborted) break
      if (performance.now() - startedAtMs > STEADY_AFTER_MS) pauseMs = PAUSE_MIN_MS
      events.died(lastWords, pauseMs)
      await delay(pauseMs, undefined, { signal }).catch(() => undefined) // the end of this keeper
      if (signal.aborted) break
      pauseMs = Math.min(PAUSE_MAX_MS, 2 * pauseMs)
      this.#current = await startBroker(options)
      if (signal.aborted) await this.#current.stop()
      else events.restarted(this.#current)
    }
    return new Promise<never>(() => undefined) // stopped by its owner, who waits for nothing
  }
}
