/** Puts generated text between the markers of a page, and leaves the rest of it alone. */

/**
 * A name without a text keeps what the page has. Where both markers stand in one line, the text stays in it.
 *
 * @throws Error when a name has no markers, or only one
 */
export function fillPage(page: string, texts: Readonly<Record<string, string | null>>): string {
  let filled = page
  for (const [name, text] of Object.entries(texts)) {
    const [begin, end] = [`<!-- begin: ${name} -->`, `<!-- end: ${name} -->`]
    const from = filled.indexOf(begin)
    const to = filled.indexOf(end, from)
    if (from < 0 || to < 0) throw new Error(`The page has no place for "${name}": ${begin} … ${end}`)
    const gap = filled.slice(from, to).includes('\n') ? '\n' : ''
    if (text !== null) filled = `${filled.slice(0, from + begin.length)}${gap}${text}${gap}${filled.slice(to)}`
  }
  return filled
}

/** In Markdown; all columns but the first to the right. */
export function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`
  return [line(head), `|---|${'---:|'.repeat(head.length - 1)}`, ...rows.map(line)].join('\n')
}
