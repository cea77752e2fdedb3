import { fromHex, type PeerKey, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import {
  createDeviceInvite,
  createInvite,
  nameRootForMany,
  readAdmissionClaim,
  readAnyInvite,
  readDeviceInvite,
  ready,
  type SigningKeys,
  signAdmission,
  signingKeysFromSeed,
} from '../index.ts'
import { MESH, peerNumber, readVector } from '../test/fixtures.ts'
import { signAdmissionGrant } from './admission.ts'

beforeAll(ready)

const ROOT = 'cc'.repeat(32) as PeerKey
const TERMS = { meshId: MESH, url: 'wss://broker.example', brokerKey: 'bb'.repeat(32) as PeerKey }
const ada = (): SigningKeys => peerNumber(1).signing
const ben = (): SigningKeys => peerNumber(2).signing
const lineForMany = (usesMax = 5) =>
  nameRootForMany(ada(), createInvite(ada(), { ...TERMS, usesMax }), { root: ROOT, revocations: 7 })
const admissionOf = (name = 'ben') => signAdmission(ben(), readAnyInvite(lineForMany()).admission!, { name, atMs: 5 })

test('an invite of several uses names the root, and its holder proves a membership without it', () => {
  const line = lineForMany()
  expect(line).toMatch(/^sealpost3:/)
  expect(readAnyInvite(` ${line}\n`)).toMatchObject({ root: ROOT, revocations: 7, invite: { usesMax: 5 } })
  expect(readAdmissionClaim(admissionOf())).toEqual({
    ...{ meshId: MESH, peerKey: ben().publicKey, name: 'ben', role: 'member', issuer: ada().publicKey },
    ...{ atMs: 5, kind: 'admission' },
  })
  const plain = createInvite(ada(), TERMS)
  expect(readAnyInvite(plain)).toMatchObject({ root: null, admission: null })
})

test('an admission and a line with a changed, missing or additional byte are refused', () => {
  const bytes = admissionOf()
  for (let at = 0; at < bytes.length; at += 3) {
    const other = bytes.slice()
    other[at]! ^= 1
    expect(readAdmissionClaim(other)).toBe(null)
    expect(readAdmissionClaim(bytes.subarray(0, at))).toBe(null)
  }
  expect(readAdmissionClaim(Uint8Array.of(...bytes, 0))).toBe(null)
  const line = lineForMany()
  for (const at of [12, 400, 700, line.length - 2])
    expect(() => readAnyInvite(line.slice(0, at) + (line[at] === 'A' ? 'B' : 'A') + line.slice(at + 1))).toThrow()
  expect(() => readAnyInvite(line.replace('sealpost3', 'sealpost2'))).toThrow()
})

test('without the secret of the line, nobody can sign an admission', () => {
  const { grant } = readAnyInvite(lineForMany()).admission!
  expect(() => signAdmission(ben(), { grant, signing: peerNumber(9).signing }, { name: 'ben', atMs: 5 })).toThrow()
})

test('a device invite can name the root, with the signature of the user', () => {
  const line = createDeviceInvite(ada(), { ...TERMS, label: 'phone', root: ROOT, revocations: 3 })
  expect(readDeviceInvite(line)).toMatchObject({ root: ROOT, revocations: 3, voucher: { label: 'phone' } })
  expect(readDeviceInvite(createDeviceInvite(ada(), { ...TERMS, label: 'phone' }))).toMatchObject({ root: null })
  const at = line.length - 4
  expect(() => readDeviceInvite(line.slice(0, at) + (line[at] === 'A' ? 'B' : 'A') + line.slice(at + 1))).toThrow()
})

test('the bytes match the vector', () => {
  const { seeds, meshId, role, name, atMs, ...bytes } = readVector('admission.json')
  const keys = (of: string) => signingKeysFromSeed(fromHex(seeds[of]))
  const grant = signAdmissionGrant(keys('issuer'), { meshId, role, admissionKey: keys('admission').publicKey })
  const admission = signAdmission(keys('member'), { grant, signing: keys('admission') }, { name, atMs })
  expect({ grant: toHex(grant), admission: toHex(admission) }).toEqual(bytes)
})
