/**
 * Defines the two kinds of errors that are thrown. A broken assumption is a bug: the connection or the process ends and
 * never continues after it. An operating error comes from outside, and some caller has a plan for it.
 */
export class AssertionFailed extends Error {
  override readonly name = 'AssertionFailed'
}

export function assert(fact: unknown, claim: string): asserts fact {
  if (!fact) throw new AssertionFailed(claim)
}

/** Ends a `switch` over a union, so that the compiler proves that no case is missing. */
export function unreachable(never: never): never {
  throw new AssertionFailed(`unreachable: ${String(never)}`)
}

/**
 * A failure outside this program, such as a database that is down or a file that is unreadable. Thrown at the edges and
 * caught where there is a plan. `retryable`: the same call may succeed later; this one may have taken effect.
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
