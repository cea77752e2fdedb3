import { fromHex, type PeerKey, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { sealBodyWith } from '../envelope/envelope-memory.ts'
import { openBody, ready } from '../index.ts'
import { bytes, countedRandom, peerNumber, readVector, text } from '../test/fixtures.ts'
import { SENDER_SCOPE } from '../test/sender-key-member.ts'
import { ReceivedSenderKeys, SenderKeys } from './index.ts'

beforeAll(ready)

const [{ publicKey: confirmed }, { publicKey: joined }] = [peerNumber(1).signing, peerNumber(2).signing]

/** The second recipient joins at the second message. The first one confirms the chain after the first message. */
function senderKeyVector() {
  const sealed: { key: string; nonce: string }[] = []
  const keys = new SenderKeys(SENDER_SCOPE, {
    random: countedRandom(),
    sealBody: (body, key, nonce) => {
      sealed.push({ key: toHex(key), nonce: toHex(nonce) })
      return sealBodyWith(body, key, nonce)
    },
  })
  const texts = new Map<PeerKey, Uint8Array>()
  const distributeTo = (to: PeerKey) => (distribution: Uint8Array) => {
    texts.set(to, distribution.slice())
    return Uint8Array.of(0xd1)
  }
  const messages = ['one', 'two', 'three'].map((said, i) => {
    const to = i === 0 ? [confirmed] : [confirmed, joined]
    const { place, body, ticketFor } = keys.seal(bytes(said), to, 0)
    const tickets = to.map((peer) => toHex(ticketFor(peer, distributeTo(peer))!))
    keys.confirm(confirmed, place.chainId)
    const { key, nonce } = sealed.at(-1)!
    return {
      ...{ text: said, chainId: place.chainId, number: place.number, messageKey: key, nonce },
      ...{ body: toHex(body.bytes), bodyId: body.bodyId, tickets },
    }
  })
  return {
    about: readVector('sender-keys.json').about,
    scope: SENDER_SCOPE,
    distributions: [confirmed, joined].map((peer) => toHex(texts.get(peer)!)),
    messages,
  }
}

test('every step of a sender key gives the bytes of the vectors', () => {
  expect(senderKeyVector()).toEqual(readVector('sender-keys.json'))
})

test('the messages of the vectors open with the distributions of the vectors', () => {
  const { distributions, messages } = readVector('sender-keys.json')
  for (const [no, distribution] of distributions.entries()) {
    const keys = new ReceivedSenderKeys(SENDER_SCOPE)
    const place = { sessionId: '', chain: 1, number: 0 }
    const openRatcheted = () => ({ ok: true, text: fromHex(distribution), place, news: [] }) as const
    for (const { tickets, body, text: said } of messages.slice(no)) {
      const opened = keys.open(fromHex(tickets[no]), openRatcheted, 0)
      expect(opened.ok && text(openBody(fromHex(body), opened.ticket))).toBe(said)
    }
  }
})
