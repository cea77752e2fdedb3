import { openEnvelope, readPreparedSend, ready, Sealer } from '@sealpost/identity'
import { BODY_BYTES_MAX, readMarking } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { World } from '../test/client.ts'
import { prepareSend } from './prepare.ts'

beforeAll(ready)

async function scene() {
  const world = new World()
  const [ada, ben] = [world.identity(), world.identity()]
  const peer = await world.peer({ identity: ada })
  return { world, ada, ben, peer, key: ben.signing.publicKey }
}

test('a prepared message is sealed in no stream, signed, and not sent', async () => {
  const { world, ada, ben, peer, key } = await scene()
  const options = { priority: 'now', ttlSeconds: 60, receipts: 'end', hops: 2, validSeconds: 90, notBefore: 5 } as const
  const prepared = await prepareSend(peer, key, 'hello', options)
  expect(prepared.literal).toBe(`\\x${Buffer.from(prepared.request).toString('hex')}`)
  const send = readPreparedSend(prepared.request)!
  const { envelopeId } = prepared
  expect(send).toMatchObject({ sender: peer.key, recipient: key, envelopeId, priority: 0, ttlSeconds: 60 })
  expect(send).toMatchObject({ notBeforeMs: 5, expiresAtMs: prepared.expiresAtMs })
  expect(send.expiresAtMs - send.preparedAtMs).toBe(90_000)
  expect(readMarking(send.terms)).toMatchObject({ kind: 'terms', terms: { receipts: 'end', hops: 2 } })
  const opener = new Sealer({ identity: ben, meshId: send.meshId })
  const from = { peerKey: peer.key, boxKey: ada.box.publicKey, boxEpoch: ada.box.epoch }
  const opened = openEnvelope(opener, send.envelope, { from, envelopeId })
  expect(opened).toMatchObject({ ok: true, header: { stream: null } })
  expect(world.heard('send')).toEqual([])
  await peer.close()
})

test('a message is prepared while the broker is away, if the key of its recipient is known', async () => {
  const { world, peer, key } = await scene()
  await peer.lookupKey(key)
  world.socketOf(peer).cut(1006)
  const { request, envelopeId } = await prepareSend(peer, key, 'written on a train')
  expect(readPreparedSend(request)).toMatchObject({ envelopeId, terms: new Uint8Array(0) })
  expect(world.heard('lookup')).toHaveLength(1)
  await peer.close()
})

test('messages that can not be sent are refused at once', async () => {
  const { peer, key } = await scene()
  const codeOf = (prepared: Promise<unknown>) => prepared.then(null, ({ code, name }) => code ?? name)
  expect(await codeOf(prepareSend(peer, key, new Uint8Array(BODY_BYTES_MAX + 1)))).toBe('body_too_large')
  expect(await codeOf(prepareSend(peer, 'ff'.repeat(32) as PeerKey, 'x'))).toBe('unknown_recipient')
  for (const validSeconds of [0, 1.5, 86_401, Number.NaN])
    expect(await codeOf(prepareSend(peer, key, 'x', { validSeconds }))).toBe('RangeError')
  await peer.close()
})
