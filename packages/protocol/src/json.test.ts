import { expect, test } from 'vitest'
import { samples } from '../vectors/samples.ts'
import { clientFrames, type Frame, serverFrames } from './frames.ts'
import { encodeJson, isNestedDeeper, jsonLengthMax } from './json.ts'

test.each([
  ['{}', 1], ['[]', 1], ['1', 0], ['{"a":[{}]}', 3], ['[[],[],[]]', 2], ['{"a":{},"b":{}}', 2],
  ['["[[[["]', 1], ['["\\"[[[["]', 1], ['["\\\\",[]]', 2], ['["\\\\\\"[[[["]', 1], ['{"[":"{"}', 1],
])('%s nests %i deep', (text, depth) => {
  expect(JSON.parse(text)).toBeDefined()
  expect(isNestedDeeper(text, depth)).toBe(false)
  if (depth > 0) expect(isNestedDeeper(text, depth - 1)).toBe(true)
}) // biome-ignore format: a table

test('a text that is not JSON is scanned to its end', () => {
  for (const text of ['', '"', '"\\', ']]]]', '"\\"', '\\"[[[', '['.repeat(8)])
    expect(isNestedDeeper(text, 8)).toBe(false)
  expect(isNestedDeeper(`${']'.repeat(4)}${'['.repeat(12)}`, 8)).toBe(false)
  expect(isNestedDeeper('['.repeat(9), 8)).toBe(true)
})

test('no frame nests deeper than 8, or is longer than the bound of its shape', () => {
  const kinds = new Map([...clientFrames, ...serverFrames].map((kind) => [kind.type, kind]))
  for (const { frame } of samples) {
    const text = encodeJson(frame as Frame)
    expect(isNestedDeeper(text, 8)).toBe(false)
    const { shape } = kinds.get(frame.type)!.body
    expect(text.length).toBeLessThanOrEqual(jsonLengthMax(shape) + `"type":"${frame.type}",`.length)
  }
})
