/** Reads names as people type them, and suggests known names for unknown ones. */
import { asciiName, isChosenName, NAME_LENGTH_MAX, OperatingError, tidyName, unicodeName } from '@sealpost/std'
import { foldedName, skeletonOf } from '@sealpost/std/confusables'
import { escapeName } from '../output.ts'

/** Marks that terminals may copy together with a name. */
const ISOLATES = /[\u2066-\u2069]/g

/** Returns the tidy Unicode form of a typed name, which may also be in ASCII form. */
export const typedName = (text: string): string => tidyName(unicodeName(text.replace(ISOLATES, '')))

/** Returns the ASCII form if a member can't have chosen the name, because only a dishonest broker lists such a name. */
export const readableName = (name: string): string =>
  /^[ -~]*$/.test(name) || name.split('/').every(isChosenName) ? name : asciiName(name)

const SUGGESTIONS_MAX = 3
const WORD_MAX = 2 * NAME_LENGTH_MAX

/** Returns the names that the user may have meant, most similar first. */
export function similarNames(word: string, names: Iterable<string>): string[] {
  if (word.length > WORD_MAX) return [] // a message instead of a name
  const meant = foldedName(word)
  const edits = (name: string) => (skeletonOf(name) === skeletonOf(word) ? 0 : editsBetween(foldedName(name), meant))
  const editsMax = Math.ceil(meant.length / 4)
  const isSimilar = ({ name, away }: { name: string; away: number }) =>
    away <= editsMax || (meant !== '' && foldedName(name).startsWith(meant))
  return [...new Set(names)]
    .map((name) => ({ name, away: edits(name) }))
    .filter(({ name }) => name !== '' && name !== word)
    .filter(isSimilar)
    .sort((a, b) => a.away - b.away || (a.name < b.name ? -1 : 1))
    .slice(0, SUGGESTIONS_MAX)
    .map(({ name }) => name)
}

/** Counts the letters to insert, delete or replace, and the neighbors to swap, that turn one text into the other. */
function editsBetween(one: string, other: string): number {
  const [from, to] = [[...one], [...other]]
  let [beforeLast, last]: number[][] = [[], Array.from({ length: to.length + 1 }, (_, column) => column)]
  for (let row = 1; row <= from.length; row++) {
    const line = [row]
    for (let column = 1; column <= to.length; column++) {
      const isSame = from[row - 1] === to[column - 1]
      const edits = [line[column - 1]! + 1, last![column]! + 1, last![column - 1]! + (isSame ? 0 : 1)]
      const areSwapped = from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1]
      if (row > 1 && column > 1 && areSwapped) edits.push(beforeLast![column - 2]! + 1)
      line.push(Math.min(...edits))
    }
    ;[beforeLast, last] = [last, line]
  }
  return last!.at(-1)!
}

/** Returns the error for an unknown name, with suggestions. `sentence` ends with a full stop. */
export function unknownName(
  code: 'name_unknown' | 'unknown_device' | 'unknown_group' | 'unknown_pool',
  sentence: string,
  { word, names }: { word: string; names: Iterable<string> },
): OperatingError {
  const similar = similarNames(word, names).map(escapeName)
  return new OperatingError(code, similar.length === 0 ? sentence : `${sentence} Did you mean ${similar.join(', ')}?`)
}
