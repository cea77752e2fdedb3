/**
 * Generates the tables of `docs/PROTOCOL.md` between `<!-- name -->` and `<!-- end name -->`. Manual edits between the
 * markers are overwritten.
 */
import {
  BATCH_MAX,
  clientFrames,
  DEVICE_BYTES_MAX,
  DEVICE_PAGE_MAX,
  DEVICES_MAX,
  ENVELOPE_BYTES_MAX,
  ENVELOPE_BYTES_MIN,
  FANOUT_MAX,
  FRAME_BYTES_MAX,
  type FrameKind,
  GROUP_BYTES_MAX,
  GROUP_PAGE_MAX,
  GROUPS_MAX,
  JSON_DEPTH_MAX,
  LOOKUP_MAX,
  MEMBER_PAGE_MAX,
  POOL_MEMBERS_MAX,
  POOL_SEATS_MAX,
  POOLS_MAX,
  refusalCodes,
  refusals,
  serverFrames,
  UNPROVEN_FRAME_BYTES_MAX,
  USERS_MAX,
} from '../src/index.ts'
import type { Shape } from '../src/layout.ts'
import { MEANINGS } from './meanings.ts'

/** The sections that contain the named paragraphs. */
const SECTION_OF: Record<string, string> = { Names: 'Enrolment', 'Rotation of the identity key': 'Key binding' }

/** Returns the page with up-to-date tables. @throws Error if a marker is missing */
export function withTables(page: string): string {
  const tables = { 'server frames': frames(serverFrames), 'client frames': frames(clientFrames), codes: codes() }
  let result = page
  for (const [name, table] of Object.entries({ ...tables, limits: bounds() })) result = fill(result, name, table)
  return result
}

function fill(page: string, name: string, table: string): string {
  const [begin, end] = [`<!-- ${name} -->\n`, `<!-- end ${name} -->`]
  const [before, rest, ...more] = page.split(begin)
  const after = rest?.split(end)
  if (before === undefined || after?.length !== 2 || more.length > 0) throw new Error(`no place for ${name}`)
  return `${before}${begin}\n${table}\n${end}${after[1]}`
}

function frames(kinds: readonly FrameKind[]): string {
  return kinds.map(frame).join('\n')
}

function frame({ type, number, body }: FrameKind): string {
  const meaning = MEANINGS[type]
  if (!meaning) throw new Error(`${type} has no meaning`)
  const rows = rowsOf(body.shape, '')
  const surplus = Object.keys(meaning.fields).filter((path) => !rows.some((row) => row.path === path))
  if (surplus.length > 0) throw new Error(`${type} has no ${surplus.join(', ')}`)
  const lines = rows.map(({ path, form }) => {
    const text = meaning.fields[path]
    if (text === undefined) throw new Error(`${type}.${path} has no meaning`)
    return `| \`${path}\` | ${form} | ${linked(text)} |`
  })
  return [
    `#### \`${type}\` (${number})`,
    '',
    linked(meaning.about),
    '',
    '| field | type | meaning |',
    '|---|---|---|',
    ...lines,
    '',
  ].join('\n')
}

/** Returns the text with a link in place of each section name after "see". */
function linked(text: string): string {
  const link = (name: string) => `[${name}](#${(SECTION_OF[name] ?? name).toLowerCase().replaceAll(' ', '-')})`
  return text.replace(
    /\bsee ([A-Z][a-z]+(?: (?!and [A-Z])[a-z]+)*)(?: and ([A-Z][a-z]+))?/g,
    (_, first: string, second?: string) => (second ? `see ${link(first)} and ${link(second)}` : `see ${link(first)}`),
  )
}

function rowsOf(shape: Shape, prefix: string): { path: string; form: string }[] {
  if (shape.kind === 'list') return rowsOf(shape.item, prefix)
  if (shape.kind !== 'struct') return []
  return shape.fields.flatMap(([name, field]) => [
    { path: prefix + name, form: formOf(field) },
    ...rowsOf(field, `${prefix}${name}.`),
  ])
}

function formOf(shape: Shape): string {
  switch (shape.kind) {
    case 'integer':
      return shape.bytes === 8 ? 'u53' : `u${shape.bytes * 8}`
    case 'hex':
      return `hex(${shape.length})`
    case 'bytes':
      return `bytes(${shape.length})`
    case 'blob':
      return `blob(${shape.min}..${shape.max})`
    case 'token':
      return `text(${shape.min}..${shape.max})`
    case 'flag':
      return 'flag'
    case 'choice':
      return shape.names === refusalCodes
        ? 'code'
        : shape.names.map((name, number) => `${number} \`${name}\``).join(', ')
    case 'list':
      return `list(${shape.min}..${shape.max}) of ${shape.item.kind === 'struct' ? 'struct' : formOf(shape.item)}`
    case 'struct':
      return 'struct'
  }
}

function codes(): string {
  const lines = refusals.map(({ code, isRetryable, close, meaning }, number) =>
    ['', number, `\`${code}\``, close ?? '', isRetryable ? 'yes' : 'no', meaning, ''].join(' | ').trim(),
  )
  return ['| number | code | close | retryable | meaning |', '|---:|---|---|---|---|', ...lines, ''].join('\n')
}

function bounds(): string {
  const rows: readonly (readonly [number, string])[] = [
    [FRAME_BYTES_MAX, 'bytes of a frame, in either form'],
    [UNPROVEN_FRAME_BYTES_MAX, 'bytes of a frame before `welcome`'],
    [JSON_DEPTH_MAX, 'levels of nested lists and objects in JSON'],
    [BATCH_MAX, 'items in a frame'],
    [LOOKUP_MAX, 'peers in a `lookup`'],
    [MEMBER_PAGE_MAX, 'members in a `roster`; keys in a `revoke`; invites in a `revoke`'],
    [FANOUT_MAX, 'envelopes in a `broadcast`'],
    [GROUP_PAGE_MAX, 'statements in a `groupList`'],
    [GROUP_BYTES_MAX, 'bytes of a statement'],
    [GROUPS_MAX, 'groups of a mesh; also ended groups of a mesh that the broker remembers'],
    [DEVICE_BYTES_MAX, 'bytes of a device statement'],
    [DEVICES_MAX, 'devices and sessions of a user'],
    [DEVICE_PAGE_MAX, 'statements in a `deviceList`; removals in a `deviceList`'],
    [USERS_MAX, 'peers in a `devices` frame'],
    [POOLS_MAX, 'pools of a mesh'],
    [POOL_MEMBERS_MAX, 'members of a pool'],
    [POOL_SEATS_MAX, 'pools that a connection can join'],
    [ENVELOPE_BYTES_MIN, 'bytes of an envelope, minimum'],
    [ENVELOPE_BYTES_MAX, 'bytes of an envelope, maximum for any `envelopeBytesMax`'],
  ]
  const lines = rows.map(([limit, meaning]) => `| ${limit} | ${meaning} |`)
  return ['| limit | applies to |', '|---:|---|', ...lines, ''].join('\n')
}
