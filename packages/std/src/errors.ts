/**
 * Defines the errors that are thrown. A broken assumption is a bug, which ends the connection or process. An operating
 * error comes from outside, and some caller handles it.
 */
export class AssertionFailed extends Error {
  override readonly name = 'AssertionFailed'
}

export function assert(fact: unknown, claim: string): asserts fact {
  if (!fact) throw new AssertionFailed(claim)
}

/** Ends a `switch` over a union, whose cases the compiler then proves complete. */
export function unreachable(never: never): never {
  throw new AssertionFailed(`unreachable: ${String(never)}`)
}

/**
 * A failure outside this program, such as a database that is down or a file that is unreadable. `retryable`: the same
 * call may succeed later, and this one may have taken effect.
 */
export class OperatingError extends Error {
  override readonly name = 'OperatingError'
  readonly code: string
  readonly retryable: boolean

  constructor(code: string, message: string, options: { retryable?: boolean; cause?: unknown } = {}) {
    super(message, { cause: options.cause })
    this.code = code
    this.retryable = options.retryable ?? false
  }
}
