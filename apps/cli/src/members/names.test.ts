import { expect, test } from 'vitest'
import { readableName, similarNames, typedName, unknownName } from './names.ts'

const MEMBERS = ['bob', 'bob-laptop', 'bob2', 'Carol', 'Зоя', 'дерево']
const DEVICES = ['bob/api-server', 'bob/laptop-1']

test.each([
  ['bbo', ['bob']],
  ['alice', []],
  ['bo', ['bob', 'bob2', 'bob-laptop']],
  ['BOB', ['bob', 'bob2', 'bob-laptop']],
  ['b0b', ['bob']],
  ['bob'.repeat(10_000), []],
  ['carol', ['Carol']],
  ['зоя', ['Зоя']],
  ['Зо', ['Зоя']],
  ['bob/api-srever', ['bob/api-server']],
  ['bob/laptop', ['bob/laptop-1']],
  ['zed', []],
  ['', []],
])('for %j the suggestions are %j', (word, similar) => {
  expect(similarNames(word, word.includes('/') ? DEVICES : MEMBERS)).toEqual(similar)
})

test('the error names what the user may have meant', () => {
  const error = unknownName('name_unknown', 'There is no bbo.', { word: 'bbo', names: MEMBERS })
  expect([error.code, error.message]).toEqual(['name_unknown', 'There is no bbo. Did you mean bob?'])
  expect(unknownName('name_unknown', 'There is no zed.', { word: 'zed', names: MEMBERS }).message).toBe(
    'There is no zed.',
  )
})

test.each([
  ['zoe\u0308', 'zoë'],
  [' Зоя ', 'Зоя'],
  ['\u2068שלום\u2069', 'שלום'],
  ['xn--Zo-ija/xn--9dbne9b', 'Zoë/שלום'],
  ['bob', 'bob'],
])('typed as %j, the name is %j', (typed, name) => {
  expect(typedName(typed)).toBe(name)
})

test('a name that no member can have chosen is shown in its ASCII form', () => {
  expect(readableName('p\u0430ypal')).toBe('xn--pypal-4ve')
  expect(readableName('bob/p\u0430ypal')).toBe('bob/xn--pypal-4ve')
  for (const name of ['Зоя/телефон', 'bob', 'a (former) name', '']) expect(readableName(name)).toBe(name)
})
