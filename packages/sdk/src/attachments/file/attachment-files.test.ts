import { expect, test } from 'vitest'
import { fileNames, safeFileName } from './attachment-files.ts'

test.each([
  ['report.pdf', 'report.pdf'],
  ['Bericht März.pdf', 'Bericht März.pdf'],
  ['../../etc/passwd', '_.._etc_passwd'],
  ['/etc/passwd', '_etc_passwd'],
  ['C:\\boot.ini', 'C__boot.ini'],
  ['.bashrc', 'bashrc'],
  ['..', 'file'],
  ['', 'file'],
  ['-rf', 'rf'],
  ['a\nb\x1b[2J.txt', 'a_b_[2J.txt'],
  ['gpj.\u202Eexe', 'gpj._exe'],
  ['nul.txt', 'file_nul.txt'],
  ['name. ', 'name'],
])('%j is saved as %j', (given, saved) => {
  expect(safeFileName(given)).toBe(saved)
})

test('a long name is shortened, and keeps its extension', () => {
  const name = safeFileName(`${'ä'.repeat(127)}.pdf`)
  expect(Buffer.byteLength(name)).toBeLessThanOrEqual(200)
  expect(name).toMatch(/^ä+\.pdf$/)
})

test('an existing name is followed by the next number', () => {
  const names = fileNames('a.tar.gz')
  expect([names.next().value, names.next().value, names.next().value]).toEqual([
    'a.tar.gz',
    'a.tar (2).gz',
    'a.tar (3).gz',
  ])
})
