/** Tests presence and ephemeral messages between two shards that exchange hints. */

import type { FrameOf } from '@sealpost/protocol'
import { type ClientFrame, NO_THREAD, type ServerFrame } from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import type { MeshId, PeerNo, ShardId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { idOf, keyOf, MESH, memberOf, sendOf, world } from '../test/testing-world.ts'

const SHARDS = ['0a', '0b'].map((digits) => digits.repeat(16) as ShardId)
const IF_ONLINE = {
  ...({ notBeforeMs: 0, receipts: 'none', thread: NO_THREAD } as const),
  ...{ hops: 0, noAutoReply: false, ifOnline: true },
}

/** Returns two shards. Peer 1 is on both, and watches or sends on the first. */
function twoShards() {
  const published: { from: ShardId; hint: Hint }[] = []
  const waiting: (() => void)[] = []
  const shards = SHARDS.map((from, n) => {
    const its = world()
    Object.assign(its.effects, {
      hint: (hint: Hint) => void published.push({ from, hint }),
      awaitPresence: (meshId: MeshId) => void waiting.push(() => its.engine.presence.repliesDue(meshId)),
    })
    its.engine.presence.setOtherShards(new Set([SHARDS[1 - n]!]))
    return its
  })
  const [here, there] = shards as [ReturnType<typeof world>, ReturnType<typeof world>]
  there.engine.closed(1)
  /** Exchanges all hints and replies, then ends every wait for presence. */
  const meet = () => {
    for (let next = published.shift(); next; next = published.shift())
      shards[1 - SHARDS.indexOf(next.from)]!.engine.hints.received(next.from, [next.hint])
    for (const done of waiting.splice(0)) done()
  }
  const pass = (toMs: number) => {
    for (const { engine } of shards) {
      engine.advance(toMs)
      for (const socket of [1, 2]) engine.ponged(socket)
      engine.tick()
    }
  }
  const sendFrame = (frame: ClientFrame) => here.engine.received(1, frame)
  const framesOf = <T extends ServerFrame['type']>(type: T) =>
    here.sent.filter((frame): frame is Extract<ServerFrame, { type: T }> => frame.type === type)
  const news = () => {
    const items = framesOf('presence').flatMap(({ peers }) => peers)
    here.sent.length = 0
    return items.map(({ peer, isOnline, summary }) => [Number.parseInt(peer, 16), isOnline, summary])
  }
  const watch = () => sendFrame({ type: 'watch', isOn: true })
  return { here, there, published, meet, pass, sendFrame, framesOf, news, watch }
}

const status = (summary: string, availability: 'idle' | 'dnd' = 'idle') =>
  ({ type: 'status', availability, summary, declinesReceipts: false }) as const
const ephemeral = (n: number, to: number, bytes = 50): ClientFrame => ({
  type: 'sendEphemeral',
  items: [{ envelopeId: idOf(n), recipient: keyOf(to), envelope: new Uint8Array(bytes) }],
})

test('a watcher learns which peers of another shard are online, and when they change or leave', () => {
  const { there, meet, news, watch } = twoShards()
  there.enter(2)
  watch()
  expect(news()).toEqual([[1, true, '']])
  meet()
  expect(news()).toEqual([[2, true, '']])
  there.engine.received(2, status('busy with tests'))
  there.enter(3)
  meet()
  expect(news()).toEqual([[2, true, 'busy with tests'], [3, true, '']]) // biome-ignore format: pairs
  there.engine.closed(2)
  meet()
  expect(news()).toEqual([[2, false, '']])
})

test('without other shards no request is published, and only shards that asked get reports', () => {
  const { here, there, published, pass, watch } = twoShards()
  there.enter(2)
  expect(published).toEqual([])
  here.engine.presence.setOtherShards(new Set())
  watch()
  pass(60_000)
  expect(published).toEqual([])
})

test('a peer that moved stays online, and reports of its former session are ignored', () => {
  const { here, there, published, meet, pass, news, watch } = twoShards()
  there.enter(2)
  watch()
  meet()
  there.engine.received(2, status('late'))
  const late = published.splice(0)
  here.enter(2) // the epoch is the same, but the session belongs to another peer
  there.engine.closed(2)
  news()
  meet()
  for (const { from, hint } of late) here.engine.hints.received(from, [hint, hint])
  expect(news()).toEqual([])
  here.engine.closed(2)
  pass(1_000)
  expect(news()).toEqual([[2, false, '']])
})

test('peers of a shard that is dead, or that sends no reports, are offline', () => {
  const { here, there, meet, pass, news, watch } = twoShards()
  there.enter(2)
  watch()
  meet()
  news()
  for (const atMs of [10_000, 20_000, 30_000, 40_000]) {
    pass(atMs)
    meet() // presence is requested and reported again
  }
  expect(news()).toEqual([])
  for (const atMs of [50_000, 60_000, 70_000]) pass(atMs)
  expect(news()).toEqual([[2, false, '']])
  meet()
  expect(news()).toEqual([[2, true, '']])
  here.engine.presence.setOtherShards(new Set(['0c'.repeat(16) as ShardId]))
  expect(news()).toEqual([[2, false, '']])
})

test('a send to online peers waits until other shards have reported theirs, and keeps its order', () => {
  const at = sending()
  at.there.enter(2)
  at.sendIfOnline(1, 2)
  at.sendIfOnline(2, 3)
  at.here.send(sendOf(3, 2))
  expect([at.here.appends.length, at.here.nacks()]).toEqual([0, []])
  at.meet()
  expect(at.here.appends.map(({ envelopeId }) => envelopeId)).toEqual([idOf(1), idOf(3)])
  expect(at.here.nacks()).toMatchObject([{ envelopeId: idOf(2), code: 'no_responder' }])
  at.sendIfOnline(4, 3)
  expect(at.here.nacks()).toHaveLength(2) // presence is known
})

/** Returns two shards. Peer 1 on one of them knows peers 2 and 3, which are not there. */
function sending() {
  const at = twoShards()
  at.here.send(sendOf(100, 2), sendOf(101, 3))
  at.here.engine.resolved(1, [keyOf(2), keyOf(3)], [memberOf(2), memberOf(3)])
  at.here.appends.length = 0
  const sendIfOnline = (n: number, to: number) =>
    at.sendFrame({ type: 'sendWith', envelopes: [{ send: sendOf(n, to), terms: IF_ONLINE }] })
  return { ...at, sendIfOnline }
}

test('an ephemeral message reaches a peer of another shard, if it would reach it here', () => {
  const { there, meet, sendFrame, framesOf } = twoShards()
  const arrived = () => there.sent.flatMap((frame) => (frame.type === 'pushEphemeral' ? frame.items : []))
  there.enter(2)
  sendFrame(ephemeral(1, 2))
  sendFrame(ephemeral(2, 3))
  meet() // delivers the reports
  meet() // delivers the message
  expect(arrived()).toMatchObject([{ sender: keyOf(1), envelopeId: idOf(1) }])
  expect(framesOf('ephemeralFailed').flatMap(({ items }) => items)).toEqual([
    { envelopeId: idOf(2), code: 'no_responder' },
  ])
  sendFrame(ephemeral(3, 2, 4097))
  there.engine.received(2, status('', 'dnd'))
  sendFrame(ephemeral(4, 2)) // presence is still unknown
  meet()
  sendFrame(ephemeral(5, 2))
  meet()
  expect(arrived()).toHaveLength(1)
  expect(framesOf('ephemeralFailed').flatMap(({ items }) => items.map(({ envelopeId }) => envelopeId))).toEqual(
    [2, 3, 5].map(idOf),
  )
})

test('H65: an ephemeral message from a blocked sender, or to nobody, is not passed on', () => {
  const { there } = twoShards()
  there.enter(2)
  const consent = { policy: 'open', named: [9 as PeerNo], version: 1 } as const
  const frame: FrameOf<'consent'> = { type: 'consent', ref: 1, policy: 'keep', changes: [] }
  there.reply<'consent'>(2, frame, { outcome: 'done', peers: [], unknown: [], consent })
  there.sent.length = 0
  const forged = (recipient: number, user: number, meshId = MESH): Hint => ({
    ...{ type: 'ephemeral', meshId, recipient: keyOf(recipient), sender: keyOf(9), user: user as PeerNo },
    ...{ envelopeId: idOf(1), envelope: new Uint8Array(50) },
  })
  there.engine.hints.received(SHARDS[0]!, [forged(2, 9), forged(7, 1), forged(2, 1, 'ff'.repeat(16) as MeshId)])
  expect(there.sent).toEqual([])
  there.engine.hints.received(SHARDS[0]!, [forged(2, 1)])
  expect(there.sent).toMatchObject([{ type: 'pushEphemeral' }])
})

test('a change by another shard causes a lookup', () => {
  const { here } = twoShards()
  here.enter(2)
  here.send(sendOf(1, 2))
  expect(here.asked).toEqual([])
  here.engine.hints.received(SHARDS[1]!, [{ type: 'staleConsent', meshId: MESH, user: 2 as PeerNo }])
  here.send(sendOf(2, 2))
  expect(here.asked).toEqual([[keyOf(2)]])
})

test('a session that asked for a box key learns that another shard accepted a new one', () => {
  const { here, sendFrame, framesOf } = twoShards()
  sendFrame({ type: 'lookup', ref: 1, peers: [keyOf(2)] })
  here.engine.hints.received(
    SHARDS[1]!,
    [2, 3].map((n): Hint => ({ type: 'staleKey', meshId: MESH, peer: keyOf(n) })),
  )
  expect(framesOf('rebound')).toEqual([{ type: 'rebound', peers: [keyOf(2)] }])
})
