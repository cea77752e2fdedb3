/** Links between files of the repository, as they must read between pages of the site. */
import { posix } from 'node:path'

/** Code in which brackets mean other things: fenced blocks, and what stands between backticks. */
const CODE = /^```[\s\S]*?^```|`[^`\n]*`/gm
const LINK = /(\]\()([^)\s#]+)((?:#[^)\s]*)?\))/g

/**
 * The text with each link within the repository replaced by what `moved` says of its target, both from the root of the
 * repository; links to elsewhere, to anchors and in code stay as they are.
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
