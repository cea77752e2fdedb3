/** What a broker says of itself over plain HTTP, beside its WebSocket. */
import { certificateTrouble } from '@sealpost/sdk'
import { isRecord } from './json-file.ts'

export interface BrokerHealth {
  readonly live: boolean
  readonly ready: boolean
  /** Of `/version`; null when it does not answer. */
  readonly version: { readonly version: string; readonly brokerKey: string; readonly durability: string } | null
  /** How far its clock is ahead of ours, from the `Date` of its answer, which counts whole seconds. */
  readonly clockAheadMs: number | null
  /** What the platform says of a certificate that it does not trust. */
  readonly certificateTrouble: string | null
}

const ANSWER_WITHIN_MS = 10_000

/** Never throws: a broker that does not answer is an answer. */
export async function askBroker(url: string, signal: AbortSignal): Promise<BrokerHealth> {
  const base = new URL(url)
  base.protocol = base.protocol === 'wss:' ? 'https:' : 'http:'
  let trouble: string | null = null
  const get = (path: string) =>
    fetch(new URL(path, base), {
      signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_WITHIN_MS)]),
      redirect: 'error',
    }).catch((error) => {
      trouble = certificateTrouble(error)
      return null // reported as not live
    })
  const [live, ready, version] = await Promise.all([get('/livez'), get('/readyz'), get('/version')])
  return {
    live: live?.ok === true,
    ready: ready?.ok === true,
    version: version?.ok ? versionOf(await version.json().catch(() => null)) : null,
    clockAheadMs: live ? clockAhead(live.headers.get('date')) : null,
    certificateTrouble: trouble,
  }
}

function versionOf(facts: unknown): BrokerHealth['version'] {
  if (!isRecord(facts)) return null
  const { version, brokerKey, durability } = facts
  return { version: String(version), brokerKey: String(brokerKey), durability: String(durability) }
}

/** The whole second is over by half a one on average. */
function clockAhead(date: string | null): number | null {
  const atMs = date === null ? Number.NaN : Date.parse(date)
  return Number.isNaN(atMs) ? null : atMs + 500 - Date.now()
}
