import { createHash } from 'node:crypto'
import { sha256 as portableSha256 } from '@noble/hashes/sha2.js'
import { toHex } from '@sealpost/std'
import { expect, test } from 'vitest'
import {
  consistencyRanges,
  inclusionRanges,
  isConsistent,
  leafHash,
  nodePosition,
  perfectRanges,
  rangeHash,
  rootOfInclusion,
  TreeBuilder,
} from './index.ts'

const sha256 = (...parts: Uint8Array[]) => {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part)
  return new Uint8Array(hash.digest())
}

/** The largest power of two below n. */
function split(n: number): number {
  let k = 1
  while (k * 2 < n) k *= 2
  return k
}

/** RFC 6962, section 2.1, word by word. */
function mth(d: readonly Uint8Array[]): Uint8Array {
  if (d.length === 0) return sha256()
  if (d.length === 1) return sha256(Uint8Array.of(0), d[0]!)
  const k = split(d.length)
  return sha256(Uint8Array.of(1), mth(d.slice(0, k)), mth(d.slice(k)))
}

function path(m: number, d: readonly Uint8Array[]): Uint8Array[] {
  if (d.length === 1) return []
  const k = split(d.length)
  if (m < k) return [...path(m, d.slice(0, k)), mth(d.slice(k))]
  return [...path(m - k, d.slice(k)), mth(d.slice(0, k))]
}

function subproof(m: number, d: readonly Uint8Array[], b: boolean): Uint8Array[] {
  if (m === d.length) return b ? [] : [mth(d)]
  const k = split(d.length)
  if (m <= k) return [...subproof(m, d.slice(0, k), b), mth(d.slice(k))]
  return [...subproof(m - k, d.slice(k), false), mth(d.slice(0, k))]
}

const MAX = 70
const entries = Array.from({ length: MAX }, (_, at) => Uint8Array.from({ length: at % 5 }, (_, i) => at + i))
const hexes = (hashes: readonly Uint8Array[]) => hashes.map(toHex)

/** The nodes as a log stores them: those of perfect ranges only. */
const nodes = new Map<number, Uint8Array>()
for (let span = 1; span <= MAX; span *= 2)
  for (let start = 0; start + span <= MAX; start += span)
    nodes.set(nodePosition({ start, end: start + span }), mth(entries.slice(start, start + span)))
const nodeAt = (position: number) => nodes.get(position)!
const rootOf = (size: number) => rangeHash({ start: 0, end: size }, nodeAt)

test('the portable hash, for browsers, is that of the platform', () => {
  for (const entry of entries) expect(toHex(portableSha256(entry))).toBe(toHex(sha256(entry)))
})

test('each perfect range has a number of its own', () => {
  expect(nodes.size).toBe([70, 35, 17, 8, 4, 2, 1].reduce((sum, count) => sum + count))
})

test('the roots are those of RFC 6962, and of an independent implementation', () => {
  const builder = new TreeBuilder()
  for (let size = 0; size <= MAX; size++) {
    if (size > 0) builder.append(leafHash(entries[size - 1]!))
    expect(toHex(builder.rootHash)).toBe(toHex(mth(entries.slice(0, size))))
    expect(toHex(rootOf(size))).toBe(toHex(builder.rootHash))
  }
  // The entries and roots that the authors of RFC 6962 publish with their reference implementation.
  const known = ['', '00', '10', '2021', '3031', '40414243', '5051525354555657', '606162636465666768696a6b6c6d6e6f']
  const eight = known.map((hex) => new Uint8Array(Buffer.from(hex, 'hex')))
  expect(toHex(mth([]))).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855')
  expect(toHex(mth(eight.slice(0, 1)))).toBe('6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d')
  expect(toHex(mth(eight))).toBe('5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328')
})

test('an inclusion proof has the hashes of RFC 6962, and proves its leaf only', () => {
  for (let size = 1; size <= MAX; size++) {
    for (let index = 0; index < size; index++) {
      const ranges = inclusionRanges(index, size)
      const proof = ranges.map((range) => rangeHash(range, nodeAt))
      expect(hexes(proof)).toEqual(hexes(path(index, entries.slice(0, size))))
      const claim = { leaf: leafHash(entries[index]!), index, size, path: proof }
      expect(toHex(rootOfInclusion(claim)!)).toBe(toHex(rootOf(size)))
      const others = [
        { ...claim, leaf: leafHash(Uint8Array.of(255)) },
        ...(size > 1
          ? [
              { ...claim, path: proof.slice(1) },
              { ...claim, path: [proof[0]!, ...proof] },
            ]
          : []),
        ...(size > 1 ? [{ ...claim, index: index === 0 ? size - 1 : index - 1 }] : []),
      ]
      for (const other of others) expect(rootOfInclusion(other)).not.toEqual(rootOf(size))
    }
  }
  for (const index of [-1, 3, 0.5, Number.NaN])
    expect(rootOfInclusion({ leaf: leafHash(entries[0]!), index, size: 3, path: [] })).toBeNull()
})

test('a consistency proof has the hashes of RFC 6962, and proves no other tree', () => {
  for (let size = 0; size <= MAX; size++) {
    for (let from = 0; from <= size; from++) {
      const proof = consistencyRanges(from, size).map((range) => rangeHash(range, nodeAt))
      if (from > 0) expect(hexes(proof)).toEqual(hexes(subproof(from, entries.slice(0, size), true)))
      const [older, newer] = [from, size].map((each) => ({ size: each, rootHash: rootOf(each) }))
      expect(isConsistent(older!, newer!, proof), `${from} of ${size}`).toBe(true)
      const forked = { size: from, rootHash: mth([...entries.slice(1, from), Uint8Array.of(255)]) }
      expect(isConsistent(forked, newer!, proof)).toBe(false)
      if (size > from) expect(isConsistent(newer!, older!, proof)).toBe(false)
      expect(isConsistent(older!, newer!, [...proof, rootOf(1)])).toBe(false)
      if (proof.length > 0) expect(isConsistent(older!, newer!, proof.slice(1))).toBe(false)
    }
  }
})

test('a range of a large log consists of few stored nodes', () => {
  const size = 100_000
  const reads = inclusionRanges(31_337, size).flatMap((range) => perfectRanges(range))
  expect(reads.length).toBeLessThan(40)
  expect(inclusionRanges(31_337, size).length * 32).toBeLessThan(1024)
})
