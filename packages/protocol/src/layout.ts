/**
 * Defines the types of fields in frames. Each type has a fixed binary layout, a JSON form and accepted values, so that
 * one table (`frames.ts`) yields both codecs and the validation. Values are also checked when written, so that bugs in
 * callers do not reach the wire.
 */
import { isHex, toHex } from '@sealpost/std'
import { KEY_BYTES, keyName, Malformed, type Reader, type Writer } from './cursor.ts'

export interface Field<T> {
  read(reader: Reader): T
  write(writer: Writer, value: T): void
  readonly shape: Shape
}
export type Value<F> = F extends Field<infer T> ? T : never

/** Describes a field type, for the tables in the documentation, JSON Schemas and generated values. */
export type Shape =
  | { readonly kind: 'integer'; readonly bytes: number; readonly max: number }
  | { readonly kind: 'hex' | 'bytes'; readonly length: number }
  | { readonly kind: 'blob'; readonly min: number; readonly max: number }
  | { readonly kind: 'token'; readonly min: number; readonly max: number }
  | { readonly kind: 'choice'; readonly names: readonly string[] }
  | { readonly kind: 'flag' }
  | { readonly kind: 'list'; readonly item: Shape; readonly min: number; readonly max: number }
  | { readonly kind: 'struct'; readonly fields: readonly (readonly [name: string, shape: Shape])[] }

function integer(bytes: number, max: number, codec: Pick<Field<number>, 'read' | 'write'>): Field<number> {
  return {
    read: codec.read,
    write: (writer, value) => codec.write(writer, checkInteger(value, max)),
    shape: { kind: 'integer', bytes, max },
  }
}

export function checkInteger(value: unknown, max: number): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0 || value > max || Object.is(value, -0))
    throw new Malformed(`not an integer in 0..${max}`)
  return value
}

export const u16 = integer(2, 0xffff, { read: (r) => r.u16(), write: (w, v) => w.u16(v) })
export const u32 = integer(4, 0xffffffff, { read: (r) => r.u32(), write: (w, v) => w.u32(v) })
export const u53 = integer(8, Number.MAX_SAFE_INTEGER, { read: (r) => r.u53(), write: (w, v) => w.u53(v) })

/** Returns a field of exactly `length` bytes. In memory and in JSON, it is a lower-case hex string. */
export function hex<Id extends string>(length: number): Field<Id> {
  const scratch = new Uint8Array(length)
  return {
    read: (reader) => {
      const start = reader.take(length)
      for (let i = 0; i < length; i++) scratch[i] = reader.bytes[start + i]!
      return toHex(scratch) as Id
    },
    write: (writer, value) => {
      const isWritten = typeof value === 'string' && value.length === length * 2 && writer.hex(value)
      if (!isWritten) throw new Malformed(`not ${length} bytes of lower-case hex`)
    },
    shape: { kind: 'hex', length },
  }
}

export function checkHex(value: unknown, length: number): string {
  if (!isHex(value, length)) throw new Malformed(`not ${length} bytes of lower-case hex`)
  return value
}

/** Returns a field for a peer's key of 32 bytes, as cached hex. */
export function key<Id extends string>(): Field<Id> {
  return { ...hex<Id>(KEY_BYTES), read: (reader) => keyName(reader.bytes, reader.take(KEY_BYTES)) as Id }
}

/** Returns a field of exactly `length` bytes. In JSON, it is a base64url string. */
export function bytes(length: number): Field<Uint8Array> {
  return {
    read: (reader) => reader.blob(length),
    write: (writer, value) => writer.set(checkBytes(value, length, length)),
    shape: { kind: 'bytes', length },
  }
}

/** Returns a length-prefixed field of `min` to `max` bytes. In JSON, it is a base64url string without padding. */
export function blob(min: number, max: number): Field<Uint8Array> {
  return {
    read: (reader) => {
      const length = reader.u32()
      if (length < min || length > max) throw new Malformed(`not ${min}..${max} bytes`)
      return reader.blob(length)
    },
    write: (writer, value) => {
      writer.u32(checkBytes(value, min, max).length)
      writer.set(value)
    },
    shape: { kind: 'blob', min, max },
  }
}

