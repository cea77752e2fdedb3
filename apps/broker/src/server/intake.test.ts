import { expect, test } from 'vitest'
import { Intakes } from './intake.ts'

const KIB = 1024

test('a member exceeds its rate once more than a burst was parsed', () => {
  const intakes = new Intakes({ perSecond: 1, burst: 10 * KIB })
  const intake = intakes.enter('m/1')
  expect(intake.parse(9 * KIB)).toBe(0)
  expect(intake.parse(2 * KIB)).toBeGreaterThan(0)
  expect(intake.owed()).toBeGreaterThan(0)
  expect(intake.ask(1)).toBeGreaterThan(0)
  expect(intakes.enter('m/2').owed()).toBe(0)
})

test('a small frame is charged a kibibyte, and a refused one 64 times its size', () => {
  const intakes = new Intakes({ perSecond: 1, burst: 128 * KIB })
  const [small, refused] = [intakes.enter('m/1'), intakes.enter('m/2')]
  for (let i = 0; i < 128; i++) expect(small.parse(1)).toBe(0)
  expect(small.parse(1)).toBeGreaterThan(0)
  for (let i = 0; i < 2; i++) expect(refused.parse(KIB) + refused.refuse(KIB)).toBe(0)
  expect(refused.parse(KIB)).toBeGreaterThan(0)
})

test("a member's debt outlives its connection", () => {
  const intakes = new Intakes({ perSecond: 1, burst: KIB })
  intakes.enter('m/1').refuse(4 * KIB)
  intakes.leave('m/1')
  expect(intakes.enter('m/1').owed()).toBeGreaterThan(0)
})
