/** What a broker says of itself over plain HTTP, beside its WebSocket. */

import { isExposed } from '@sealpost/identity'
import { certificateErrorCode } from '@sealpost/sdk'
import { isRecord } from '../profile/json-file.ts'

export interface BrokerHealth {
  readonly live: boolean
  readonly ready: boolean
  /** Of `/version`; null when it does not answer. */
  readonly version: { readonly version: string; readonly brokerKey: string; readonly durability: string } | null
  /** How far its clock is ahead of ours, from the `Date` of its answer, which counts whole seconds. */
  readonly clockAheadMs: number | null
  /** What the platform says of a certificate that it does not trust. */
  readonly certificateErrorCode: string | null
}

const ANSWER_WITHIN_MS = 10_000

/** Never throws: a broker that does not answer is an answer. */
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
      return null // reported as not live
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

/** The whole second is over by half a one on average. */
function clockAhead(date: string | null): number | null {
  const atMs = date === null ? Number.NaN : Date.parse(date)
  return Number.isNaN(atMs) ? null : atMs + 500 - Date.now()
}

/** Scripts rely on it: it stands in each warning, and in the check of `doctor`. */
export const UNENCRYPTED = 'unencrypted_transport'

const READABLE =
  'bodies of messages are sealed end to end, but tokens, unused invites, names, and who writes to whom and when can be read on the way'

/** Of an address that is dialled; null: it is encrypted, or on this machine. */
export function dialWarning(url: string): string | null {
  return isExposed(url) ? `${url} is not encrypted: ${READABLE} (${UNENCRYPTED}). Use wss://.` : null
}

/** Of an address that is listened on. */
export const listenWarning = (host: string): string =>
  `The broker listens on ${host} without TLS: ${READABLE} (${UNENCRYPTED}). Use --tls-cert and --tls-key, or a proxy with TLS and --host 127.0.0.1.`
