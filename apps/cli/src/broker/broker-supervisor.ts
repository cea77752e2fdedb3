/** Restarts a broker that dies on the same port, after increasing pauses. Gives up if a start fails. */
import { setTimeout as delay } from 'node:timers/promises'
import { type BrokerFacts, type BrokerOptions, type BrokerProgram, startBroker } from '@sealpost/broker-program'
import { isExposed, portOf } from '@sealpost/identity'
import { certificateErrorCode } from '@sealpost/sdk'
import type { Millis } from '@sealpost/std'
import { isRecord } from '../profile/profile.ts'

interface BrokerSupervisorEvents {
  readonly died: (lastWords: string, inMs: Millis) => void
  readonly restarted: (facts: BrokerFacts) => void
}

const PAUSE_MIN_MS = 250
const PAUSE_MAX_MS = 10_000
/** The uptime after which a broker counts as healthy. */
const STEADY_AFTER_MS = 30_000

export class BrokerSupervisor implements AsyncDisposable {
  readonly first: BrokerFacts
  /** Rejects if the broker can't be restarted. */
  readonly gaveUp: Promise<never>
  #current: BrokerProgram
  readonly #stopping = new AbortController()

  private constructor(current: BrokerProgram, options: BrokerOptions, events: BrokerSupervisorEvents) {
    this.first = current
    this.#current = current
    this.gaveUp = this.#keep(options, events)
    this.gaveUp.catch(() => undefined) // the waiting caller reports the error
  }

  /** Starts the broker and its supervisor. @throws OperatingError `broker_not_started`, `port_taken` */
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
      await delay(pauseMs, undefined, { signal }).catch(() => undefined) // rejects if the broker was stopped
      if (signal.aborted) break
      pauseMs = Math.min(PAUSE_MAX_MS, 2 * pauseMs)
      this.#current = await startBroker(options)
      if (signal.aborted) await this.#current.stop()
      else events.restarted(this.#current)
    }
    return new Promise<never>(() => undefined) // the owner has stopped the broker and does not wait
  }
}

/** A broker's health, as reported over HTTP. */
export interface BrokerHealth {
  readonly live: boolean
  readonly ready: boolean
  /** The version from `/version`; null without a response. */
  readonly version: { readonly version: string; readonly brokerKey: string; readonly durability: string } | null
  /** How far the broker's clock is ahead, in whole seconds of the `Date` header. */
  readonly clockAheadMs: number | null
  /** The runtime's error code for an untrusted certificate. */
  readonly certificateErrorCode: string | null
}

const ANSWER_WITHIN_MS = 10_000

/** Never throws, because an unreachable broker is a result too. */
export async function checkBroker(url: string, signal: AbortSignal): Promise<BrokerHealth> {
  const base = new URL(url)
  base.protocol = base.protocol === 'wss:' ? 'https:' : 'http:'
  let trouble: string | null = null
  const get = (path: string) =>
    fetch(new URL(path, base), {
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_WITHIN_MS)]),
      redirect: 'error',
    }).catch((error) => {
      trouble = certificateErrorCode(error)
      return null // the broker then counts as not live
    })
  const [live, ready, version] = await Promise.all([get('/livez'), get('/readyz'), get('/version')])
  return {
    live: live?.ok === true,
    ready: ready?.ok === true,
    version: version?.ok ? versionOf(await version.json().catch(() => null)) : null,
    clockAheadMs: live ? clockAhead(live.headers.get('date')) : null,
    certificateErrorCode: trouble,
  }
}

function versionOf(facts: unknown): BrokerHealth['version'] {
  if (!isRecord(facts)) return null
  const { version, brokerKey, durability } = facts
  return { version: String(version), brokerKey: String(brokerKey), durability: String(durability) }
}

/**
 * Returns how far the broker's clock is ahead. Adds half a second, by which the header's truncated time is early on
 * average.
 */
function clockAhead(date: string | null): number | null {
  const atMs = date === null ? Number.NaN : Date.parse(date)
  return Number.isNaN(atMs) ? null : atMs + 500 - Date.now()
}

/** The stable code of warnings about unencrypted connections. */
export const UNENCRYPTED = 'unencrypted_transport'

const READABLE =
  'message bodies are end-to-end encrypted, but anyone on the network path can read tokens, unused invites, names, and who writes to whom and when'

/** Returns a warning for an address that peers dial, or null if it uses TLS or is on this machine. */
export function dialWarning(url: string): string | null {
  return isExposed(url) ? `${url} is not encrypted: ${READABLE} (${UNENCRYPTED}). Use wss://.` : null
}

/** Returns a warning for a host that the broker listens on, or null. */
export const listenWarning = (host: string): string =>
  `The broker listens on ${host} without TLS: ${READABLE} (${UNENCRYPTED}). Use --tls-cert and --tls-key, or a proxy with TLS and --host 127.0.0.1.`
