/**
 * Measures the cost of a ratcheted message and of an agreement, beside today's sealing with a cached key, and with native
 * X25519. Run: `bun packages/identity/src/ratchet/ratchet.bench.ts`
 */
import { createPrivateKey, createPublicKey, diffieHellman } from 'node:crypto'
import { type EnvelopeId, fromHex, type MeshId } from '@sealpost/std'
import { generateIdentity, openEnvelope, ready, Sealer, type StreamId, sealEnvelope, sealInStream } from '../index.ts'
import { reportBest } from '../test/report-best.ts'
import { Prekeys, Ratchet, type RatchetCrypto, sodiumRatchetCrypto } from './index.ts'

const meshId = '01'.repeat(16) as MeshId
const SCOPE = { meshId, priority: 1 }
const BODY = new Uint8Array(400).fill(7)

const PKCS8 = fromHex('302e020100300506032b656e04220420')
const SPKI = fromHex('302a300506032b656e032100')
const nativeX25519: RatchetCrypto = {
  ...sodiumRatchetCrypto,
  publicKeyOf: (secretKey) => {
    const key = createPrivateKey({ key: Buffer.concat([PKCS8, secretKey]), format: 'der', type: 'pkcs8' })
    return new Uint8Array(createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(12))
  },
  sharedSecret: (secretKey, publicKey) => {
    const privateKey = createPrivateKey({ key: Buffer.concat([PKCS8, secretKey]), format: 'der', type: 'pkcs8' })
    const other = createPublicKey({ key: Buffer.concat([SPKI, publicKey]), format: 'der', type: 'spki' })
    return new Uint8Array(diffieHellman({ privateKey, publicKey: other }))
  },
}

await ready()
const [alice, bob] = [generateIdentity(), generateIdentity()]
const correspondent = ({ signing, box }: typeof alice) => ({
  ...{ peerKey: signing.publicKey, boxKey: box.publicKey, boxEpoch: box.epoch },
})
measureToday()
for (const [name, crypto] of [
  ['libsodium', sodiumRatchetCrypto],
  ['native X25519', nativeX25519],
] as const)
  measureRatchets(name, crypto)

function measureToday(): void {
  const [sealer, opener] = [new Sealer({ identity: alice, meshId }), new Sealer({ identity: bob, meshId })]
  const envelopeId = '0198c0de'.repeat(4) as EnvelopeId
  const stream = { streamId: 'ab'.repeat(16) as StreamId, seq: 7, prev: new Uint8Array(16) }
  const draft = { to: correspondent(bob), envelopeId, stream, sentAtMs: 1_760_000_000_000, body: BODY.subarray(157) }
  const envelope = sealEnvelope(sealer, draft)
  reportBest('today: seal', 200, () => sealInStream(sealer, draft))
  reportBest('today: open', 200, () => openEnvelope(opener, envelope, { from: correspondent(alice), envelopeId }))
}

function measureRatchets(name: string, crypto: RatchetCrypto): void {
  for (const hasKem of [false, true]) {
    const suite = hasKem ? 'suite 2' : 'suite 1'
    const { agree, accept } = peers(crypto, hasKem)
    reportBest(`${name}: initiate, ${suite}, and seal`, 2, () => agree().seal(BODY, 0))
    const first = agree().seal(BODY, 0)
    reportBest(`${name}: accept, ${suite}, and open`, 2, () => accept(new Ratchet(SCOPE, crypto), first))
  }
  const { agree, accept } = peers(crypto, false)
  const [out, back] = [agree(), new Ratchet(SCOPE, crypto)]
  accept(back, out.seal(BODY, 0))
  accept(out, back.seal(BODY, 0))
  reportBest(`${name}: seal, open and settle`, 50, () => accept(back, out.seal(BODY, 0)))
  let nowMs = 0
  reportBest(`${name}: the same with a step`, 2, () => {
    nowMs += 2_000
    accept(back, out.seal(BODY, nowMs))
    accept(out, back.seal(BODY, nowMs))
  })
  reportBest(`${name}: store`, 50, () => out.export())
}

/** Returns two peers. `agree` begins a session; `accept` opens and settles a message. */
function peers(crypto: RatchetCrypto, hasKem: boolean) {
  const prekeys = new Prekeys()
  const statement = prekeys.rotate(crypto, {
    ...{ identity: bob, meshId, nowMs: 0, notAfterMs: 1, keepFormerMs: 1, hasKem },
  })
  const [oneTime] = prekeys.addOneTime(crypto, 1)
  const agree = () => {
    const ratchet = new Ratchet(SCOPE, crypto)
    ratchet.agree({ own: alice, peer: correspondent(bob) }, { statement, oneTime: oneTime! }, 0)
    return ratchet
  }
  const parties = { own: bob, ownBoxes: [bob.box], peers: [correspondent(alice)] }
  // Nothing is spent, so that each agreement may use the one-time prekey.
  const accept = (ratchet: Ratchet, message: Uint8Array) => {
    const opened = ratchet.open(message, { ...parties, prekeys }, 0)
    if (!opened.ok) throw new Error(opened.code)
    ratchet.settle(opened.place)
  }
  return { agree, accept }
}
