/**
 * Looks up known vulnerabilities in the installed packages: `bun scripts/audit.ts`. Exit code 0: none; 1: some; 2: the
 * lookup failed. A release requires 0.
 */
import { join } from 'node:path'

const asked = Bun.spawnSync([process.execPath, 'audit', '--json'], { cwd: join(import.meta.dirname, '..') })
const answer = asked.stdout.toString().trim()
const advisories = advisoriesIn(answer)
if (advisories === null) {
  console.error(
    `The request for advisories failed: ${asked.stderr.toString().trim().split('\n').at(-1) || 'the response was empty'}`,
  )
  process.exit(2)
}
const names = Object.keys(advisories)
console.log(names.length === 0 ? 'no known vulnerabilities' : answer)
process.exit(names.length === 0 ? 0 : 1)

/** Returns the advisories by package; null if the response is invalid. */
function advisoriesIn(text: string): Record<string, unknown> | null {
  try {
    const parsed: unknown = JSON.parse(text)
    return typeof parsed === 'object' && parsed !== null ? (parsed as Record<string, unknown>) : null
  } catch {
    return null
  }
}
