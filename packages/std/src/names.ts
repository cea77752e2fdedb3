/**
 * Names that somebody chooses: of members, devices, groups, pools and meshes. Two names must never look alike in a list, a
 * chat line or a path, so spaces at the ends and doubled ones are taken out, and what the CLI, the broker and the documents
 * write around names is reserved: `PERSON/LABEL`, `bob, carol`, `*`, `(you)`, `--option`.
 */
export const NAME_LENGTH_MAX = 64

export const NAME_RULE = `1 to ${NAME_LENGTH_MAX} characters of printable ASCII without / , * ( ) and no hyphen at its beginning`

/** The name without spaces at its ends, and with single ones inside. */
export const tidyName = (text: string): string => text.replace(/ +/g, ' ').replace(/^ | $/g, '')

/** Whether a tidy name may be chosen. A key in hex is none: it would pass for a peer's key. */
export const isChosenName = (name: string): boolean =>
  name.length <= NAME_LENGTH_MAX &&
  /^[!-~][ -~]*$/.test(name) &&
  tidyName(name) === name &&
  !/^-|[/,*()]|^[0-9a-f]{64}$/i.test(name)
