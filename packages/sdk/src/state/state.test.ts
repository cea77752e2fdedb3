/** Tests an application's view of shared state, against a broker that follows the rules. */
import { expect, test } from 'vitest'
import { MemoryStore } from '../stores/memory-store.ts'
import { all, Space, take } from '../test/states.ts'
import { openState } from './index.ts'

const code = (of: string) => expect.objectContaining({ code: of })

test('members read a value that another member set, under a key that the broker cannot read', async () => {
  const space = await Space.make()
  const [ann, bob] = [await space.open(space.owner), await space.open()]
  await ann.state.maintainKeys()
  expect(await ann.state.get('topic')).toBe(null)
  expect(await ann.state.set('topic', 'tea')).toMatchObject({ revision: 1, seq: 1 })
  expect(await bob.state.set('votes', { ann: 3 })).toMatchObject({ revision: 1 })
  const topic = await bob.state.get('topic')
  expect([topic?.text(), topic?.author, topic?.revision]).toEqual(['tea', ann.identity.signing.publicKey, 1])
  expect((await ann.state.get('votes'))?.json()).toEqual({ ann: 3 })
  expect((await all(bob.state.list())).map(({ key }) => key)).toEqual(['topic', 'votes'])
  const seen = space.broker.events.map(({ value }) => Buffer.from(value).toString('latin1')).join()
  expect(seen).not.toMatch(/topic|votes|tea|ann/)
})

test('a deleted key has no value, and its revisions continue', async () => {
  const { state } = await (await Space.make()).open()
  await state.set('topic', 'tea')
  expect(await state.delete('topic')).toMatchObject({ revision: 2 })
  expect([await state.get('topic'), await all(state.list())]).toEqual([null, []])
  await expect(state.set('topic', 'x', { ifRevision: 1 })).rejects.toThrow(code('state_conflict'))
  expect(await state.set('topic', 'more', { ifRevision: 0 })).toMatchObject({ revision: 3 })
})

test('compare-and-set accepts one of two writes; without it, both are stored one after the other', async () => {
  const space = await Space.make()
  const [ann, bob] = [await space.open(space.owner), await space.open()]
  await ann.state.maintainKeys()
  await ann.state.set('count', '1')
  const both = [ann, bob].map(({ state }) => state.set('count', '2', { ifRevision: 1 }))
  const ended = await Promise.allSettled(both)
  expect(ended.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
  expect(ended.find(({ status }) => status === 'rejected')).toMatchObject({ reason: code('state_conflict') })
  await expect(bob.state.set('count', '9', { ifRevision: 7 })).rejects.toThrow(code('state_conflict'))
  await expect(bob.state.set('count', '9', { ifRevision: 0 })).rejects.toThrow(code('state_conflict'))
  const more = [ann, bob, ann, bob].map(({ state }, n) => state.set('count', String(n)))
  expect((await Promise.all(more)).map(({ revision }) => revision).sort()).toEqual([3, 4, 5, 6])
})

test('changes of many keys share a few requests, and changes of one key keep their order', async () => {
  const space = await Space.make()
  const { state } = await space.open()
  const from = space.broker.asked.length
  await Promise.all(Array.from({ length: 200 }, (_, n) => state.set(`key ${n % 50}`, String(n))))
  expect(space.broker.asked.slice(from).length).toBeLessThan(40)
  expect((await all(state.list())).map((entry) => Number(entry.text())).sort((a, b) => a - b)[0]).toBe(150)
})

test('watch yields every change from now on; with `after`, it also yields the changes since that event', async () => {
  const space = await Space.make()
  const { state } = await space.open()
  await state.set('topic', 'tea')
  const watched = take(state.watch({ after: 0 }), 4)
  await space.broker.followed()
  await state.set('topic', 'coffee')
  await state.delete('topic')
  await state.set('other', '1')
  expect((await watched).map((event) => [event.type, event.seq])).toEqual([
    ['set', 1],
    ['set', 2],
    ['deleted', 3],
    ['set', 4],
  ])
  const stop = new AbortController()
  const news = state.watch({ signal: stop.signal })
  const next = news.next()
  await space.broker.followed()
  await state.set('topic', 'water')
  expect((await next).value).toMatchObject({ type: 'set', key: 'topic', seq: 5 })
  stop.abort()
  expect(await news.next()).toEqual({ done: true, value: undefined })
})

test('a list, a replay and a watch resume after a cut', async () => {
  const space = await Space.make()
  const { state } = await space.open()
  for (let n = 1; n <= 5; n++) await state.set(`key ${n}`, String(n))
  await state.set('key 1', 'later')
  const keys = ['key 1', 'key 2', 'key 3', 'key 4', 'key 5']
  space.broker.cutAfter = 3
  expect((await all(state.list())).map(({ key }) => key).sort()).toEqual(keys)
  space.broker.cutAfter = 2
  const at = { us: space.broker.events[4]!.atUs }
  const then = await all(state.replay({ at }))
  expect(then.map((entry) => [entry.key, entry.text()])).toEqual(keys.map((key, n) => [key, String(n + 1)]))
  space.broker.cutAfter = 4
  expect((await take(state.watch({ after: 0 }), 6)).map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6])
  space.broker.cutAfter = 2
  expect((await all(state.history({ limit: 3 }))).map(({ seq }) => seq)).toEqual([1, 2, 3])
})

