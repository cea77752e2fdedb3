import { readArguments } from '@sealpost/loadtest/command/arguments'
import { expect, test } from 'vitest'
import { PARTS } from './parts.ts'

const runs = PARTS.flatMap(({ runs }) => runs).filter(({ script = 'load-test.ts' }) => script === 'load-test.ts')
const commands = runs.flatMap(({ words, tiny }) => (tiny === null ? [words] : [words, tiny]))

test.each(commands)('the load test accepts %s', (words) => {
  let err = ''
  const options = readArguments(words.split(' '), {}, { writeErr: (text) => (err += text) })
  expect([typeof options, err]).toEqual(['object', ''])
})

test('each part has a tiny form', () => {
  expect(PARTS.filter((part) => part.runs.every(({ tiny }) => tiny === null))).toEqual([])
})
