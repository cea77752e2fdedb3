/** Tests which recoveries an audit counts, from the statements in a log. */
import {
  generateSigningKeys,
  ready,
  type SigningKeys,
  signHeirs,
  signIdentityRotation,
  signRecovery,
} from '@sealpost/identity'
import type { LogEntry } from '@sealpost/identity/log'
import type { MeshId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { LoggedSuccessors } from './logged-successors.ts'

await ready()
const MESH = 'a0'.repeat(16) as MeshId
const [alice, laptop, next, other, last] = Array.from({ length: 5 }, generateSigningKeys) as [
  SigningKeys,
  SigningKeys,
  SigningKeys,
  SigningKeys,
  SigningKeys,
]

const heirsOf = (user: SigningKeys, epoch: number) =>
  signHeirs(user, { meshId: MESH, epoch, heirs: [{ device: laptop.publicKey, label: 'laptop' }] })
const heirs = (user: SigningKeys, epoch: number): LogEntry => ({ kind: 'heirs', statement: heirsOf(user, epoch) })
const recovery = (former: SigningKeys, epoch: number, successor: SigningKeys): LogEntry => ({
  kind: 'recovery',
  statement: signRecovery({ heir: laptop, successor }, { heirs: heirsOf(former, epoch), atMs: 1 }),
})
const rotation = (former: SigningKeys, successor: SigningKeys): LogEntry => ({
  kind: 'succession',
  statement: signIdentityRotation({ former, successor }, { meshId: MESH, atMs: 1 }),
})

/** Returns the successor of each recovery that took effect, and whether it was cancelled. */
const applied = (entries: readonly LogEntry[], ...listed: readonly SigningKeys[]) =>
  new LoggedSuccessors(entries)
    .applied(new Set(listed.map(({ publicKey }) => publicKey)))
    .map(({ successor, isCancelled }) => [successor, isCancelled])

test('a recovery took effect if its successor is listed, or a key that followed it', () => {
  const entries = [heirs(alice, 1), recovery(alice, 1, other), recovery(alice, 1, next)]
  expect(applied(entries, alice)).toEqual([])
  expect(applied(entries, next)).toEqual([[next.publicKey, false]])
  expect(applied([...entries, rotation(next, last)], last)).toEqual([[next.publicKey, false]])
  const chain = [recovery(next, 1, last), ...entries]
  expect(applied(chain, last)).toEqual([
    [last.publicKey, false],
    [next.publicKey, false],
  ])
})

test('newer heirs and a rotation of the lost key cancel a recovery, wherever they are in the log', () => {
  const entries = [recovery(alice, 1, next), heirs(alice, 1)]
  expect(applied([...entries, heirs(alice, 2)], next)).toEqual([[next.publicKey, true]])
  expect(applied([heirs(alice, 2), ...entries], next)).toEqual([[next.publicKey, true]])
  expect(applied([...entries, rotation(alice, other)], next)).toEqual([[next.publicKey, true]])
  expect(applied([...entries, rotation(alice, other)], other)).toEqual([])
})

test('a cancelled recovery to the same key does not count against one under the newest heirs', () => {
  const entries = [heirs(alice, 1), recovery(alice, 1, next), heirs(alice, 2), recovery(alice, 2, next)]
  expect(applied(entries, next)).toEqual([[next.publicKey, false]])
})

test('successors that lead in a circle end', () => {
  expect(applied([rotation(next, other), rotation(other, next), recovery(alice, 1, next)], last)).toEqual([])
})
