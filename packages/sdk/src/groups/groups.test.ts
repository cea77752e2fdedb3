import type { GroupId, PeerKey } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { refusedBy, SealpostError } from '../errors.ts'
import type { OpenedEnvelope, PushedDelivery } from '../inbox/message.ts'
import type { OutgoingMessage, Receipt } from '../outbox/lane.ts'
import { SharedBodyStore } from '../outbox/persistent-outbox.ts'
import { type StoreChange, StoreWriter } from '../stores/store.ts'
import { fakeRecorder, groupWorld, groupPeer as peer, sending } from '../test/groups.ts'
import { GroupOpener, type MemberOutcome } from './group-client.ts'

const NONE = '0'.repeat(32) as GroupId
const numbers = (peers: readonly PeerKey[]) => peers.map((key) => Number.parseInt(key, 16))
const to = (posts: readonly OutgoingMessage[]) => numbers(posts.map((post) => post.to))
const receipt = {} as Receipt
const stale = () => refusedBy('stale_roster')

function crew() {
  const world = groupWorld()
  const group = world.crypto.create({ name: 'crew', members: [peer(1), peer(2), peer(3)] })
  world.statements.add(group)
  return { ...world, group, next: (members: number[]) => world.crypto.change(group, { members: members.map(peer) }) }
}

describe('the statements', () => {
  test('are requested on first use, and then again in each session', () => {
    const { statements, asked, list } = groupWorld()
    statements.connected()
    expect(asked).toEqual([])
    statements.refresh(() => undefined)
    statements.connected() // The request table repeats the request until it is answered.
    expect(asked).toEqual([NONE])
    list()
    statements.connected()
    expect(asked).toEqual([NONE, NONE])
  })

  test('are read page by page, with one callback', () => {
    const { statements, asked, crypto, list } = groupWorld()
    const [one, two] = [
      crypto.create({ name: 'a', members: [peer(1)] }),
      crypto.create({ name: 'b', members: [peer(1)] }),
    ]
    let calls = 0
    statements.refresh(() => (calls += 1))
    statements.listed([one.bytes], false)
    expect([asked.at(-1), calls]).toEqual([one.groupId, 0])
    list(two)
    expect([calls, statements.all.length]).toEqual([1, 2])
  })

  test('are read again for a caller that came during a read', () => {
    const { statements, asked, list } = groupWorld()
    const calls: string[] = []
    statements.refresh(() => calls.push('first'))
    statements.refresh(() => calls.push('second'))
    list()
    expect([asked.length, calls]).toEqual([2, ['first']])
    list()
    expect(calls).toEqual(['first', 'second'])
  })

  test('keep the newest epoch; a rollback or a forgery by the broker is reported', () => {
    const { statements, events, group, next, list } = crew()
    statements.add(next([1, 2]))
    statements.pushed([group.bytes])
    expect(events).toEqual([{ type: 'group_tamper', group: group.groupId, reason: 'statement_rolled_back' }])
    statements.refresh(() => undefined)
    list(group)
    expect([events.length, statements.find(group.groupId)?.epoch]).toEqual([2, 2])
    statements.pushed([new Uint8Array(9)])
    expect(events.at(-1)).toEqual({ type: 'group_tamper', group: null, reason: 'statement_forged' })
  })

  test('accept a reply that is older than a statement pushed during the request', () => {
    const { statements, events, group, next, list } = crew()
    statements.refresh(() => undefined)
    statements.pushed([next([1, 2]).bytes])
    list(group)
    expect([events, statements.find(group.groupId)?.epoch]).toEqual([[], 2])
  })

  test('report the end of a known group, and ignore the end of an unknown one', () => {
    const [world, other] = [crew(), groupWorld()]
    const end = world.crypto.end(world.group)
    world.news.length = 0
    world.statements.pushed([end.bytes])
    other.statements.pushed([end.bytes])
    expect([world.news, other.news]).toEqual([[world.group.groupId], []])
    world.statements.pushed([world.group.bytes])
    expect(world.events).toMatchObject([{ type: 'group_tamper', reason: 'statement_rolled_back' }])
  })

  test('do not wait for a group that has ended', () => {
    const { statements } = groupWorld()
    const errors: unknown[] = []
    const over = new SealpostError('closed', 'over')
    statements.refresh((error) => errors.push(error))
    statements.refresh((error) => errors.push(error))
    statements.close(over)
    expect(errors).toEqual([over, over])
  })
})

