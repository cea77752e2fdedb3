/**
 * Measures a message to 100 members: sealed as today, with a ratchet for each member, and with a sender key. Run:
 * `bun packages/identity/src/sender-keys/sender-keys.bench.ts`
 */
import type { EnvelopeId, GroupId, MeshId } from '@sealpost/std'
import {
  generateIdentity,
  openBody,
  openEnvelope,
  ready,
  Sealer,
  type StreamId,
  sealBody,
  sealEnvelope,
  sealInStream,
} from '../index.ts'
import { Prekeys, Ratchet, type RatchetParties, sodiumRatchetCrypto } from '../ratchet/index.ts'
import { correspondent } from '../test/fixtures.ts'
import { reportBest } from '../test/report-best.ts'
import { ReceivedSenderKeys, SenderKeys } from './index.ts'

const MEMBERS = 100
const BODY = new Uint8Array(400).fill(7)
/** The processes that each peer of a ratchet has had. */
const FORMER_CHAINS = [1, 64]

await ready()
const meshId = '01'.repeat(16) as MeshId
const group = 'd0'.repeat(16) as GroupId
const scope = { meshId, priority: 1 }
const envelopeId = '0198c0de'.repeat(4) as EnvelopeId
const alice = generateIdentity()
const members = Array.from({ length: MEMBERS }, generateIdentity)
const sealer = new Sealer({ identity: alice, meshId })
const note = { group, groupEpoch: 4 }
const stream = { streamId: 'ab'.repeat(16) as StreamId, seq: 7, prev: new Uint8Array(16) }
const recipients = members.map(correspondent)
const draftOf = (no: number, body: Uint8Array) => ({
  ...{ to: recipients[no]!, envelopeId, stream, sentAtMs: 1_760_000_000_000, note, body },
})
const toAll = (ticketOf: (no: number) => Uint8Array) => {
  for (const no of members.keys()) sealInStream(sealer, draftOf(no, ticketOf(no)))
}

process.stdout.write(`${MEMBERS} members, ${BODY.length} bytes\n`)
reportBest('today: seal for all', 1, () => {
  const { ticket } = sealBody(BODY)
  toAll(() => ticket)
})
for (const chains of FORMER_CHAINS) measureRatchets(chains)
measureSenderKeys()
measureRecipient()

function measureRatchets(chains: number): void {
  const ratchets = members.map((_, no) => ratchetPair(no, chains).out)
  const text = new Uint8Array(320)
  reportBest(`ratchets of ${chains} processes: seal for all and encode the records`, 1, () => {
    sealBody(BODY)
    for (const ratchet of ratchets) {
      ratchet.seal(text, 0)
      ratchet.export()
    }
  })
  process.stdout.write(`  records: ${ratchets[0]!.export().bytes.length * MEMBERS} bytes\n`)
}

function measureSenderKeys(): void {
  const keys = new SenderKeys({ ...scope, audience: group })
  const ratchets = new Map(members.map(({ signing }, no) => [signing.publicKey, ratchetPair(no, 1).out]))
  const to = [...ratchets.keys()]
  const send = () => {
    const { ticketFor } = keys.seal(BODY, to, 0)
    toAll((no) => ticketFor(to[no]!, (key) => ratchets.get(to[no]!)!.seal(key, 0))!)
    return ticketFor(to[0]!, () => null)!
  }
  reportBest('sender key: begin a chain, seal for all and encode the records', 1, () => {
    keys.refused(keys.chain?.id ?? '')
    send()
    for (const ratchet of ratchets.values()) ratchet.export()
  })
  reportBest('sender key: seal for all, not confirmed', 1, send)
  process.stdout.write(`  ticket: ${send().length} bytes\n`)
  for (const peer of to) keys.confirm(peer, keys.chain!.id)
  reportBest('sender key: seal for all, confirmed', 1, send)
  process.stdout.write(`  ticket: ${send().length} bytes\n`)
}

function measureRecipient(): void {
  const { out, back, parties } = ratchetPair(0, 64)
  const opener = new Sealer({ identity: members[0]!, meshId })
  const expected = { from: correspondent(alice), envelopeId }
  const today = sealBody(BODY)
  const envelope = sealEnvelope(sealer, draftOf(0, today.ticket))
  reportBest('today: open', 50, () => {
    const opened = openEnvelope(opener, envelope, expected)
    if (opened.ok) openBody(today.bytes, opened.body)
  })
  reportBest('ratchet of 64 processes: seal, open, settle and encode the record', 20, () => {
    read(back, parties, out.seal(new Uint8Array(320), 0))
    openBody(today.bytes, today.ticket)
    back.export()
  })
  const keys = new SenderKeys({ ...scope, audience: group })
  const received = new ReceivedSenderKeys({ ...scope, audience: group })
  const to = [members[0]!.signing.publicKey]
  reportBest('sender key: seal, open, settle and encode the record', 20, () => {
    const { body, ticketFor } = keys.seal(BODY, to, 0)
    const sealed = sealEnvelope(sealer, draftOf(0, ticketFor(to[0]!, (key) => out.seal(key, 0))!))
    const opened = openEnvelope(opener, sealed, expected)
    if (!opened.ok) throw new Error(opened.reason)
    const result = received.open(opened.body, (bytes) => back.open(bytes, parties, 0), 0)
    if (!result.ok) throw new Error(result.code)
    openBody(body.bytes, result.ticket)
    received.settle(result.place)
    for (const place of received.export().distributions) back.settle(place)
  })
  process.stdout.write(`  record: ${received.export().bytes.length} bytes\n`)
}

/** Returns the ratchets of Alice and a member after both have had `chains` processes that sent one message each. */
function ratchetPair(no: number, chains: number) {
  const [own, prekeys] = [members[no]!, new Prekeys()]
  const until = { nowMs: 0, notAfterMs: 1, keepFormerMs: 1 }
  const terms = { identity: own, meshId, ...until, hasKem: false }
  const statement = prekeys.rotate(sodiumRatchetCrypto, terms)
  let [out, back] = [new Ratchet(scope), new Ratchet(scope)]
  out.agree({ own: alice, peer: recipients[no]! }, { statement, oneTime: null }, 0)
  const parties = { own, ownBoxes: [own.box], peers: [correspondent(alice)], prekeys }
  const others = { ...parties, own: alice, ownBoxes: [alice.box], peers: [recipients[no]!] }
  for (let chain = 0; chain < chains; chain++) {
    read(back, parties, out.seal(BODY, 0))
    read(out, others, back.seal(BODY, 0))
    out = Ratchet.restore(out.export().bytes, scope)
    back = Ratchet.restore(back.export().bytes, scope)
  }
  read(back, parties, out.seal(BODY, 0))
  return { out, back, parties }
}

function read(ratchet: Ratchet, parties: RatchetParties, message: Uint8Array): void {
  const opened = ratchet.open(message, parties, 0)
  if (!opened.ok) throw new Error(opened.code)
  ratchet.settle(opened.place)
}
