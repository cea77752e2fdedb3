/** A broken assumption is a bug: it ends the connection or the process it was found in, and is never carried on with. */
export class AssertionFailed extends Error {
  override readonly name = 'AssertionFailed'
}

export function assert(fact: unknown, claim: string): asserts fact {
  if (!fact) throw new AssertionFailed(claim)
}

/** Closes a `switch` over a union: the compiler proves that no case is missing. */
export function unreachable(never: never): never {
  throw new AssertionFailed(`unreachable: ${String(never)}`)
}
