/** What `sql.ts` says of terms and turns, in plain code. */
import { readMarking, TURN_COSTS, type Turns } from '@sealpost/protocol'
import type { StoredDelivery } from './memory-store.ts'

export function wantsReceipt({ terms }: StoredDelivery): boolean {
  const marking = terms && readMarking(terms)
  return marking?.kind === 'terms' && marking.terms.receipts !== 'none'
}

/** What comes next, by each row's turn; the order of pushing is another matter. */
export function inTurn(rows: readonly StoredDelivery[], turns: Turns): StoredDelivery[] {
  const counts = [0, 0, 0]
  return rows
    .map((row) => {
      counts[row.priority]! += 1
      return { row, turn: turns[row.priority]! + TURN_COSTS[row.priority]! * counts[row.priority]! }
    })
    .sort((a, b) => a.turn - b.turn || a.row.priority - b.row.priority)
    .map(({ row }) => row)
}