describe('a message to a group', () => {
  test('has one body, and a ticket for each member except the sender', () => {
    const world = crew()
    const { expected } = sending(world, world.group.groupId)
    expect([numbers(expected), to(world.posts)]).toEqual([[2, 3], [2, 3]]) // biome-ignore format: short
    const [a, b] = world.posts as [OutgoingMessage, OutgoingMessage]
    expect(a.message).toBe(b.message)
    expect(a.body).toEqual(a.message!.ticket)
    expect(a.note).toEqual({ group: world.group.groupId, groupEpoch: 1 })
    expect(new TextDecoder().decode(world.crypto.openBody(a.message!.bytes, a.body)!)).toBe('hello')
  })

  test('waits until the group is known, and is refused if there is none', () => {
    const world = groupWorld()
    const group = world.crypto.create({ name: 'crew', members: [peer(1), peer(2)] })
    const [known, unknown] = [sending(world, group.groupId), sending(world, NONE)]
    world.list(group)
    world.list(group)
    expect(to(world.posts)).toEqual([2])
    expect([known.refused, unknown.refused.map(({ code }) => code)]).toEqual([[], ['unknown_group']])
  })

  test('is refused if the sender is no member or the body is too large', () => {
    const world = crew()
    world.statements.add(world.next([2, 3]))
    expect(sending(world, world.group.groupId).refused.map(({ code }) => code)).toEqual(['not_in_group'])
    expect(sending(world, world.group.groupId, 'x'.repeat(65_537)).refused.map(({ code }) => code)).toEqual([
      'body_too_large',
    ])
    expect(world.posts).toEqual([])
  })

  test('that is refused as stale is sent once more to the current members, under another key', () => {
    const world = crew()
    const { fares, expected } = sending(world, world.group.groupId)
    const first = world.posts.splice(0)
    for (const post of first) post.refused(stale())
    expect([world.posts, fares()]).toEqual([[], []])
    world.list(world.next([1, 3, 4]))
    expect([to(world.posts), fares()]).toEqual([[3, 4], [[2, 'stale_roster']]]) // biome-ignore format: short
    expect(numbers(expected)).toEqual([2, 3, 3, 4])
    expect(world.posts[0]!.message!.bodyId).not.toBe(first[0]!.message!.bodyId)
    expect(world.posts[0]!.note).toMatchObject({ groupEpoch: 2 })
    world.posts[0]!.refused(stale())
    world.posts[1]!.accepted(receipt)
    expect(fares().slice(1)).toEqual([[3, 'stale_roster'], [4, 'stored']]) // biome-ignore format: short
    expect(world.asked).toHaveLength(1)
  })

  test('with a history record is recorded again when it is sealed again', () => {
    const world = crew()
    const { recorder, notes } = fakeRecorder()
    const { groupId } = world.group
    for (const said of ['one', 'two']) sending(world, groupId, said, recorder)
    const posts = world.posts.splice(0)
    expect(posts.map(({ message }) => message!.record)).toEqual([1, 1, 2, 2].map((n) => Uint8Array.of(n)))
    expect(notes[0]).toEqual({ group: groupId, groupEpoch: 1 })
    for (const post of posts) post.refused(stale())
    for (let question = 1; question <= 2; question++) world.list(world.next([1, 2]))
    expect(world.posts.map(({ message }) => message!.record)).toEqual([3, 4].map((n) => Uint8Array.of(n)))
    sending(world, groupId)
    expect(world.posts.at(-1)!.message!.record).toBe(undefined)
  })

  test('that a former process wanted recorded is not sent without the record', () => {
    const world = crew()
    const { recorder } = fakeRecorder()
    sending(world, world.group.groupId, 'hello', recorder)
    const { message } = world.posts.splice(0)[0]!
    const ended: string[] = []
    const teller = { expect: () => undefined, ended: ({ error }: MemberOutcome) => void ended.push(error!.code) }
    world.sends.restore({ ...message!, members: [], owed: new Set([peer(2)]) }, teller)
    world.list(world.next([1, 2]))
    expect([world.posts, ended]).toEqual([[], ['stale_roster']])
  })

  test('is not resent to members that have it', () => {
    const world = crew()
    const { recorder, stored } = fakeRecorder()
    const { fares } = sending(world, world.group.groupId, 'hello', recorder)
    const [two, three] = world.posts.splice(0) as [OutgoingMessage, OutgoingMessage]
    two.accepted(receipt)
    three.refused(stale())
    world.list(world.next([1, 2, 3, 4]))
    expect(to(world.posts)).toEqual([3, 4])
    expect([fares(), stored]).toEqual([[[2, 'stored']], [1]])
  })

  test('is refused if the broker has no newer statement than the refused one', () => {
    const world = crew()
    const { fares } = sending(world, world.group.groupId)
    for (const post of world.posts.splice(0)) post.refused(stale())
    world.list(world.group)
    expect([world.posts, fares()]).toEqual([[], [[2, 'stale_roster'], [3, 'stale_roster']]]) // biome-ignore format: short
  })

  test('to a group that its owner ended is refused, also if only a refusal reported the end', () => {
    const world = crew()
    const { fares } = sending(world, world.group.groupId)
    for (const post of world.posts) post.refused(stale())
    world.list(world.crypto.end(world.group))
    expect(fares()).toEqual([[2, 'unknown_group'], [3, 'unknown_group']]) // biome-ignore format: two rows
    expect(sending(world, world.group.groupId).refused).toMatchObject([{ code: 'unknown_group' }])
    expect(world.posts).toHaveLength(2)
  })

  test('that is owed stays stored until it is sent again', () => {
    const world = crew()
    sending(world, world.group.groupId)
    for (const post of world.posts.splice(0)) post.refused(stale())
    expect(numbers([...world.kept.at(-1)!.owed])).toEqual([2, 3])
    world.list(world.next([1, 2]))
    expect([world.kept.at(-1)!.owed.size, to(world.posts)]).toEqual([0, [2]])
  })

  test('that a former process owed goes to the remaining members', () => {
    const world = crew()
    const teller = { expect: () => undefined, ended: () => undefined }
    const sealed = world.crypto.sealBody(new TextEncoder().encode('from before'))
    const facts = { groupId: world.group.groupId, epoch: 1, isSecond: false, members: [] }
    const terms = { priority: 'next', ttlSeconds: 0 } as const
    world.sends.restore({ ...sealed, ...facts, terms, owed: new Set([peer(2), peer(3)]) }, teller)
    world.list(world.next([1, 3, 4]))
    expect(to(world.posts)).toEqual([3])
  })
})

