import { expect, test } from 'vitest'
import { defaultLimits } from '../limits.ts'
import { memberOf } from '../test/testing-world.ts'
import { welcomeOf } from './session.ts'

const HERE = '0a'.repeat(16)
const incarnationFor = (lineage?: { incarnation: string; cameIn: string }) =>
  welcomeOf(
    { limits: defaultLimits, incarnation: HERE, durability: 'fsync' },
    { ...memberOf(1), ...(lineage && { lineage }) },
    { epoch: 2, proof: new Uint8Array(64) },
  ).incarnation

test('a mesh that came from elsewhere is told of its former incarnation until that of its cell is another', () => {
  const incarnation = '0b'.repeat(16)
  expect(incarnationFor()).toBe(HERE)
  expect(incarnationFor({ incarnation, cameIn: HERE })).toBe(incarnation)
  expect(incarnationFor({ incarnation, cameIn: '0c'.repeat(16) })).toBe(HERE)
})
