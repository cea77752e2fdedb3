import { expect, test } from 'vitest'
import { envelopeIds } from './peer-keys.ts'

const HEX_V7 = /^[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}$/

test('an id is a UUID v7 of its millisecond', () => {
  const next = envelopeIds(() => 0x0192_8374_6556)
  const id = next()
  expect(id).toMatch(HEX_V7)
  expect(id.slice(0, 12)).toBe('019283746556')
})

test('each id is above the one before, whatever the clock does', () => {
  const times = [5_000, 5_000, 5_001, 4_000, 4_000, 5_001, 5_002]
  const next = envelopeIds(() => times.shift() ?? 5_002)
  const ids = Array.from({ length: 50_000 }, next)
  for (const [i, id] of ids.entries()) {
    if (i > 0 && !(id > ids[i - 1]!)) throw new Error(`${id} after ${ids[i - 1]}`)
    if (!HEX_V7.test(id)) throw new Error(id)
  }
})

test('two generators do not collide within a millisecond', () => {
  const makers = [envelopeIds(() => 1_000), envelopeIds(() => 1_000)]
  const ids = makers.flatMap((next) => Array.from({ length: 1_000 }, next))
  expect(new Set(ids).size).toBe(2_000)
})