describe('an incoming group message', () => {
  function arrival(sender = peer(2), epoch = 1) {
    const world = crew()
    const unlocked: PeerKey[] = []
    const opening = new GroupOpener({
      crypto: world.crypto,
      statements: world.statements,
      current: (key: PeerKey) => key,
      unlock: (key) => unlocked.push(key),
    })
    const { bytes, ticket } = world.crypto.sealBody(new TextEncoder().encode('to all'))
    const pushed = { sender, body: bytes } as PushedDelivery
    const header = { stream: null, sentAtMs: 0 }
    const note = { group: world.group.groupId, groupEpoch: epoch }
    const opened: OpenedEnvelope = { ok: true, header, headerHash: null, note, body: ticket }
    return { ...world, opening, unlocked, pushed, opened }
  }

  test('opens with its body, and names its group', () => {
    const { opening, pushed, opened, group } = arrival()
    const whole = opening.open(pushed, opened)
    expect(whole).toMatchObject({ group: { id: group.groupId, name: 'crew', epoch: 1 } })
    expect(new TextDecoder().decode((whole as { body: Uint8Array }).body)).toBe('to all')
  })

  test.each<[string, (at: ReturnType<typeof arrival>) => [PushedDelivery, OpenedEnvelope]]>([
    ['no_body', ({ opened }) => [{ sender: peer(2) } as PushedDelivery, opened]],
    ['no_group', ({ pushed, opened }) => [pushed, { ...opened, note: null }]],
    ['body_swapped', ({ pushed, opened }) => [{ ...pushed, body: pushed.body!.map((byte) => byte + 1) }, opened]],
    ['not_in_group', ({ pushed, opened }) => [{ ...pushed, sender: peer(9) }, opened]],
  ])('is dropped: %s', (flaw, change) => {
    const at = arrival()
    expect(at.opening.open(...change(at))).toEqual({ flaw })
  })

  test('under an unknown statement waits for it, and is deferred if the broker has none', () => {
    const { opening, pushed, opened, unlocked, list, next } = arrival(peer(2), 2)
    expect(opening.open(pushed, opened)).toBe('asked')
    list()
    expect(unlocked).toEqual([peer(2)])
    expect(opening.open(pushed, opened)).toBe('later')
    const again = { ...pushed }
    expect(opening.open(again, opened)).toBe('asked')
    list(next([1, 2]))
    expect(opening.open(again, opened)).toMatchObject({ ok: true, group: { epoch: 2 } })
  })

  test('from a member removed since is accepted, because it may have been in flight', () => {
    const { opening, pushed, opened, statements, next } = arrival()
    statements.add(next([1, 3]))
    expect(opening.open(pushed, opened)).toMatchObject({ ok: true, group: { epoch: 1 } })
  })

  test('addressed to this peer alone passes unchanged', () => {
    const { opening, opened } = arrival()
    const plain = { ...opened, note: { isRequest: true } }
    expect(opening.open({ sender: peer(2) } as PushedDelivery, plain)).toBe(plain)
  })
})

