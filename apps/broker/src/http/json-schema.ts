/** Generates JSON Schemas of the protocol's fields from the field table, so that the OpenAPI document can't differ from it. */

import { z } from '@hono/zod-openapi'
import { clientFrames, type Frame, type FrameKind, serverFrames } from '@sealpost/protocol'
import { scalarSchema } from '@sealpost/protocol/json-schema'
import { assert } from '@sealpost/std'

type Shape = FrameKind['body']['shape']
type FrameType = Frame['type']
export type JsonSchema = Record<string, unknown> & {
  readonly type: 'object' | 'array' | 'string' | 'integer' | 'boolean'
}
export type ObjectSchema = JsonSchema & { readonly properties: Readonly<Record<string, JsonSchema>> }

type NamedShapes = readonly (readonly [name: string, shape: Shape])[]

interface Exceptions {
  readonly without?: readonly string[]
  readonly optional?: readonly string[]
}

export function schemaOfFrame(type: FrameType, exceptions?: Exceptions): ObjectSchema {
  return objectSchema(fieldsOf(type), exceptions)
}

export function schemaOfItem(type: FrameType, name: string, exceptions?: Exceptions): ObjectSchema {
  const list = fieldsOf(type).find(([field]) => field === name)?.[1]
  assert(list?.kind === 'list' && list.item.kind === 'struct', 'a list of structs')
  return objectSchema(list.item.fields, exceptions)
}

export function schemaOfField(type: FrameType, name: string): JsonSchema {
  const field = fieldsOf(type).find(([field]) => field === name)
  assert(field, 'the frame has this field')
  return schemaOf(field[1])
}

function fieldsOf(type: FrameType): NamedShapes {
  const kind = [...clientFrames, ...serverFrames].find((kind) => kind.type === type)
  assert(kind?.body.shape.kind === 'struct', 'a frame has fields')
  return kind.body.shape.fields
}

function objectSchema(fields: NamedShapes, { without = [], optional = [] }: Exceptions = {}): ObjectSchema {
  const kept = fields.filter(([name]) => !without.includes(name))
  return {
    type: 'object',
    properties: Object.fromEntries(kept.map(([name, shape]) => [name, schemaOf(shape)])),
    required: kept.map(([name]) => name).filter((name) => !optional.includes(name)),
    additionalProperties: false,
  }
}

function schemaOf(shape: Shape): JsonSchema {
  switch (shape.kind) {
    case 'choice':
      return { type: 'string', enum: [...shape.names] }
    case 'list':
      return { type: 'array', items: schemaOf(shape.item), minItems: shape.min, maxItems: shape.max }
    case 'struct':
      return objectSchema(shape.fields)
    default:
      return scalarSchema(shape)
  }
}

export const security = [{ bearer: [] }]
export const hex = (bytes: number) => z.string().regex(new RegExp(`^[0-9a-f]{${bytes * 2}}$`))

export const json = <T extends z.ZodType>(schema: T, description: string) => ({
  description,
  content: { 'application/json': { schema } },
})
export const body = <T extends z.ZodType>(schema: T) => ({
  required: true,
  content: { 'application/json': { schema } },
})

type Table = Readonly<Record<string, { readonly status: number; readonly meaning: string }>>
/** Every refusal on every request, because handlers return refusals of any component. */
type Refusals<T extends Table, S extends z.ZodType> = Record<
  Exclude<T[keyof T]['status'], 405>,
  ReturnType<typeof json<S>>
>

/** Returns each status's response schema for these codes, with their meanings. */
export function refusalsFrom<T extends Table, S extends z.ZodType>(
  table: T,
  schema: S,
  codes: readonly (keyof T & string)[],
): Refusals<T, S> {
  const statuses = [...new Set(codes.map((code) => table[code]!.status))].sort()
  const meanings = (status: number) =>
    codes.filter((code) => table[code]!.status === status).map((code) => `\`${code}\`: ${table[code]!.meaning}.`)
  const rows = statuses.map((status) => [status, json(schema, meanings(status).join(' '))])
  return Object.fromEntries(rows)
}
