/**
 * Defines the names of members, devices, groups, pools and meshes. A name has two forms: people see the Unicode form,
 * and frames, signed statements and the database contain the ASCII form, which every version of Sealpost accepts.
 */

/**
 * The maximum length of a name's ASCII form. A name can't be mistaken for a key, a fingerprint, or the notation around
 * names: `USER/LABEL`, `bob, carol`, `*`, `(you)`, `--option`.
 */
export const NAME_LENGTH_MAX = 64

export const NAME_RULE = `letters and digits of one script, spaces and ASCII punctuation, without / , * ( ) or a leading hyphen, at most ${NAME_LENGTH_MAX} characters (fewer outside ASCII), and not a key or a fingerprint`

/** Normalizes the name to NFC, trims it, and reduces each run of spaces to one. */
export const tidyName = (text: string): string =>
  text
    .normalize('NFC')
    .replace(/\p{Zs}+/gu, ' ')
    .replaceAll('\u2019', "'")
    .replace(/^ | $/g, '')

const KEY = /^[0-9a-f]{64}$/i
/** Matches a fingerprint anywhere in the name, also with I, L, O and U, which resemble its characters. */
const FINGERPRINT = /(?<![0-9a-z])[0-9a-z]{4}(?:[-_.: ][0-9a-z]{4}){7}(?![0-9a-z])|^[0-9a-z]{32}$/i
/**
 * Matches the beginning of a fingerprint: groups of four, one of them with a digit before a letter. `team-2024` and
 * `east-web1` remain valid names.
 */
const BEGINNING = /^(?=.*\d[a-z])[0-9a-z]{4}(?:-[0-9a-z]{4})+$/i
const PREFIX = 'xn--'
const NOTATION = /^(?:-|xn--)|[/,*()]/i

/** Returns whether a user may choose this tidy name. */
export const isChosenName = (name: string): boolean =>
  name !== '' &&
  tidyName(name) === name &&
  !NOTATION.test(name) &&
  (/^[ -~]+$/.test(name) || isUnicodeName(name)) &&
  asciiName(name).length <= NAME_LENGTH_MAX &&
  [name, asciiName(name)].every((form) => ![KEY, FINGERPRINT, BEGINNING].some((pattern) => pattern.test(form)))

/** Visible letters, marks and digits, ASCII, and the characters that join the parts of a word in some languages. */
const VISIBLE = /^(?:(?!\p{DI})[ -~\p{L}\p{M}\p{Nd}\u00b7\u05f3\u05f4\u0f0b\u30fb])+$/u
/** A mark without a letter, the same mark twice, more than four marks on one letter, and a second dot on a letter. */
const STRAY_MARK = /(?:^|[^\p{L}\p{M}\p{Nd}])\p{M}|(\p{Mn})\1|\p{Mn}{5}|[ijl\u0131\u0237]\u0307/u
/** These letters have a compatibility decomposition, but Thai and Lao need them. */
const SARA_AM = /[\u0e33\u0eb3]/g

const isUnicodeName = (name: string): boolean =>
  VISIBLE.test(name) &&
  !STRAY_MARK.test(name.normalize('NFD').replaceAll('I\u0307', 'I')) &&
  hasNoCompatibilityForm(name.replace(SARA_AM, '')) &&
  writingSystems().some((system) => system.test(name)) &&
  hasOneKindOfDigits(name)

/** Refuses compatibility characters, such as fullwidth letters and ligatures. */
const hasNoCompatibilityForm = (name: string): boolean => name.normalize('NFKC') === name

/**
 * The sets of scripts that one name may combine: the level "highly restrictive" of UTS 39, for the scripts in use
 * today. The names of scripts are those of ISO 15924.
 */
const COMBINED = ['Latn Hani Hira Kana', 'Latn Hani Bopo', 'Latn Hani Hang']
const SINGLE =
  'Arab Armn Beng Cyrl Deva Ethi Geor Grek Gujr Guru Hebr Knda Khmr Laoo Mlym Mymr Orya Sinh Taml Telu Thaa Thai Tibt ' +
  'Adlm Bali Bamu Batk Cakm Cans Cham Cher Hmnp Java Kali Lana Lepc Limb Lisu Mand Mong Mtei Newa Nkoo Olck Osge Plrd ' +
  'Rohg Saur Sund Sylo Syrc Tale Talu Tavt Tfng Vaii Wcho Yiii'