describe('a stored body', () => {
  function shelf() {
    const records = new Map<string, StoreChange['record']>()
    const writer: StoreWriter = new StoreWriter((changes) => {
      for (const { key, record } of changes) {
        if (record) records.set(key, record)
        else records.delete(key)
      }
      writer.written()
    })
    const bodies = new SharedBodyStore(writer)
    const world = crew()
    sending(world, world.group.groupId)
    const message = world.posts[0]!.message!
    return { bodies, writer, records, message }
  }

  test('is stored once, until its last envelope has a reply and no member is owed it', () => {
    const { bodies, writer, records, message } = shelf()
    const names = () => {
      writer.flush()
      return [...records.keys()]
    }
    bodies.hold(message)
    bodies.hold(message)
    expect(names()).toEqual([`group ${message.bodyId}`])
    bodies.release(message)
    message.owed.add(peer(2))
    bodies.release(message)
    expect(names()).toHaveLength(1)
    message.owed.clear()
    bodies.keep(message)
    expect(names()).toEqual([])
  })

  test('is restored unchanged in the next process', () => {
    const { bodies, writer, records, message } = shelf()
    message.owed.add(peer(3))
    bodies.hold(message)
    writer.flush()
    const later = new SharedBodyStore(new StoreWriter(() => undefined))
    later.restore([...records.values()].map((record) => record!))
    const restored = later.restored.get(message.bodyId)
    expect(restored).toEqual({ ...message, terms: { priority: 'next', ttlSeconds: 0 }, members: [] })
  })
})
