/**
 * Something outside failed: a database is away, a socket was cut, a file can't be read. Thrown at the edges and caught
 * where there is a plan. `retryable` says that the same call may succeed later; whether it took effect is unknown.
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
