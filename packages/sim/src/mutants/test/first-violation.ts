/** Runs the worlds that the arguments of the program name: the first seed, and how many. */
export function printFirstViolation(run: (seed: number) => { readonly violation: string | null }): void {
  const [firstSeed, seeds] = process.argv.slice(2).map(Number) as [number, number]
  for (let seed = firstSeed; seed < firstSeed + seeds; seed++) {
    const { violation } = run(seed)
    if (violation === null) continue
    process.stdout.write(`${violation} (seed ${seed})\n`)
    break
  }
}
