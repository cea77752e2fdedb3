/** Tests that the SDK of each fixture opens padded envelopes of this version. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  generateIdentity,
  hash256,
  type Identity,
  type Note,
  paddedLength,
  ready,
  Sealer,
  sealEnvelope,
} from '@sealpost/identity'
import { type EnvelopeId, type MeshId, toHex } from '@sealpost/std'
import { expect, test } from 'vitest'
import { allFixtures, openFixture } from './fixture.ts'

const meshId = '01'.repeat(16) as MeshId
const envelopeId = '0198c0de'.repeat(4) as EnvelopeId
const LENGTHS = [0, 1, 255, 256, 257, 1000, 40_000, 65_536]
const NOTES: (Note | null)[] = [null, { thread: 'ab'.repeat(16), isRequest: true }]

/** Opens the envelopes on its standard input with the SDK in its folder. Prints what it has read. */
const READER = `
import { generateIdentity, hash256, openEnvelope, ready, Sealer } from './node_modules/@sealpost/sdk/dist/identity/index.js'
await ready()
const bytes = (hex) => Uint8Array.from(Buffer.from(hex, 'hex'))
const { meshId, envelopeId, reader, sender, envelopes } = JSON.parse(await Bun.stdin.text())
const keys = { publicKey: bytes(reader.publicKey), secretKey: bytes(reader.secretKey), epoch: 1 }
const identity = { signing: { ...generateIdentity().signing, publicKey: reader.peerKey }, box: keys }
const opener = new Sealer({ identity, meshId })
const from = { ...sender, boxKey: bytes(sender.boxKey) }
const opened = envelopes.map((envelope) => openEnvelope(opener, bytes(envelope), { from, envelopeId }))
const read = opened.map((one) => one.ok ? [one.body.length, Buffer.from(hash256(one.body)).toString('hex'), one.note] : one.reason)
console.log(JSON.stringify(read))
`

const keyOf = ({ signing, box }: Identity) => ({ peerKey: signing.publicKey, boxKey: box.publicKey, boxEpoch: 1 })

test.each(allFixtures())('the SDK of fixture $number opens padded envelopes', async (fixture) => {
  const folder = mkdtempSync(join(tmpdir(), 'sealpost-padding-'))
  try {
    openFixture(fixture, folder)
    writeFileSync(join(folder, 'reader.js'), READER)
    await ready()
    const [alice, bob] = [generateIdentity(), generateIdentity()]
    const sealer = new Sealer({ identity: alice, meshId, padTo: paddedLength })
    const sent = LENGTHS.flatMap((bytes) =>
      NOTES.map((note) => ({ body: crypto.getRandomValues(new Uint8Array(bytes)), note })),
    )
    const envelopes = sent.map((one) =>
      sealEnvelope(sealer, { ...one, to: keyOf(bob), envelopeId, stream: null, sentAtMs: 7 }),
    )
    expect(new Set(envelopes.slice(0, 4).map(({ length }) => length)).size).toBe(1)
    const { publicKey, secretKey } = bob.box
    const reader = { peerKey: bob.signing.publicKey, publicKey: toHex(publicKey), secretKey: toHex(secretKey) }
    const sender = { ...keyOf(alice), boxKey: toHex(alice.box.publicKey) }
    const input = JSON.stringify({ meshId, envelopeId, reader, sender, envelopes: envelopes.map(toHex) })
    const program = Bun.spawnSync([process.execPath, 'reader.js'], { cwd: folder, stdin: Buffer.from(input) })
    expect(program.stderr.toString()).toBe('')
    const expected = sent.map(({ body, note }) => [body.length, toHex(hash256(body)), note])
    expect(JSON.parse(program.stdout.toString())).toEqual(expected)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
