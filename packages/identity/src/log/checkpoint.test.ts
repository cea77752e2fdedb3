import { fromHex, toHex } from '@sealpost/std'
import { expect, test } from 'vitest'
import { generateSigningKeys, ready, signingKeysFromSeed, signShardCertificate } from '../index.ts'
import { MESH, OTHER_MESH, readVector } from '../test/fixtures.ts'
import {
  CHECKPOINT_BYTES,
  compareCheckpoints,
  entryLeaf,
  isBrokerKey,
  isEntrySigned,
  leafHash,
  readCheckpoint,
  rootOfInclusion,
  signCheckpoint,
  TreeBuilder,
} from './index.ts'

await ready()
const broker = generateSigningKeys()
const tree = new TreeBuilder()
tree.append(leafHash(Uint8Array.of(1)))
const terms = { meshId: MESH, size: tree.size, rootHash: tree.rootHash, atMs: 1_900_000_000_000 }

test('a checkpoint is short enough for a message, and has one mesh and one signer', () => {
  const bytes = signCheckpoint(broker, terms)
  expect(bytes).toHaveLength(CHECKPOINT_BYTES)
  expect(CHECKPOINT_BYTES).toBeLessThanOrEqual(150)
  expect(readCheckpoint(bytes, MESH)).toEqual({ ...terms, signer: broker.publicKey, bytes })
  expect(readCheckpoint(bytes, OTHER_MESH)).toBeNull()
  for (const wrong of [bytes.slice(1), new Uint8Array(), new Uint8Array([...bytes, 0])])
    expect(readCheckpoint(wrong, MESH)).toBeNull()
  for (let at = 0; at < bytes.length; at++) {
    const changed = bytes.slice()
    changed[at]! ^= 1
    expect(readCheckpoint(changed, MESH)).toBeNull()
  }
})

test('the signer is the pinned broker, or a shard with a certificate that had not expired', () => {
  const shard = generateSigningKeys()
  const certificate = signShardCertificate(broker, {
    shardKey: shard.publicKey,
    authorities: ['broker.example:443'],
    notAfterMs: terms.atMs,
  })
  const pinned = { brokerKey: broker.publicKey, certificate: null }
  expect(isBrokerKey({ signer: broker.publicKey, atMs: terms.atMs }, pinned)).toBe(true)
  expect(isBrokerKey({ signer: shard.publicKey, atMs: terms.atMs }, pinned)).toBe(false)
  expect(isBrokerKey({ signer: shard.publicKey, atMs: terms.atMs }, { ...pinned, certificate })).toBe(true)
  expect(isBrokerKey({ signer: shard.publicKey, atMs: terms.atMs + 1 }, { ...pinned, certificate })).toBe(false)
  const foreign = { brokerKey: shard.publicKey, certificate }
  expect(isBrokerKey({ signer: broker.publicKey, atMs: terms.atMs }, foreign)).toBe(false)
})

test('two checkpoints are consistent if one tree is a prefix of the other', () => {
  const first = { size: tree.size, rootHash: tree.rootHash }
  const leaf = leafHash(Uint8Array.of(2))
  tree.append(leaf)
  const second = { size: tree.size, rootHash: tree.rootHash }
  expect(compareCheckpoints(first, first, [])).toBe('consistent')
  expect(compareCheckpoints(first, second, [leaf])).toBe('consistent')
  expect(compareCheckpoints(second, first, [leaf])).toBe('consistent')
  expect(compareCheckpoints(first, { ...first, rootHash: leaf }, [])).toBe('forked')
  expect(compareCheckpoints({ ...first, rootHash: leaf }, second, [leaf])).toBe('forked')
})

test('the frozen vectors are reproduced', () => {
  const frozen = readVector('log.json')
  const hashes = (path: string[]) => path.map(fromHex)
  const builder = new TreeBuilder()
  expect(toHex(builder.rootHash)).toBe(frozen.roots[0])
  for (const [at, { kind, statement }] of frozen.entries.entries()) {
    const entry = { kind, statement: fromHex(statement) }
    expect(isEntrySigned(entry, frozen.meshId), kind).toBe(true)
    expect(isEntrySigned(entry, OTHER_MESH), kind).toBe(kind === 'root')
    expect(toHex(entryLeaf(entry))).toBe(frozen.leaves[at])
    builder.append(entryLeaf(entry))
    expect(toHex(builder.rootHash)).toBe(frozen.roots[at + 1])
  }
  const { index, size, path } = frozen.inclusion
  const claim = { leaf: fromHex(frozen.leaves[index]), index, size, path: hashes(path) }
  expect(toHex(rootOfInclusion(claim)!)).toBe(frozen.roots[size])
  const headOf = (length: number) => ({ size: length, rootHash: fromHex(frozen.roots[length]) })
  const { from, to, path: proof } = frozen.consistency
  expect(compareCheckpoints(headOf(from), headOf(to), hashes(proof))).toBe('consistent')
  const signer = signingKeysFromSeed(fromHex(frozen.brokerSeed))
  const checkpoint = { ...headOf(to), meshId: frozen.meshId, atMs: frozen.atMs }
  expect(toHex(signCheckpoint(signer, checkpoint))).toBe(frozen.checkpoint)
})
