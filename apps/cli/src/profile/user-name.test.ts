import { isChosenName } from '@sealpost/std'
import { expect, test } from 'vitest'
import { userName } from './profile.ts'

test.each([
  ['alice', 'alice'],
  ['CORP/alice (admin)', 'CORPalice admin'],
  ['--rf', 'rf'],
  ['zoë', 'zoë'],
  ['日本', '日本'],
  ['bob\u200d😀', 'bob'],
  ['p\u0430ypal', 'pypal'],
  ['xn--abc', 'someone'],
  ['NV2N-HQ7V', 'someone'],
  [`${'x'.repeat(63)} y`, 'x'.repeat(63)],
])('the account %j gets the name %j', (account, name) => {
  expect(userName(account)).toBe(name)
  expect(isChosenName(name)).toBe(true)
})
