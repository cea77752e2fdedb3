/**
 * Names that somebody chooses: of members, devices, groups, pools and meshes. No name reads as a key, a fingerprint, or
 * what the CLI, the broker and the documents write around names: `PERSON/LABEL`, `bob, carol`, `*`, `(you)`, `--option`.
 * Names that differ by spaces only are one. Others may still look alike: `caro1`, `carol.` and `[carol]` are names.
 */
export const NAME_LENGTH_MAX = 64

export const NAME_RULE = `1 to ${NAME_LENGTH_MAX} characters of printable ASCII without / , * ( ) and no hyphen at its beginning, and neither a key nor a fingerprint`

/** The name without spaces at its ends, and with single ones inside. */
export const tidyName = (text: string): string => text.replace(/ +/g, ' ').replace(/^ | $/g, '')

const KEY = /^[0-9a-f]{64}$/i
/**
 * Eight groups of four anywhere in the name, or 32 characters that are all of it. I, L, O and U are not in the alphabet of
 * fingerprints, but look like what is.
 */
const FINGERPRINT = /(?<![0-9a-z])[0-9a-z]{4}(?:[-_.: ][0-9a-z]{4}){7}(?![0-9a-z])|^[0-9a-z]{32}$/i
/**
 * Two groups of four or more, one of which has a digit before a letter: the beginning of a fingerprint. `team-2024` and
 * `east-web1` are names, though one fingerprint in six begins like them.
 */
const BEGINNING = /^(?=.*\d[a-z])[0-9a-z]{4}(?:-[0-9a-z]{4})+$/i

/** Whether a tidy name may be chosen. */
export const isChosenName = (name: string): boolean =>
  name.length <= NAME_LENGTH_MAX &&
  /^[!-~][ -~]*$/.test(name) &&
  tidyName(name) === name &&
  !/^-|[/,*()]/.test(name) &&
  ![KEY, FINGERPRINT, BEGINNING].some((form) => form.test(name))
