/** Waiting with a limit. */
import { setTimeout as delay } from 'node:timers/promises'
import { type Millis, OperatingError } from '@sealpost/std'

const LOOK_MS: Millis = 20
const WITHIN_MS: Millis = 120_000

/**
 * Resolves once the condition is true.
 * @param claim - the condition in words, for the error
 * @throws OperatingError `wait_timed_out`
 */
export async function waitUntil(
  claim: string,
  condition: () => boolean | Promise<boolean>,
  withinMs = WITHIN_MS,
): Promise<void> {
  const deadline = performance.now() + withinMs
  while (!(await condition())) {
    if (performance.now() > deadline)
      throw new OperatingError('wait_timed_out', `Not true after ${withinMs / 1000} s: ${claim}.`)
    await delay(LOOK_MS)
  }
}
