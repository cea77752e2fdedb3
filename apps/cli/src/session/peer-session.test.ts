import { expect, test } from 'vitest'
import { longestUnused, sessionLabelOf } from './peer-session.ts'

test.each([
  ['api-server', 'api-server'],
  ['My Project (2)', 'My-Project-2-'],
  ['.config', 'config'],
  ['x'.repeat(40), 'x'.repeat(28)],
  ['日本', undefined],
  ['', undefined],
])('the folder %j gives sessions the label %j', (folder, label) => {
  expect(sessionLabelOf(folder)).toBe(label)
})

test('only an unnamed session that no process has used for a week makes room, the oldest first', () => {
  const dayMs = 24 * 3600_000
  const session = (label: string, days: number, changed: object = {}) => ({
    ...{ label, isNamed: false, isRunning: false, lastUsedMs: 100 * dayMs - days * dayMs },
    ...changed,
  })
  const all = [
    session('a', 8),
    session('b', 9),
    session('named', 30, { isNamed: true }),
    session('running', 30, { isRunning: true }),
  ]
  expect(longestUnused(all, 100 * dayMs)?.label).toBe('b')
  expect(longestUnused([session('recent', 6)], 100 * dayMs)).toBeUndefined()
})
