import { expect, test } from 'vitest'
import { thinned } from './mach-o.ts'

const X64 = [0x01, 0, 0, 7]
const ARM64 = [0x01, 0, 0, 0x0c]
const number = (value: number) => [0, 0, 0, value]

/** A header for two processors, then their contents of three and two bytes. */
const universal = new Uint8Array([
  ...[0xca, 0xfe, 0xba, 0xbe, ...number(2)],
  ...[...X64, ...number(3), ...number(48), ...number(3), ...number(0)],
  ...[...ARM64, ...number(0), ...number(51), ...number(2), ...number(0)],
  ...[1, 2, 3, 4, 5],
])

test('of a universal binary the version of one processor is packed', () => {
  expect([...thinned(universal, 'x64')]).toEqual([1, 2, 3])
  expect([...thinned(universal, 'arm64')]).toEqual([4, 5])
})

test.each([
  ['a text', new TextEncoder().encode('#!/bin/sh\n')],
  ['an empty file', new Uint8Array()],
  ['the magic number alone', universal.slice(0, 4)],
  ['a class file of Java', new Uint8Array([0xca, 0xfe, 0xba, 0xbe, ...number(61), ...Array(2000).fill(0)])],
  ['a binary for other processors', universal.map((byte, at) => (at === 11 || at === 31 ? 0x12 : byte))],
])('%s is packed unchanged', (_, contents) => {
  expect(thinned(contents, 'arm64')).toBe(contents)
})