let systems: readonly RegExp[] | undefined
/** Compiles the patterns on first use, because most names are ASCII. */
function writingSystems(): readonly RegExp[] {
  systems ??= [...COMBINED, ...SINGLE.split(' ')].map((scripts) => {
    const each = `Zyyy Zinh ${scripts}`.split(' ').map((script) => `\\p{scx=${script}}`)
    return new RegExp(`^[${each.join('')}]*$`, 'u')
  })
  return systems
}

/** Digits of two systems in one name look alike but differ, such as 8 and ৪. */
const hasOneKindOfDigits = (name: string): boolean => new Set(name.match(/\p{Nd}/gu)?.map(zeroOf)).size <= 1

/** Returns the code point of the zero in a digit's system. Each system has ten consecutive code points. */
function zeroOf(digit: string): number {
  const point = digit.codePointAt(0)!
  let zero = point
  while (/\p{Nd}/u.test(String.fromCodePoint(zero - 1))) zero -= 1
  return point - ((point - zero) % 10)
}

/**
 * Returns the ASCII form of a name: the name itself if it is ASCII, otherwise `xn--` and its Punycode (RFC 3492), in
 * which a no-break space stands for a space, because earlier brokers collapse spaces. For `USER/LABEL`, each part has
 * its own form.
 */
export const asciiName = (name: string): string => name.split('/').map(asciiPart).join('/')

const asciiPart = (part: string): string =>
  /^[ -~]*$/.test(part) ? part : PREFIX + encodePunycode(part.replaceAll(' ', '\u00a0'))

/** Returns the Unicode form of a name. Returns a part unchanged if it is not the ASCII form of a readable name. */
export const unicodeName = (name: string): string =>
  name.replace(/(?<![^/])xn--([^/]+)/g, (form, code: string) => {
    const part = decodePunycode(code).replaceAll('\u00a0', ' ')
    return VISIBLE.test(part) && part.normalize() === part ? part : form
  })

/** Parameters of Punycode. */
const BASE = 36
const FIRST = 128
const BIAS = 72

/** The number after which a digit continues the integer. */
const markAt = (k: number, bias: number): number => Math.min(Math.max(k - bias, 1), 26)

function adapt(delta: number, count: number, isFirst: boolean): number {
  let rest = Math.floor(delta / (isFirst ? 700 : 2))
  rest += Math.floor(rest / count)
  let k = 0
  for (; rest > 455; k += BASE) rest = Math.floor(rest / 35)
  return k + Math.floor((BASE * rest) / (rest + 38))
}

/** Returns the empty string unless the code is the Punycode of a string. Different codes never have the same result. */
function decodePunycode(code: string): string {
  const [, basic = '', digits = ''] = /^(?:(.+)-)?([a-z0-9]+)$/.exec(code) ?? []
  const letters = [...basic]
  let [point, bias, at, i] = [FIRST, BIAS, 0, 0]
  while (i < digits.length) {
    const from = at
    for (let weight = 1, k = BASE; ; k += BASE) {
      const digit = (Number.parseInt(digits[i++]!, BASE) + 26) % BASE // `a` is 0, `0` is 26; NaN after the end
      const mark = markAt(k, bias)
      at += digit * weight
      if (!(digit >= mark)) break
      weight *= BASE - mark
    }
    const count = letters.length + 1
    bias = adapt(at - from, count, from === 0)
    point += Math.floor(at / count)
    if (!(point <= 0x10ffff)) return ''
    at %= count
    letters.splice(at++, 0, String.fromCodePoint(point))
  }
  return letters.join('')
}

function encodePunycode(text: string): string {
  const points = [...text].map((letter) => letter.codePointAt(0)!)
  const basic = points.filter((point) => point < FIRST)
  let form = String.fromCodePoint(...basic) + (basic.length > 0 ? '-' : '')
  let [done, delta, bias, next] = [basic.length, 0, BIAS, FIRST]
  while (done < points.length) {
    const least = Math.min(...points.filter((point) => point >= next))
    delta += (least - next) * (done + 1)
    for (const point of points) {
      if (point < least) delta += 1
      if (point !== least) continue
      form += integerOf(delta, bias)
      bias = adapt(delta, done + 1, done === basic.length)
      delta = 0
      done += 1
    }
    delta += 1
    next = least + 1
  }
  return form
}

function integerOf(value: number, bias: number): string {
  let [rest, text] = [value, '']
  for (let k = BASE; ; k += BASE) {
    const mark = markAt(k, bias)
    if (rest < mark) return text + digitOf(rest)
    text += digitOf(mark + ((rest - mark) % (BASE - mark)))
    rest = Math.floor((rest - mark) / (BASE - mark))
  }
}

const digitOf = (value: number): string => ((value + 10) % BASE).toString(BASE)
