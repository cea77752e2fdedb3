import { fromHex, type InviteId, type MeshId, OperatingError, type PeerKey, toHex } from '@sealpost/std'
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import { lengthPrefixed, u16 } from '../byte-fields.ts'
import { createInvite, type InviteTerms, parseInvite, readInvite, ready, sign, signingKeysFromSeed } from '../index.ts'
import { MESH, peerNumber, readVector } from '../test/fixtures.ts'
import { signInvite } from './enrolment.ts'

beforeAll(ready)

const BROKER = 'bb'.repeat(32) as PeerKey
const terms: InviteTerms = { meshId: MESH, url: 'wss://broker.example', brokerKey: BROKER }

function malformed(text: string): boolean {
  try {
    readInvite(text)
    return false
  } catch (error) {
    if (!(error instanceof OperatingError) || error.code !== 'invite_malformed') throw error
    expect(error.message).not.toContain(text.slice(0, 20) || '\0')
    return true
  }
}

test('an invite returns its fields', () => {
  const admin = peerNumber(1).signing
  const whole = { ...terms, notAfterMs: 1_800_000_000_000, usesMax: 3, role: 'admin' } as const
  const text = createInvite(admin, whole)
  expect(text).toMatch(/^sealpost1:[\w-]{100,400}$/)
  expect(readInvite(`  ${text}\n`)).toMatchObject({ ...whole, issuer: admin.publicKey })
})

test('by default an invite admits one member within a day, and has a distinct id', () => {
  const { signing } = peerNumber(1)
  const [one, two] = [readInvite(createInvite(signing, terms)), readInvite(createInvite(signing, terms))]
  expect(one).toMatchObject({ usesMax: 1, role: 'member' })
  expect(Math.abs(one.notAfterMs - Date.now() - 24 * 3600_000)).toBeLessThan(60_000)
  expect(one.inviteId).not.toBe(two.inviteId)
})

test('a text with a changed, missing or additional character is no invite', () => {
  const text = createInvite(peerNumber(1).signing, terms)
  for (let at = 0; at < text.length; at++) {
    const other = text[at] === 'A' ? 'B' : 'A'
    expect(malformed(text.slice(0, at) + other + text.slice(at + 1))).toBe(true)
  }
  for (const bad of [
    text.slice(0, -1),
    `${text}A`,
    `${text}=`,
    `${text} x`,
    text.replace('sealpost1:', ''),
    '',
    'hello',
  ])
    expect(malformed(bad)).toBe(true)
})

test('arbitrary bytes are read or refused without an exception', () => {
  return fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
      expect(parseInvite(bytes)).toBeNull()
    }),
  )
})

/** Invites that a hostile issuer might sign, each with one invalid field. */
const STRANGE: Record<
  string,
  Partial<Record<'inviteId' | 'meshId' | 'url' | 'brokerKey' | 'usesMax' | 'role', Uint8Array>>
> = {
  'a short invite id': { inviteId: lengthPrefixed(new Uint8Array(15)) },
  'a long mesh id': { meshId: lengthPrefixed(new Uint8Array(17)) },
  'no broker key': { brokerKey: lengthPrefixed(new Uint8Array(0)) },
  'no uses': { usesMax: u16(0) },
  'a role that does not exist': { role: u16(2) },
  'a URL of another scheme': { url: text('https://broker.example') },
  'a URL with a password': { url: text('wss://a:b@broker.example') },
  'a URL with a query': { url: text('wss://broker.example/?x') },
  'a URL with a space': { url: text('wss://broker.example/ x') },
  'an invalid URL': { url: text('wss://[') },
  'a URL of 256 characters': { url: text(`wss://broker.example/${'x'.repeat(235)}`) },
  'a length that lies': { meshId: u16(0xffff) },
}

function text(ascii: string): Uint8Array {
  return lengthPrefixed(new TextEncoder().encode(ascii))
}

function signedOf(changed: (typeof STRANGE)[string]): Uint8Array {
  const { signing } = peerNumber(1)
  const fields = Buffer.concat([
    changed.inviteId ?? lengthPrefixed(new Uint8Array(16)),
    changed.meshId ?? lengthPrefixed(fromHex(MESH)),
    changed.url ?? text('wss://broker.example'),
    changed.brokerKey ?? lengthPrefixed(fromHex(BROKER)),
    new Uint8Array(8),
    changed.usesMax ?? u16(1),
    changed.role ?? u16(0),
    lengthPrefixed(fromHex(signing.publicKey)),
  ])
  const signature = sign(signing, Buffer.concat([new TextEncoder().encode('sealpost-invite/1\0'), fields]))
  return new Uint8Array(Buffer.concat([fields, signature]))
}

test.each(Object.keys(STRANGE))('an invite with %s is refused despite its valid signature', (name) => {
  expect(parseInvite(signedOf({}))).not.toBeNull()
  expect(parseInvite(signedOf(STRANGE[name]!))).toBeNull()
})

test.each([
  'https://broker.example',
  'wss://user:secret@broker.example',
  'wss://broker.example/?token=1',
  'wss://broker.example/#x',
  'wss://',
])('no invite can be created for %s', (url) => {
  expect(() => createInvite(peerNumber(1).signing, { ...terms, url })).toThrow()
})

test('the frozen vector is reproduced, and is read as its fields', () => {
  const { issuerSeed, inviteId, terms: frozen, text: line, bytes } = readVector('invite.json')
  const issuer = signingKeysFromSeed(fromHex(issuerSeed))
  expect(signInvite(issuer, frozen as Required<InviteTerms> & { meshId: MeshId }, inviteId as InviteId)).toBe(line)
  const read = readInvite(line)
  expect(read).toMatchObject({ ...frozen, inviteId, issuer: issuer.publicKey })
  expect(toHex(read.bytes)).toBe(bytes)
})
