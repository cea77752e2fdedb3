/** Tests that the JSON Schema agrees with the decoders, and that the AsyncAPI document is valid. */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import asyncApi3 from '@asyncapi/specs/schemas/3.0.0.json' with { type: 'json' }
import { seededRandom } from '@sealpost/std'
import { faultyJson } from '@sealpost/std/testing'
import { Ajv, type ValidateFunction } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { beforeAll, describe, expect, test } from 'vitest'
import { asyncApiText, schemaText } from '../vectors/descriptions.ts'
import { type FrameVectors, wireOf } from '../vectors/vectors.ts'
import { clientFrames, decodeClientFrame, decodeServerFrame, encodeJson, serverFrames } from './index.ts'
import { made } from './test/fuzz.ts'

const read = (path: string) => JSON.parse(readFileSync(fileURLToPath(new URL(path, import.meta.url)), 'utf8'))
const vectors: FrameVectors = read('../vectors/frames.json')
const schema = JSON.parse(schemaText())
const asyncApi = JSON.parse(asyncApiText())

let accepts: Record<'client' | 'server', ValidateFunction>
beforeAll(() => {
  const ajv = new Ajv2020({ strict: true, strictTypes: false }).addSchema(schema, 'frames')
  accepts = {
    client: ajv.getSchema('frames#/$defs/ClientFrame')!,
    server: ajv.getSchema('frames#/$defs/ServerFrame')!,
  }
})

const isAccepted = (from: 'client' | 'server', text: string): boolean => {
  try {
    return accepts[from](JSON.parse(text))
  } catch {
    return false
  }
}
const decode = { client: decodeClientFrame, server: decodeServerFrame }

describe('the JSON Schema of the frames', () => {
  test.each(vectors.frames)('accepts $name', ({ from, json }) => {
    expect(isAccepted(from, JSON.stringify(json))).toBe(true)
  })

  test("refuses each refused sample, except those that a schema can't express", () => {
    const texts = vectors.refused.filter(({ form, text }) => form === 'json' && text !== undefined)
    const taken = texts.filter((sample) => isAccepted(sample.from, wireOf(sample) as string))
    expect(texts.length).toBeGreaterThan(20)
    expect(taken.map(({ name }) => name)).toEqual(['minus zero'])
  })

  test('agrees with the decoders on frames of every kind, valid and faulty', () => {
    const random = seededRandom(20261122)
    const counts = { taken: 0, refused: 0 }
    for (const [from, kinds] of [['client', clientFrames], ['server', serverFrames]] as const) {
      for (const kind of kinds) {
        for (let n = 0; n < 30; n++) {
          const whole = encodeJson(made(random, kind))
          const text = random.chance(0.2) ? whole : faultyJson(random, whole)
          if (text.includes('-0') || text.length > 200_000) continue // a schema can't express these rules, so skip such inputs
          const { ok } = decode[from]('json', text)
          expect(isAccepted(from, text), text).toBe(ok)
          counts[ok ? 'taken' : 'refused'] += 1
        }
      }
    } // biome-ignore format: two short rows
    expect(counts.taken).toBeGreaterThan(300)
    expect(counts.refused).toBeGreaterThan(300)
  })
})

function danglingRefs(document: object): string[] {
  const refs = [...JSON.stringify(document).matchAll(/"\$ref":"#\/([^"]+)"/g)].map(([, path]) => path!)
  const leads = (path: string) =>
    path.split('/').reduce<unknown>((at, key) => (at as never)?.[key], document) !== undefined
  return [...new Set(refs)].filter((path) => !leads(path))
}

describe('the AsyncAPI document', () => {
  test('is valid AsyncAPI 3, by its published schema', () => {
    const formats = { uri: true, 'uri-reference': true, 'uri-template': true, email: true, regex: true } as const
    const validate = new Ajv({ strict: false, meta: false, validateSchema: false, formats }).compile(asyncApi3)
    expect(validate(asyncApi), JSON.stringify(validate.errors?.slice(0, 3), null, 1)).toBe(true)
    expect(validate({ ...asyncApi, channels: { socket: { address: 1 } } })).toBe(false)
  })

  test('has no dangling reference, in either document', () => {
    expect(danglingRefs(asyncApi)).toEqual([])
    expect(danglingRefs(schema)).toEqual([])
    expect(danglingRefs({ at: { $ref: '#/no/where' } })).toEqual(['no/where'])
  })

  test('every frame is received, is a reply, or is sent without a request', () => {
    const said = Object.values(
      asyncApi.operations as Record<string, { messages: object[]; reply?: { messages: object[] } }>,
    )
    const named = new Set(
      said
        .flatMap(({ messages, reply }) => [...messages, ...(reply?.messages ?? [])])
        .map((ref) => Object.values(ref)[0]),
    )
    for (const { type } of [...clientFrames, ...serverFrames])
      expect(named).toContain(`#/channels/socket/messages/${type}`)
  })
})
