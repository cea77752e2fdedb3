/**
 * Scans TypeScript for imports, and for code without comments and literals. TypeScript 7 has no scanner for JavaScript,
 * and Bun's drops type imports.
 */
export interface ImportLine {
  /** The quoted module name, or undefined for a computed `import(…)`. */
  specifier: string | undefined
  line: number
}

/** Returns the modules in imports, exports, `require(…)` and types' `import('…')`. */
export function importsOf(source: string): ImportLine[] {
  const code = codeOnly(source)
  const lines: ImportLine[] = []
  for (const match of code.matchAll(/(?<![\w$.])(?:from|import|(?:import|require)\s*\()\s*(['"`])([^'"`]*)\1/g)) {
    const end = match.index + match[0].length - 1
    const specifier = source.slice(end - match[2]!.length, end)
    lines.push({ specifier: specifier.includes('${') ? undefined : specifier, line: lineAt(source, match.index) })
  }
  for (const match of code.matchAll(/(?<![\w$.])import\s*\(\s*[^'"`\s]/g)) {
    lines.push({ specifier: undefined, line: lineAt(source, match.index) })
  }
  return lines
}

/** Blanks comments and literals, so that offsets stay the same. */
export function codeOnly(source: string): string {
  const scanner: Scanner = { source, at: 0, out: '', templateDepths: [], depth: 0 }
  while (scanner.at < source.length) step(scanner)
  return scanner.out
}

export function lineAt(source: string, offset: number): number {
  return source.slice(0, offset).split('\n').length
}

interface Scanner {
  source: string
  at: number
  out: string
  depth: number
  /** The brace depth outside each open `${`. */
  templateDepths: number[]
}

function step(s: Scanner): void {
  const char = s.source[s.at]!
  const two = s.source.slice(s.at, s.at + 2)
  if (two === '//') return blankTo(s, endOf(s, '\n'))
  if (two === '/*') return blankTo(s, endOf(s, '*/') + 2)
  if (char === "'" || char === '"') return blankLiteral(s, endOfLiteral(s, char))
  if (char === '`') return readTemplate(s)
  if (char === '/' && startsRegExp(s.out)) return blankLiteral(s, endOfRegExp(s))
  if (char === '{') s.depth++
  if (char === '}') {
    s.depth--
    if (s.templateDepths.at(-1) === s.depth) {
      s.templateDepths.pop()
      return readTemplate(s)
    }
  }
  s.out += char
  s.at++
}

/** Blanks a template from a backtick, or a `}` that ends `${…}`, to its end or the next `${`. */
function readTemplate(s: Scanner): void {
  let end = s.at + 1
  while (end < s.source.length && s.source[end] !== '`' && s.source.slice(end, end + 2) !== '${') {
    end += s.source[end] === '\\' ? 2 : 1
  }
  if (s.source[end] === '`') return blankLiteral(s, end)
  blankLiteral(s, end + 1)
  s.templateDepths.push(s.depth)
  s.depth++
}

function endOf(s: Scanner, text: string): number {
  const end = s.source.indexOf(text, s.at + 2)
  return end < 0 ? s.source.length : end
}

function endOfLiteral(s: Scanner, quote: string): number {
  let end = s.at + 1
  while (end < s.source.length && s.source[end] !== quote && s.source[end] !== '\n') {
    end += s.source[end] === '\\' ? 2 : 1
  }
  return end
}

function endOfRegExp(s: Scanner): number {
  let end = s.at + 1
  let isInClass = false
  while (end < s.source.length && s.source[end] !== '\n' && (isInClass || s.source[end] !== '/')) {
    if (s.source[end] === '[') isInClass = true
    if (s.source[end] === ']') isInClass = false
    end += s.source[end] === '\\' ? 2 : 1
  }
  return end
}

/** Returns whether a slash opens a regular expression, not a division. */
function startsRegExp(before: string): boolean {
  const text = before.trimEnd()
  if (/(?<![\w$.])(?:return|typeof|case|in|of|delete|void|throw|new|await|yield|else|do)$/.test(text)) return true
  return !/[\w$)\]}'"`/]$/.test(text)
}

/** Blanks a literal's contents. */
function blankLiteral(s: Scanner, end: number): void {
  const opener = s.source[s.at]!
  s.at++
  const last = Math.min(end, s.source.length)
  s.out += opener
  blankTo(s, last)
  if (last < s.source.length) {
    s.out += s.source[last]!
    s.at++
  }
}

function blankTo(s: Scanner, end: number): void {
  const last = Math.min(end, s.source.length)
  s.out += s.source.slice(s.at, last).replace(/[^\n]/g, ' ')
  s.at = last
}
