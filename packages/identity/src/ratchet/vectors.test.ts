import { fromHex, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { ready } from '../index.ts'
import { bytes, correspondent, countedRandom, MESH, peerNumber, readVector, text } from '../test/fixtures.ts'
import { x3dh } from './agreement.ts'
import { Prekeys, Ratchet, type RatchetCrypto, readPrekeyStatement, sodiumRatchetCrypto } from './index.ts'
import { type halvesOf, kemOpen, stepBase, stepChain, stepRoot } from './ratchet-crypto.ts'
import { readMessage } from './ratchet-header.ts'

beforeAll(ready)

const SCOPE = { meshId: MESH, priority: 1 }
const NOW = 1_767_225_600_000

/** The messages of each conversation. Without a restart, the keys are those of a Double Ratchet. */
const SCRIPT = [
  { from: 'initiator', text: 'one' },
  { from: 'initiator', text: 'two' },
  { from: 'responder', text: 'three' },
  { from: 'initiator', text: 'four' },
  { from: 'responder', text: 'five' },
  { from: 'responder', text: 'six' },
  { from: 'initiator', text: 'seven' },
  { from: 'initiator', text: 'the store was opened again', isRestart: true },
  { from: 'initiator', text: 'and once more', isRestart: true },
  { from: 'responder', text: 'ten' },
] as const

/** Returns the functions of libsodium, but with bytes that are the same in every run. Records what seals. */
function fixedCrypto() {
  const random = countedRandom()
  /** The seeds of ML-KEM keys, in hex. */
  const seeds: string[] = []
  const sealed: { key: Uint8Array; nonce: Uint8Array }[] = []
  const crypto: RatchetCrypto = {
    ...sodiumRatchetCrypto,
    random: (length) => {
      const bytes = random(length)
      if (length === 64) seeds.push(toHex(bytes))
      return bytes
    },
    seal: (plain, key, nonce, data) => {
      sealed.push({ key: key.slice(), nonce: nonce.slice() })
      return sodiumRatchetCrypto.seal(plain, key, nonce, data)
    },
  }
  return { crypto, sealed, seeds }
}

function converse({ hasKem, hasOneTime }: { hasKem: boolean; hasOneTime: boolean }) {
  const { crypto, sealed, seeds } = fixedCrypto()
  const [initiator, responder] = [peerNumber(1), peerNumber(2)]
  const sides = {
    initiator: { own: initiator, other: responder, prekeys: new Prekeys(), ratchet: new Ratchet(SCOPE, crypto) },
    responder: { own: responder, other: initiator, prekeys: new Prekeys(), ratchet: new Ratchet(SCOPE, crypto) },
  }
  const terms = { identity: responder, meshId: MESH, nowMs: NOW, notAfterMs: NOW + 7_776_000_000, keepFormerMs: 0 }
  const statement = sides.responder.prekeys.rotate(crypto, { ...terms, hasKem })
  const oneTime = hasOneTime ? sides.responder.prekeys.addOneTime(crypto, 1)[0]! : null
  const signed = sides.responder.prekeys.signedOf(statement.id)!
  const oneTimeKeys = oneTime && sides.responder.prekeys.oneTimeKey(oneTime.id)!
  const parties = { own: initiator, peer: correspondent(responder) }
  sides.initiator.ratchet.agree(parties, { statement, oneTime }, NOW)
  const session = [...sides.initiator.ratchet.sessions.values()][0]!
  const initiation = session.initiation!.slice()
  const ephemeral = initiation.slice(21, 53)
  const prekeys = {
    ...{ id: statement.id, secret: toHex(signed.keys.secretKey), publicKey: toHex(statement.publicKey) },
    ...{ kemSeed: seeds[0] ?? null, statement: toHex(statement.bytes) },
    ...(oneTimeKeys && { oneTimeId: oneTime.id, oneTimeSecret: toHex(oneTimeKeys.secretKey) }),
  }
  const secret = x3dh([
    crypto.sharedSecret(signed.keys.secretKey, initiator.box.publicKey),
    crypto.sharedSecret(responder.box.secretKey, ephemeral),
    crypto.sharedSecret(signed.keys.secretKey, ephemeral),
    oneTimeKeys ? crypto.sharedSecret(oneTimeKeys.secretKey, ephemeral) : new Uint8Array(0),
  ])!
  const kemSecret = signed.kem && toHex(kemOpen(initiation.slice(53), signed.kem.secretKey))
  const agreement = {
    ...{ initiation: toHex(initiation), x3dhSecret: toHex(secret), kemSecret, sessionId: session.sessionId },
    ...{ root: toHex(session.parent!.base), binding: toHex(session.binding), headerKey: toHex(session.headerKey) },
  }
  const messages = SCRIPT.map((line, i) => {
    const [from, to] = [sides[line.from], sides[line.from === 'initiator' ? 'responder' : 'initiator']]
    if ('isRestart' in line) from.ratchet = Ratchet.restore(from.ratchet.export().bytes, SCOPE, crypto)
    const nowMs = NOW + i * 2_000
    const message = from.ratchet.seal(bytes(line.text), nowMs)
    const peers = [correspondent(to.other)]
    const opened = to.ratchet.open(message, { ...to, ownBoxes: [to.own.box], peers }, nowMs)
    expect(opened.ok && text(opened.text)).toBe(line.text)
    const { sessionId: _, isReset: __, key, ...header } = readMessage(message)!.header
    const state = [...from.ratchet.sessions.values()][0]!
    const ratchetSecret = toHex(state.offers.get(header.chain)!.secretKey)
    const { key: messageKey, nonce } = sealed.at(-1)!
    return {
      ...{ ...line, ratchetSecret, ratchetKey: toHex(key), ...header },
      ...{ messageKey: toHex(messageKey), nonce: toHex(nonce), bytes: toHex(message) },
    }
  })
  return { prekeys, agreement, messages }
}

function ratchetVector() {
  const side = ({ signing, box }: ReturnType<typeof peerNumber>) => ({
    ...{
      peerKey: signing.publicKey,
      boxSecret: toHex(box.secretKey),
      boxKey: toHex(box.publicKey),
      boxEpoch: box.epoch,
    },
  })
  const [key, secret] = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)]
  const hexOf = ({ next, out }: ReturnType<typeof halvesOf>) => ({ next: toHex(next), out: toHex(out) })
  return {
    about: readVector('ratchet.json').about,
    scope: SCOPE,
    nowMs: NOW,
    initiator: side(peerNumber(1)),
    responder: side(peerNumber(2)),
    steps: {
      ...{ key: toHex(key), secret: toHex(secret) },
      ...{ base: hexOf(stepBase(key)), root: hexOf(stepRoot(key, secret)), chain: hexOf(stepChain(key)) },
    },
    suite1: converse({ hasKem: false, hasOneTime: true }),
    suite2LastResort: converse({ hasKem: true, hasOneTime: false }),
  }
}

test('every step of an agreement and a ratchet gives the bytes of the vectors', () => {
  expect(JSON.parse(JSON.stringify(ratchetVector()))).toEqual(readVector('ratchet.json'))
})

test('the prekey statements of the vectors are valid', () => {
  const vector = readVector('ratchet.json')
  for (const { prekeys } of [vector.suite1, vector.suite2LastResort]) {
    const expected = { meshId: MESH, peerKey: vector.responder.peerKey, nowMs: NOW }
    expect(readPrekeyStatement(fromHex(prekeys.statement), expected).ok).toBe(true)
  }
})
