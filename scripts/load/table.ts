/** Tables and lists of a report on the terminal. */
import Table from 'cli-table3'
import type { createColors } from 'picocolors'

export type Paint = ReturnType<typeof createColors>

export type Fact = readonly [name: string, text: string]

export function aligned(lines: readonly Fact[], paint: Paint): string {
  return lines.map(([name, text]) => `  ${paint.dim(name.padEnd(9))} ${text}`).join('\n')
}

/** Columns without a frame; all but the first to the right. */
export function plainTable(head: string[], paint: Paint): Table.Table {
  const nothing = ['top', 'top-mid', 'top-left', 'top-right', 'bottom', 'bottom-mid', 'bottom-left', 'bottom-right']
  const lines = [...nothing, 'left', 'left-mid', 'mid', 'mid-mid', 'right', 'right-mid', 'middle']
  return new Table({
    head: head.map((name) => paint.dim(name)),
    chars: Object.fromEntries(lines.map((name) => [name, ''])),
    colAligns: head.map((_, i) => (i === 0 ? 'left' : 'right')),
    style: { head: [], border: [], 'padding-left': 2, 'padding-right': 0 },
  })
}
