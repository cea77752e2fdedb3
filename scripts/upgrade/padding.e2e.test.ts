/** Tests that the SDK of each fixture opens padded envelopes of this version. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import * as current from '@sealpost/identity'
import type { EnvelopeId, MeshId } from '@sealpost/std'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { allFixtures, openFixture } from './fixture.ts'

const meshId = '01'.repeat(16) as MeshId
const envelopeId = '0198c0de'.repeat(4) as EnvelopeId
const NOTES: (current.Note | null)[] = [null, { thread: 'ab'.repeat(16), isRequest: true }]

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-padding-'))
  await current.ready()
})
afterAll(() => rm(folder, { recursive: true, force: true }))

test.each(allFixtures())('the SDK of fixture $number opens padded envelopes', async (fixture) => {
  const own = join(folder, String(fixture.number))
  openFixture(fixture, own)
  const entry = join(own, 'node_modules/@sealpost/sdk/dist/identity/index.js')
  const earlier = (await import(/* @vite-ignore */ entry)) as Pick<typeof current, 'ready' | 'Sealer' | 'openEnvelope'>
  await earlier.ready()
  const [alice, bob] = [current.generateIdentity(), current.generateIdentity()]
  const sealer = new current.Sealer({ identity: alice, meshId, padTo: current.paddedLength })
  const opener = new earlier.Sealer({ identity: bob, meshId })
  const keyOf = ({ signing, box }: current.Identity) => ({
    ...{ peerKey: signing.publicKey, boxKey: box.publicKey, boxEpoch: box.epoch },
  })
  for (const bytes of [0, 1, 255, 256, 257, 1000, 40_000, 65_536])
    for (const note of NOTES) {
      const body = crypto.getRandomValues(new Uint8Array(bytes))
      const draft = { to: keyOf(bob), envelopeId, stream: null, sentAtMs: 7, note, body }
      const envelope = current.sealEnvelope(sealer, draft)
      const opened = earlier.openEnvelope(opener, envelope, { from: keyOf(alice), envelopeId })
      if (!opened.ok) throw new Error(opened.reason)
      expect([Buffer.compare(opened.body, body), opened.note]).toEqual([0, note])
      expect(opened.header.paddingBytes).toBeGreaterThanOrEqual(bytes < 200 ? 1 : 0)
    }
})
