/**
 * Generates the JSON Schema (draft 2020-12) of the frames in their JSON form, from the table of frames and their
 * meanings. `asyncapi.ts` uses it for its payloads.
 */
import { clientFrames, type FrameKind, refusalCodes, serverFrames } from '../src/index.ts'
import { scalarSchema } from '../src/json.ts'
import type { Shape } from '../src/layout.ts'
import { MEANINGS } from './meanings.ts'

export interface JsonSchema {
  readonly [keyword: string]: unknown
}

const DESCRIPTION =
  'What a text message under the subprotocol sealpost.v1.json may be; docs/PROTOCOL.md says what it means. What a schema ' +
  'can not say: a frame has at most 262144 bytes, an integer is not written as -0, and no key stands twice.'

export function frameSchemas(prefix: string): Record<string, JsonSchema> {
  const anyOf = (kinds: readonly FrameKind[]) => ({ oneOf: kinds.map(({ type }) => ({ $ref: prefix + type })) })
  return {
    ClientFrame: { description: 'What a client may say.', ...anyOf(clientFrames) },
    ServerFrame: { description: 'What a broker may say.', ...anyOf(serverFrames) },
    code: { description: 'A code of a refusal.', enum: refusalCodes },
    ...Object.fromEntries([...serverFrames, ...clientFrames].map((kind) => [kind.type, schemaOfFrame(kind, prefix)])),
  }
}

export function schemaText(): string {
  const prefix = '#/$defs/'
  const schema = {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Frames of the Sealpost protocol, version 1, in their JSON form',
    description: DESCRIPTION,
    anyOf: [{ $ref: `${prefix}ClientFrame` }, { $ref: `${prefix}ServerFrame` }],
    $defs: frameSchemas(prefix),
  }
  return `${JSON.stringify(schema, null, 2)}\n`
}

function schemaOfFrame({ type, number, body }: FrameKind, prefix: string): JsonSchema {
  const meaning = MEANINGS[type]!
  const { properties, required, ...rest } = schemaOf(body.shape, { prefix, path: '', meanings: meaning.fields }) as {
    properties: object
    required: string[]
  }
  return {
    title: `${type} (${number})`,
    description: meaning.about,
    ...rest,
    properties: { type: { const: type }, ...properties },
    required: ['type', ...required],
  }
}

interface Place {
  readonly prefix: string
  readonly path: string
  readonly meanings: Readonly<Record<string, string>>
}

function schemaOf(shape: Shape, place: Place): JsonSchema {
  switch (shape.kind) {
    case 'choice':
      return shape.names === refusalCodes ? { $ref: `${place.prefix}code` } : { enum: shape.names }
    case 'list':
      return { type: 'array', items: schemaOf(shape.item, place), minItems: shape.min, maxItems: shape.max }
    case 'struct':
      return objectOf(shape.fields, place)
    default:
      return scalarSchema(shape)
  }
}

function objectOf(fields: readonly (readonly [string, Shape])[], { path, ...place }: Place): JsonSchema {
  const properties = fields.map(([name, shape]) => {
    const meaning = place.meanings[path + name]
    const schema = schemaOf(shape, { ...place, path: `${path}${name}.` })
    return [name, meaning === undefined || /^as in `\w+`$/.test(meaning) ? schema : { description: meaning, ...schema }]
  })
  return {
    type: 'object',
    properties: Object.fromEntries(properties),
    required: fields.map(([name]) => name),
    additionalProperties: false,
  }
}
