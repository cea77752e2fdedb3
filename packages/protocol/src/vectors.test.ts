import { readFileSync } from 'node:fs'
import { fromHex, toHex } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { type FrameVectors, wireOf } from '../vectors/vectors.ts'
import { clientFrames, decodeClientFrame, decodeServerFrame, encodeBinary, encodeJson, serverFrames } from './index.ts'

const file = new URL('../vectors/frames.json', import.meta.url)
const vectors: FrameVectors = JSON.parse(readFileSync(file, 'utf8'))
const decoderOf = (from: 'client' | 'server') => (from === 'client' ? decodeClientFrame : decodeServerFrame)

describe('frames.json', () => {
  test('contains every frame', () => {
    for (const [from, kinds] of [['server', serverFrames], ['client', clientFrames]] as const) {
      const seen = new Set(vectors.frames.filter((vector) => vector.from === from).map(({ json }) => json.type))
      expect([...seen].sort()).toEqual(kinds.map(({ type }) => type).sort())
    } // biome-ignore format: two short rows
  })

  test.each(vectors.frames)(
    '$name: both forms decode to one frame, and encode to these forms',
    ({ from, json, binary }) => {
      const decode = decoderOf(from)
      const fromText = decode('json', JSON.stringify(json))
      const fromBytes = decode('binary', fromHex(binary))
      if (!fromText.ok || !fromBytes.ok) throw new Error('a vector was refused')
      expect(fromBytes.frame).toEqual(fromText.frame)
      expect(toHex(encodeBinary(fromText.frame))).toBe(binary)
      expect(encodeJson(fromBytes.frame)).toBe(JSON.stringify(json))
    },
  )

  test.each(vectors.refused)('$name is refused', (vector) => {
    expect(decoderOf(vector.from)(vector.form, wireOf(vector))).toMatchObject({ ok: false, code: vector.code })
  })
})
