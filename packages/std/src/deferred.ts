export interface Deferred<T> {
  readonly promise: Promise<T>
  readonly resolve: (value: T | PromiseLike<T>) => void
  readonly reject: (reason?: unknown) => void
}

/** `Promise.withResolvers`, which Node 20 and browsers before 2024 lack. */
export function withResolvers<T>(): Deferred<T> {
  let resolve!: Deferred<T>['resolve']
  let reject!: Deferred<T>['reject']
  const promise = new Promise<T>((accepted, refused) => {
    resolve = accepted
    reject = refused
  })
  return { promise, resolve, reject }
}
