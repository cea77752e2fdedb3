/** Reads and dates the sections of `CHANGELOG.md`. */
import { OperatingError } from '@sealpost/std'

const UNRELEASED = 'Unreleased'

/**
 * Returns the text of a version's section, or of the section "Unreleased" if the version has none.
 * @throws OperatingError `changelog_missing`
 */
export function changesOf(changelog: string, version: string): string {
  const sections = changelog.split(/^## /m).slice(1)
  const section = [version, UNRELEASED].map((title) => sections.find((text) => isTitled(text, title))).find(Boolean)
  const changes = section?.slice(section.indexOf('\n')).trim()
  if (changes) return changes
  throw new OperatingError('changelog_missing', `CHANGELOG.md describes no changes for ${version}.`)
}

/** @throws OperatingError `changelog_missing` */
export function dateChanges(changelog: string, { version, date }: { version: string; date: string }): string {
  changesOf(changelog, UNRELEASED)
  return changelog.replace(`## ${UNRELEASED}\n`, `## ${UNRELEASED}\n\n## ${version} - ${date}\n`)
}

const isTitled = (section: string, title: string): boolean => section.split(/[\s]/, 1)[0] === title
