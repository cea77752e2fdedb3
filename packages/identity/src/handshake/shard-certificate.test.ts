import { fromHex, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import {
  checkShardCertificate,
  createInvite,
  readShardCertificate,
  readShardCertificateText,
  ready,
  shardCertificateText,
  signingKeysFromSeed,
  signShardCertificate,
} from '../index.ts'
import { peerNumber, readVector } from '../test/fixtures.ts'

beforeAll(ready)

const cluster = () => peerNumber(1).signing
const shard = () => peerNumber(2).signing
const thief = () => peerNumber(3).signing
const terms = () => ({
  shardKey: shard().publicKey,
  authorities: ['a.example:443', '10.0.0.1:7450'],
  notAfterMs: 9_000,
})
const signed = () => signShardCertificate(cluster(), terms())
const expected = () => ({
  clusterKey: cluster().publicKey,
  shardKey: shard().publicKey,
  authority: 'a.example:443',
  nowMs: 9_000,
})

test('a certificate contains the cluster, the key, its names and its expiry', () => {
  expect(readShardCertificate(signed())).toEqual({ ...terms(), clusterKey: cluster().publicKey, bytes: signed() })
  expect(checkShardCertificate(signed(), expected())).toBe('ok')
  expect(checkShardCertificate(signed(), { ...expected(), authority: '10.0.0.1:7450' })).toBe('ok')
})

test('a certificate with a changed, missing or additional byte is refused', () => {
  const bytes = signed()
  for (let at = 0; at < bytes.length; at++) {
    const other = bytes.slice()
    other[at]! ^= 1
    expect(checkShardCertificate(other, expected())).toBe('certificate_forged')
    expect(readShardCertificate(bytes.subarray(0, at))).toBe(null)
  }
  expect(readShardCertificate(Uint8Array.of(...bytes, 0))).toBe(null)
})

test.each([
  ['another key', () => ({ shardKey: thief().publicKey }), 'certificate_foreign'],
  ['another cluster', () => ({ clusterKey: thief().publicKey }), 'certificate_foreign'],
  ['another name', () => ({ authority: 'b.example:443' }), 'certificate_foreign'],
  ['another port', () => ({ authority: 'a.example:444' }), 'certificate_foreign'],
  ['a later time', () => ({ nowMs: 9_001 }), 'certificate_expired'],
] as const)('a certificate is refused for %s', (_, change, verdict) => {
  expect(checkShardCertificate(signed(), { ...expected(), ...change() })).toBe(verdict)
})

test('a shard cannot certify another one, and a signature for another purpose is refused', () => {
  expect(checkShardCertificate(signShardCertificate(shard(), terms()), expected())).toBe('certificate_foreign')
  const invite = createInvite(cluster(), { meshId: '0a'.repeat(16) as never, url: 'wss://a', brokerKey: shard().publicKey }) // biome-ignore format: short
  expect(readShardCertificate(fromHex(Buffer.from(invite.split(':')[1]!, 'base64url').toString('hex')))).toBe(null)
})

test('a certificate names one to four authorities', () => {
  const withCount = (count: number) => () =>
    signShardCertificate(cluster(), { ...terms(), authorities: Array.from({ length: count }, (_, n) => `${n}:1`) })
  expect(withCount(0)).toThrow()
  expect(withCount(5)).toThrow()
  expect(readShardCertificate(withCount(4)())?.authorities).toHaveLength(4)
})

test('the text form is one line', () => {
  const text = shardCertificateText(signed())
  expect(readShardCertificateText(` ${text}\n`)?.bytes).toEqual(signed())
  for (const other of ['', text.slice(1), text.slice(0, -2), `${text} x`])
    expect(readShardCertificateText(other)).toBe(null)
})

test('the bytes are those of the vector', () => {
  const { clusterSeed, terms: written, bytes } = readVector('shard.json')
  const keys = signingKeysFromSeed(fromHex(clusterSeed))
  expect(toHex(signShardCertificate(keys, written))).toBe(bytes)
  expect(readShardCertificate(fromHex(bytes))).toMatchObject({ ...written, clusterKey: keys.publicKey })
})