test('history yields the changes between two moments', async () => {
  const space = await Space.make()
  const { state } = await space.open()
  for (let n = 1; n <= 4; n++) await state.set('topic', String(n))
  const [, second, , fourth] = space.broker.events
  const between = await all(state.history({ from: { us: second!.atUs }, to: { us: fourth!.atUs } }))
  expect(between.map(({ seq }) => seq)).toEqual([2, 3])
})

test('a write whose reply was lost is repeated, and stored once', async () => {
  const space = await Space.make()
  const member = space.broker.join()
  const place = space.broker.placeOf(member)
  let isLost = true
  const fetch: typeof space.broker.fetch = async (url, init) => {
    const answer = await space.broker.fetch(url, init)
    if (!url.endsWith('/entries') || !isLost) return answer
    isLost = false
    throw new TypeError('cut')
  }
  const state = await openState({ ...place, ports: { ...place.ports, fetch } })
  expect(await state.set('topic', 'tea', { ifRevision: 0 })).toMatchObject({ revision: 1, seq: 1 })
  expect(space.broker.events).toHaveLength(1)
})

test.each<[string, string, unknown, string]>([
  ['an empty key', '', 'x', 'state_key_malformed'],
  ['a key of 513 bytes', 'x'.repeat(513), 'x', 'state_key_malformed'],
  ['a value over 64 KiB', 'topic', new Uint8Array(65_537), 'value_too_large'],
])('%s is refused at once', async (_, key, value, expected) => {
  const space = await Space.make()
  const { state } = await space.open()
  await expect(state.set(key, value as string)).rejects.toThrow(code(expected))
  expect(space.broker.events).toEqual([])
})

test('opening fails for a peer outside the space, and in a mesh without a space', async () => {
  const space = await Space.make({}, { inGroup: 1 })
  await expect(space.open(space.broker.join())).rejects.toThrow(code('space_unknown'))
})

test('a later process with the same store has the keys and the known entries', async () => {
  const space = await Space.make()
  const first = await space.open(space.owner, new MemoryStore())
  const store = new MemoryStore()
  const bob = await space.open(undefined, store)
  await first.state.maintainKeys()
  await bob.state.set('topic', 'tea')
  await bob.state.close()
  expect(space.broker.grants.filter(({ peer }) => peer === bob.identity.signing.publicKey)).toMatchObject([
    { isFetched: true },
  ])
  const again = await space.open(bob.identity, new MemoryStore(store.records))
  expect([again.state.hasKeys, (await again.state.get('topic'))?.text()]).toEqual([true, 'tea'])
  const stored = JSON.stringify([...store.records.values()])
  expect(stored).not.toContain('tea')
})

test('without a history, watch yields the last value of each key that has changed', async () => {
  const space = await Space.make({ historyFor: 'none' })
  const { state } = await space.open()
  await state.set('topic', 'tea')
  await state.set('topic', 'coffee')
  await state.set('other', '1')
  const watched = await take(state.watch({ after: 1 }), 2)
  expect(watched.map((event) => event.type === 'set' && [event.key, event.text()])).toEqual([
    ['topic', 'coffee'],
    ['other', '1'],
  ])
})
