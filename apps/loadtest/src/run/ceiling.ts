/** The search for the highest rate that is held: up a ladder of rates, then between the last good and the first bad one. */

export interface Attempt<Found> {
  readonly rate: number
  readonly isGood: boolean
  readonly found: Found
}

export interface Search {
  /** From the lowest to the highest. */
  readonly rates: readonly number[]
  /** How often the span between a good and a bad rate is split at most. */
  readonly splits: number
}

/** A split of a narrower span says no more than the noise of the machine. */
const NARROW = 1.1

/**
 * A rate is bad when it was not held twice, and the ladder ends with two bad ones in a row: what else the machine does may
 * spoil a few attempts.
 * @returns all attempts, in the order in which they were made
 */
export async function searchCeiling<Found>(
  { rates, splits }: Search,
  attempt: (rate: number) => Promise<Attempt<Found>>,
): Promise<Attempt<Found>[]> {
  const attempts: Attempt<Found>[] = []
  const isHeld = async (rate: number): Promise<boolean> => {
    for (let time = 0; time < 2; time++) {
      attempts.push(await attempt(rate))
      if (attempts.at(-1)!.isGood) return true
    }
    return false
  }
  let [good, bad] = [0, Infinity]
  for (const rate of rates) {
    if (await isHeld(rate)) [good, bad] = [rate, Infinity]
    else if (bad < Infinity) break
    else bad = rate
  }
  for (let split = 0; split < splits && bad < Infinity && bad > good * NARROW; split++) {
    const rate = between(good, bad)
    if (rate <= good || rate >= bad) break
    if (await isHeld(rate)) good = rate
    else bad = rate
  }
  return attempts
}

/** Rounded to two digits: rates that people can compare. */
function between(good: number, bad: number): number {
  const middle = good === 0 ? bad / 2 : Math.sqrt(good * bad)
  const unit = Math.max(1, 10 ** (Math.floor(Math.log10(middle)) - 1))
  return Math.round(middle / unit) * unit
}

export function highestGood<Found>(attempts: readonly Attempt<Found>[]): Attempt<Found> | undefined {
  return attempts.filter(({ isGood }) => isGood).toSorted((a, b) => b.rate - a.rate)[0]
}

/** The lowest rate above the highest good one; undefined: none was tried, or none was bad. */
export function lowestBad(attempts: readonly Attempt<unknown>[]): number | undefined {
  const best = highestGood(attempts)?.rate ?? 0
  return attempts
    .map(({ rate }) => rate)
    .filter((rate) => rate > best)
    .toSorted((a, b) => a - b)[0]
}
