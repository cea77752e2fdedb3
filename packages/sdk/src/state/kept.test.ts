/** Tests that members with the right key can read a group message in the history, and detect omitted messages. */
import { RECORD_BYTES_MAX, RECORD_NOTE_BYTES_MAX, sealBody } from '@sealpost/identity'
import type { GroupId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { all, type Member, Space } from '../test/states.ts'
import { openState } from './index.ts'
import type { HistoryMessage } from './space-reader.ts'

const TERMS = { historyFor: 'joined', keepsMessages: true } as const
const note = (space: Space) => ({ group: space.broker.spaceId as GroupId, groupEpoch: 1, thread: 'ab'.repeat(16) })

/** Adds a record in the form that the member sends and the broker stores. */
function say(space: Space, member: Member, text: string): void {
  seal(space, member, text).store()
}

/** Seals a record. The test decides whether the broker stores it. */
function seal(space: Space, { state }: Member, text: string): { store: () => void } {
  const body = sealBody(new TextEncoder().encode(text))
  const record = state.sealRecord({ ticket: body.ticket, note: note(space) })
  const store = () => {
    space.broker.append({ kind: 3, value: record, body: body.bytes })
    state.recorded(record)
    state.recorded(record) // the SDK calls it for each member
  }
  return { store }
}

async function crew() {
  const space = await Space.make(TERMS, { inGroup: 1 })
  const [, bob] = [...space.broker.members.values()]
  const ann = await space.open(space.owner)
  return { space, ann, bob: await space.open(bob) }
}

const texts = async ({ state }: Member) =>
  (await all(state.history())).map((event) =>
    event.type === 'message' ? new TextDecoder().decode(event.body) : event.type,
  )

test('the history contains the messages in order, with their authors', async () => {
  const { space, ann, bob } = await crew()
  say(space, ann, 'lunch?')
  await ann.state.set('topic', 'lunch')
  say(space, bob, 'at noon')
  say(space, ann, 'fine')
  expect(await texts(bob)).toEqual(['lunch?', 'set', 'at noon', 'fine'])
  const [first] = (await all(bob.state.history())) as HistoryMessage[]
  expect(first).toMatchObject({ author: ann.identity.signing.publicKey, thread: 'ab'.repeat(16), seq: 1 })
  expect(bob.told).toEqual([])
})

test('a later member has no key to earlier messages', async () => {
  const { space, ann, bob } = await crew()
  say(space, ann, 'between us')
  const cat = space.broker.join()
  space.nameMembers([bob.identity, cat])
  await ann.state.maintainKeys()
  say(space, ann, 'welcome')
  expect(await texts(await space.open(cat))).toEqual(['sealed', 'welcome'])
  expect(await texts(bob)).toEqual(['between us', 'welcome'])
})

test('a message omitted between two messages of its author is reported as a gap, whatever their numbers are', async () => {
  const { space, ann, bob } = await crew()
  for (const text of ['one', 'two', 'three']) say(space, ann, text)
  space.broker.bend = (lines) => lines.filter(({ seq }) => seq !== 2).map((line, n) => ({ ...line, seq: n + 1 }))
  expect(await texts(bob)).toEqual(['one', 'three'])
  expect(bob.told).toMatchObject([{ type: 'history_gap', author: ann.identity.signing.publicKey }])
  space.broker.bend = (lines) => [lines[0]!, { ...lines[0]!, seq: 2 }]
  await expect(texts(bob)).rejects.toMatchObject({ code: 'state_rolled_back' })
})

test('a message that was refused between others causes no gap, whenever they were sealed', async () => {
  const { space, ann, bob } = await crew()
  say(space, ann, 'one')
  const [two, three, four] = ['two', 'three', 'four'].map((text) => seal(space, ann, text))
  three!.store()
  two!.store()
  say(space, ann, 'five')
  say(space, ann, 'six')
  expect([await texts(bob), four]).toEqual([['one', 'three', 'two', 'five', 'six'], expect.anything()])
  expect(bob.told).toEqual([])
})

test('an omitted message of a concurrent batch is reported when its stream continues', async () => {
  const { space, ann, bob } = await crew()
  for (const sealed of ['1', '2', '3'].map((text) => seal(space, ann, text))) sealed.store()
  for (const text of ['4', '5', '6', '7']) say(space, ann, text)
  space.broker.bend = (lines) => lines.filter(({ seq }) => seq !== 4).map((line, n) => ({ ...line, seq: n + 1 }))
  expect(await texts(bob)).toEqual(['1', '2', '3', '5', '6', '7'])
  expect(bob.told).toMatchObject([{ type: 'history_gap', author: ann.identity.signing.publicKey }])
})

test('a note that no record can hold is refused, and the maximum size is accepted', async () => {
  const { space, ann, bob } = await crew()
  const thread = 'ab'.repeat(16)
  const others = JSON.stringify({ thread, group: space.broker.spaceId, groupEpoch: 2 ** 31 - 1, attachment: '' })
  const longest = 'a'.repeat(RECORD_NOTE_BYTES_MAX - others.length)
  ann.state.checkNote({ thread, attachment: longest })
  const body = sealBody(new Uint8Array(3))
  const note = { group: space.broker.spaceId as GroupId, groupEpoch: 2 ** 31 - 1, thread, attachment: longest }
  expect(ann.state.sealRecord({ ticket: body.ticket, note })).toHaveLength(RECORD_BYTES_MAX)
  for (const attachment of [`${longest}a`, `${longest.slice(1)}é`, '"'.repeat(RECORD_NOTE_BYTES_MAX / 2)])
    expect(() => ann.state.checkNote({ thread, attachment })).toThrow(
      expect.objectContaining({ code: 'value_too_large' }),
    )
  expect(() => bob.state.checkNote(undefined)).not.toThrow()
})

test('another body, another record and any changed byte are reported as forged', async () => {
  const { space, ann, bob } = await crew()
  say(space, ann, 'one')
  say(space, ann, 'two')
  const [one, two] = space.broker.events
  const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64')
  const handOut = async (change: object) => {
    space.broker.bend = (lines) => [{ ...lines[0]!, ...change }]
    await expect(texts(bob)).rejects.toMatchObject({ code: 'entry_forged' })
  }
  await handOut({ body: base64(two!.body!) })
  await handOut({ value: base64(one!.value.map((byte, i) => (i === 40 ? byte ^ 1 : byte))) })
  await handOut({ value: base64(one!.value.map((byte, i) => (i === 150 ? byte ^ 1 : byte))) })
})

test('recent events are read newest first, in pages of any size, from any number, and after a cut', async () => {
  const { space, ann, bob } = await crew()
  for (const text of ['1', '2', '3', '4', '5', '6', '7']) say(space, text === '4' ? bob : ann, text)
  const recent = async (options: Parameters<typeof bob.state.recent>[0] = {}) =>
    (await all(bob.state.recent(options))).map((event) => event.seq).join('')
  for (const pageMax of [1, 2, 3, 100]) {
    space.broker.pageMax = pageMax
    space.broker.cutAfter = 1
    expect(await recent()).toBe('7654321')
    expect([await recent({ before: 4 }), await recent({ limit: 3 })]).toEqual(['321', '765'])
  }
  expect(bob.told).toEqual([])
})

test('recent events are read again after a broken connection', async () => {
  const { space, ann, bob } = await crew()
  for (const text of ['1', '2']) say(space, ann, text)
  const place = space.broker.placeOf(bob.identity)
  let isWhole = false
  const fetch: typeof space.broker.fetch = async (url, init) => {
    const answer = await space.broker.fetch(url, init)
    if (isWhole || !url.includes('/history')) return answer
    isWhole = true
    return new Response(new ReadableStream({ start: (controller) => controller.error(new TypeError('broken')) }))
  }
  const state = await openState({ ...place, ports: { ...place.ports, fetch } })
  expect((await all(state.recent())).map(({ seq }) => seq)).toEqual([2, 1])
  expect(isWhole).toBe(true)
})

test('omitted and outdated events are reported as gaps, also between two pages', async () => {
  const { space, ann, bob } = await crew()
  for (const text of ['1', '2', '3', '4', '5', '6']) say(space, ann, text)
  for (const [pageMax, missing] of [
    [2, 4],
    [2, 5],
    [100, 2],
  ]) {
    space.broker.pageMax = pageMax!
    space.broker.bend = (lines) => lines.filter(({ seq }) => seq !== missing)
    bob.told.length = 0
    await all(bob.state.recent())
    expect(bob.told.map(({ type }) => type)).toContain('history_gap')
  }
  await bob.state.maintainKeys()
  space.broker.bend = (lines) => lines.filter(({ seq }) => (seq as number) < 5)
  space.broker.pageMax = 100
  bob.told.length = 0
  await all(bob.state.recent())
  expect(bob.told).toMatchObject([{ type: 'history_gap', reason: 'events 5 to 6 are missing' }])
})

test('a conversation has its last message and the number of unread messages of others', async () => {
  const { space, ann, bob } = await crew()
  expect(await bob.state.conversation()).toEqual({ spaceId: space.broker.spaceId, last: null, unread: 0 })
  for (const text of ['1', '2', '3']) say(space, ann, text)
  say(space, bob, '4')
  await ann.state.set('topic', 'lunch')
  expect(await bob.state.conversation()).toMatchObject({ last: { seq: 4 }, unread: 3 })
  expect(await bob.state.conversation({ readUpTo: 2 })).toMatchObject({ last: { seq: 4 }, unread: 1 })
  expect(await ann.state.conversation({ readUpTo: 5 })).toMatchObject({ last: { seq: 4 }, unread: 0 })
})
