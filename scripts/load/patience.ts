/** What a client does that is put off: it asks again after the time that it was told, and a random one like the SDK's. */
import { backoffMs } from '@sealpost/sdk/backoff'

/** As long as the SDK has it for requests over HTTP. */
const PATIENCE_MS = 300_000
/** Refusals that pass. */
const PASSING: readonly unknown[] = ['rate_limited', 'too_many_requests', 'try_later', 'restarting']

export interface Refusable {
  readonly code?: string | undefined
  readonly retryAfterMs?: number | undefined
}

/** How often clients were put off. */
export interface PutOffs {
  count: number
}

/** @returns the first answer that is no passing refusal, or the last one within its patience */
export async function patiently<A extends Refusable>(ask: () => Promise<A>, putOffs: PutOffs): Promise<A> {
  const untilMs = performance.now() + PATIENCE_MS
  for (let failures = 0; ; failures++) {
    const answer = await ask()
    // Clients of one address are told the same time: without the random part they would all come back together.
    const waitMs = (answer.retryAfterMs ?? 0) + backoffMs(failures, Math.random)
    if (!PASSING.includes(answer.code) || performance.now() + waitMs > untilMs) return answer
    putOffs.count += 1
    await Bun.sleep(waitMs)
  }
}
