/**
 * Asks for known vulnerabilities of what is installed: `bun scripts/audit.ts`. Exit code 0: none; 1: there are some; 2: nobody
 * could be asked, as behind a registry without advisories, which must not be taken for "none". A release needs 0.
 */
import { join } from 'node:path'

const asked = Bun.spawnSync([process.execPath, 'audit', '--json'], { cwd: join(import.meta.dirname, '..') })
const answer = asked.stdout.toString().trim()
const advisories = advisoriesIn(answer)
if (advisories === null) {
  console.error(`No answer about advisories: ${asked.stderr.toString().trim().split('\n').at(-1) || 'it was empty'}`)
  process.exit(2)
}
const names = Object.keys(advisories)
console.log(names.length === 0 ? 'no known vulnerabilities' : answer)
process.exit(names.length === 0 ? 0 : 1)

/** By package; null for what is no answer. */
function advisoriesIn(text: string): Record<string, unknown> | null {
  try {
    const parsed: unknown = JSON.parse(text)
    return typeof parsed === 'object' && parsed !== null ? (parsed as Record<string, unknown>) : null
  } catch {
    return null
  }
}
