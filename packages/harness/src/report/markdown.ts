/** Generated parts of Markdown pages. */

/**
 * Replaces the text between each pair of markers; null keeps what the page has. Markers on one line stay on one line.
 * @throws Error when a marker is missing
 */
export function fillPage(page: string, texts: Readonly<Record<string, string | null>>): string {
  let filled = page
  for (const [name, text] of Object.entries(texts)) {
    const [begin, end] = [`<!-- begin: ${name} -->`, `<!-- end: ${name} -->`]
    const from = filled.indexOf(begin)
    const to = filled.indexOf(end, from)
    if (from < 0 || to < 0) throw new Error(`The page has no markers for "${name}": ${begin} … ${end}`)
    const gap = filled.slice(from, to).includes('\n') ? '\n' : ''
    if (text !== null) filled = `${filled.slice(0, from + begin.length)}${gap}${text}${gap}${filled.slice(to)}`
  }
  return filled
}

/** A Markdown table. All columns but the first are aligned to the right. */
export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [line(head), `|---|${'---:|'.repeat(head.length - 1)}`, ...rows.map(line)].join('\n')
}
