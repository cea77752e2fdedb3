/**
 * Names that people choose: of members, devices, groups, pools and meshes. A name can't be mistaken for a key, a
 * fingerprint, or what the CLI and the documentation write around names: `USER/LABEL`, `bob, carol`, `*`, `(you)`,
 * `--option`. Names that differ only in spaces are equal. Names may still look alike: `caro1`, `carol.` and `[carol]`
 * are valid.
 */
export const NAME_LENGTH_MAX = 64

export const NAME_RULE = `1 to ${NAME_LENGTH_MAX} characters of printable ASCII without / , * ( ) no hyphen at its beginning, and neither a key nor a fingerprint`

/** Trims the name and reduces spaces inside to single ones. */
export const tidyName = (text: string): string => text.replace(/ +/g, ' ').replace(/^ | $/g, '')

const KEY = /^[0-9a-f]{64}$/i
/**
 * Eight groups of four anywhere in the name, or a name of 32 characters. I, L, O and U are not in the alphabet of
 * fingerprints but resemble characters that are.
 */
const FINGERPRINT = /(?<![0-9a-z])[0-9a-z]{4}(?:[-_.: ][0-9a-z]{4}){7}(?![0-9a-z])|^[0-9a-z]{32}$/i
/**
 * The beginning of a fingerprint: two or more groups of four, one of them with a digit before a letter. `team-2024` and
 * `east-web1` are valid, although one fingerprint in six begins like them.
 */
const BEGINNING = /^(?=.*\d[a-z])[0-9a-z]{4}(?:-[0-9a-z]{4})+$/i

/** Returns whether people may choose this tidy name. */
export const isChosenName = (name: string): boolean =>
  name.length <= NAME_LENGTH_MAX &&
  /^[!-~][ -~]*$/.test(name) &&
  tidyName(name) === name &&
  !/^-|[/,*()]/.test(name) &&
  ![KEY, FINGERPRINT, BEGINNING].some((form) => form.test(name))