export function checkBytes(value: unknown, min: number, max: number): Uint8Array {
  if (!(value instanceof Uint8Array) || value.length < min || value.length > max)
    throw new Malformed(`not ${min}..${max} bytes`)
  return value
}

/** Returns a field of `min` to `max` characters of printable ASCII. */
export function token(max: number, min = 0): Field<string> {
  return {
    read: (reader) => checkToken(String.fromCharCode(...reader.blob(reader.u8())), min, max),
    write: (writer, value) => {
      writer.u8(checkToken(value, min, max).length)
      for (let i = 0; i < value.length; i++) writer.u8(value.charCodeAt(i))
    },
    shape: { kind: 'token', min, max },
  }
}

const TOKEN = /^[\x20-\x7e]*$/

export function checkToken(value: unknown, min: number, max: number): string {
  if (typeof value !== 'string' || value.length > max || value.length < min || !TOKEN.test(value))
    throw new Malformed('not a token')
  return value
}

/** Returns a field for one of `names`, which is an index on the wire. */
export function choice<const Name extends string>(names: readonly Name[]): Field<Name> {
  const numbers = new Map<unknown, number>(names.map((name, number) => [name, number]))
  return {
    read: (reader) => {
      const name = names[reader.u8()]
      if (name === undefined) throw new Malformed('unknown choice')
      return name
    },
    write: (writer, value) => {
      const number = numbers.get(value)
      if (number === undefined) throw new Malformed('unknown choice')
      writer.u8(number)
    },
    shape: { kind: 'choice', names },
  }
}

export function checkFlag(value: unknown): boolean {
  if (typeof value !== 'boolean') throw new Malformed('not a flag')
  return value
}

export const flag: Field<boolean> = {
  read: (reader) => {
    const value = reader.u8()
    if (value > 1) throw new Malformed('not a flag')
    return value === 1
  },
  write: (writer, value) => writer.u8(checkFlag(value) ? 1 : 0),
  shape: { kind: 'flag' },
}

/** Returns a field for a list of `min` to `max` items, preceded by their number. */
export function list<T>(item: Field<T>, min: number, max: number): Field<T[]> {
  return {
    read: (reader) => {
      const count = reader.u16()
      checkCount(count, min, max)
      const items: T[] = []
      for (let i = 0; i < count; i++) items.push(item.read(reader))
      return items
    },
    write: (writer, items) => {
      checkList(items, min, max)
      writer.u16(items.length)
      for (const value of items) item.write(writer, value)
    },
    shape: { kind: 'list', item: item.shape, min, max },
  }
}

export function checkList(value: unknown, min: number, max: number): readonly unknown[] {
  if (!Array.isArray(value)) throw new Malformed('not a list')
  checkCount(value.length, min, max)
  return value
}

function checkCount(count: number, min: number, max: number): void {
  if (count < min || count > max) throw new Malformed(`not ${min}..${max} items`)
}

type Fields = Record<string, Field<unknown>>
export type StructOf<F extends Fields> = { [Name in keyof F]: Value<F[Name]> }

/** Returns a field that consists of `fields` in this order. In JSON, it is an object with exactly these keys. */
export function struct<F extends Fields>(fields: F): Field<StructOf<F>> {
  type Struct = StructOf<F>
  const names = Object.keys(fields)
  const parts = names.map((name) => fields[name] as unknown as Field<unknown>)
  return {
    read: (reader) => {
      const value: Record<string, unknown> = {}
      for (let i = 0; i < parts.length; i++) value[names[i]!] = parts[i]!.read(reader)
      return value as Struct
    },
    write: (writer, value) => {
      const from = checkObject(value)
      for (let i = 0; i < parts.length; i++) parts[i]!.write(writer, from[names[i]!])
    },
    shape: { kind: 'struct', fields: names.map((name, i) => [name, parts[i]!.shape] as const) },
  }
}

export interface LaidOut<T> extends Field<T> {
  readonly byTable: Field<T>
}

/** Returns a struct with a hand-written reader and writer, for fields that every message has. */
export function laidOut<T>(byTable: Field<T>, byHand: Pick<Field<T>, 'read' | 'write'>): LaidOut<T> {
  return { ...byTable, ...byHand, byTable }
}

export function checkObject(value: unknown): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Malformed('not an object')
  return value as Record<string, unknown>
}
