/** What became of numbered messages of one sender to one recipient. */
export interface Order {
  readonly lost: number
  /** Shown to an application twice. */
  readonly duplicates: number
  readonly misordered: number
}

/** Of the numbers from 0, as they were read. */
export function orderOf(read: readonly number[], count: number): Order {
  const distinct = new Set(read).size
  const misordered = read.filter((number, i) => i > 0 && number < read[i - 1]!).length
  return { lost: count - distinct, duplicates: read.length - distinct, misordered }
}
