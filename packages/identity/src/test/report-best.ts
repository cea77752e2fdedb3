const RUNS = 150

/** Prints the time of one step: the best of many short runs, to exclude other load. */
export function reportBest(name: string, rounds: number, step: () => unknown): void {
  let bestMicros = Number.POSITIVE_INFINITY
  for (let run = 0; run < RUNS; run++) {
    const startedAt = performance.now()
    for (let i = 0; i < rounds; i++) step()
    bestMicros = Math.min(bestMicros, ((performance.now() - startedAt) * 1000) / rounds)
  }
  process.stdout.write(`${name.padEnd(60)} ${bestMicros.toFixed(1)} µs\n`)
}
