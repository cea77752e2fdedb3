/**
 * How values are encoded. Parameters and results travel as text. The driver's lookup of array types is off, since it
 * costs a query per connection; the array types that our statements use are listed here by OID.
 */
import { assert, toHex } from '@sealpost/std'

export type ArrayElement = string | number | Uint8Array | null

/** OIDs of the array types a parameter may have: `sql.typed(values, arrayOid.bytea)`. */
export const arrayOid = {
  bytea: 1001,
  int2: 1005,
  int4: 1007,
  text: 1009,
  int8: 1016,
  float8: 1022,
  timestamptz: 1185,
  uuid: 2951,
} as const

/**
 * Returns an array in Postgres' text form, for a parameter with a cast: `${arrayLiteral(keys)}::bytea[]`. Bytes become
 * `\x` hex.
 */
export function arrayLiteral(values: readonly ArrayElement[]): string {
  return `{${values.map(elementLiteral).join()}}`
}

/** Returns bytes in Postgres' text form. Accepts bytes, hex, or that form. */
export function byteaText(value: string | Uint8Array): string {
  if (typeof value !== 'string') return `\\x${toHex(value)}`
  return value.startsWith('\\x') ? value : `\\x${value}`
}

/**
 * bigint as a Number (our ids and epochs stay below 2^53), timestamptz as milliseconds since 1970, bytea from bytes or
 * hex (the driver would send the characters of the hex), and the arrays of `arrayOid`.
 */
export const columnTypes = {
  bigint: { to: 20, from: [20], parse: safeInteger, serialize: String },
  instant: { to: 1184, from: [1184], parse: (text: string) => new Date(text).getTime(), serialize: instantText },
  bytes: { to: 17, from: [17], parse: (text: string) => Buffer.from(text.slice(2), 'hex'), serialize: byteaText },
  ...Object.fromEntries(
    Object.entries(arrayOid).map(([name, oid]) => [
      `${name}Array`,
      { to: oid, from: [], parse: String, serialize: (x: string | ArrayElement[]) => arrayText(x, oid) },
    ]),
  ),
}

const TO_ESCAPE = /["\\]/g

function elementLiteral(value: ArrayElement): string {
  if (value === null) return 'NULL'
  if (typeof value === 'number') return String(value)
  if (typeof value === 'string') return `"${value.replace(TO_ESCAPE, '\\$&')}"`
  return `"\\\\x${toHex(value)}"`
}

function arrayText(value: string | ArrayElement[], oid: number): string {
  if (typeof value === 'string') return value
  return arrayLiteral(oid === arrayOid.bytea ? value.map((x) => (typeof x === 'string' ? byteaText(x) : x)) : value)
}

function safeInteger(text: string): number {
  const number = Number(text)
  assert(Number.isSafeInteger(number), 'a bigint column stays below 2^53')
  return number
}

function instantText(value: number | string | Date): string {
  return typeof value === 'string' ? value : new Date(value).toISOString()
}
