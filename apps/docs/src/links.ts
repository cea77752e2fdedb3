/** Rewrites links between files of the repository as links between pages of the site. */
import { posix } from 'node:path'

/** Fenced blocks and text in backticks, where brackets are no links. */
const CODE = /^```[\s\S]*?^```|`[^`\n]*`/gm
const LINK = /(\]\()([^)\s#]+)((?:#[^)\s]*)?\))/g

/**
 * Replaces each link within the repository by `moved` of its target. Both are paths from the root of the repository.
 * External links, anchors and code stay unchanged.
 */
export function withLinks(text: string, path: string, moved: (target: string) => string): string {
  const parts: string[] = []
  let end = 0
  for (const code of text.matchAll(CODE)) {
    parts.push(relinked(text.slice(end, code.index), path, moved), code[0])
    end = code.index + code[0].length
  }
  return [...parts, relinked(text.slice(end), path, moved)].join('')
}

const relinked = (prose: string, path: string, moved: (target: string) => string): string =>
  prose.replace(LINK, (link, before: string, target: string, after: string) =>
    /^[a-z]+:/.test(target) ? link : before + moved(posix.join(posix.dirname(path), target)) + after,
  )
