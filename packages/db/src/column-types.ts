/**
 * How values travel. Parameters and results are text; the driver's own lookup of array types is off, since it costs a
 * query per connection, so the arrays our statements unnest are named here by their oid.
 */
import { assert, toHex } from '@sealpost/std'

export type ArrayElement = string | number | Uint8Array | null

/** Oids of the array types a parameter may have: `sql.typed(values, arrayOid.bytea)`. */
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
 * An array in Postgres' own text form, for a parameter cast to the array type: `${arrayLiteral(keys)}::bytea[]`.
 * Bytes become `\x` hex, everything else its text.
 */
export function arrayLiteral(values: readonly ArrayElement[]): string {
  return `{${values.map(elementLiteral).join()}}`
}

/** Bytes in Postgres' text form, from bytes, from hex, or from that form itself. */
export function byteaText(value: string | Uint8Array): string {
  if (typeof value !== 'string') return `\\x${toHex(value)}`
  return value.startsWith('\\x') ? value : `\\x${value}`
}

/**
 * bigint as a Number (our ids and epochs stay below 2^53), an instant as milliseconds since 1970, bytes also from hex (the
 * driver would send the letters of the hex), and arrays of `arrayOid`.
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
