/** Bounds in time: a shell whose signal also fires when the time is up, and waiting that ends with a signal. */
import { OperatingError } from '@sealpost/std'
import type { Shell } from './completion.ts'

/** @returns the shell to go on with; disposing ends the clock */
export function withDeadline(shell: Shell, seconds: number, sentence: string): Shell & Disposable {
  const clock = new AbortController()
  const timer = setTimeout(() => clock.abort(new OperatingError('timeout', sentence)), seconds * 1000)
  return {
    ...shell,
    signal: AbortSignal.any([shell.signal, clock.signal]),
    [Symbol.dispose]: () => clearTimeout(timer),
  }
}

/** The promise, or the signal's reason as an error, whichever comes first. */
export async function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted()
  const aborted = Promise.withResolvers<never>()
  const abort = () => aborted.reject(signal.reason)
  signal.addEventListener('abort', abort)
  promise.catch(() => undefined) // nobody waits for it after the signal
  try {
    return await Promise.race([promise, aborted.promise])
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

/** Resolves when the signal fires. */
export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve()
    signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
