/** Tests HTTP requests to a suspended broker, which never answers. */
import { Attachments } from '@sealpost/sdk/attachments'
import { openState, setSpace } from '@sealpost/sdk/state'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { Cluster, placeAt } from './cluster.ts'
import type { BrokerProcess } from './process.ts'
import type { Place } from './world.ts'

let cluster: Cluster
let [first, second]: BrokerProcess[] = []
let ann: Place

beforeAll(async () => {
  cluster = await Cluster.open(2)
  ;[first, second] = cluster.brokers
  ann = await cluster.world.enrolAdmin('ann')
  await setSpace(placeAt(first!, ann))
})
beforeEach(() => first!.signal('SIGCONT'))
afterAll(async () => {
  first?.signal('SIGCONT')
  await cluster?.[Symbol.asyncDispose]()
})

const both = (place: Place) => ({ ...place, url: [first!.shardUrl, second!.shardUrl] })
const file = new Blob([new Uint8Array(300_000)])

test('state is read and written at the next address', async () => {
  await using state = await openState(both(ann))
  await state.set('topic', 'tea')
  first!.signal('SIGSTOP')
  expect((await state.get('topic'))?.text()).toBe('tea')
  expect(await state.set('topic', 'coffee')).toMatchObject({ revision: 2 })
  await using opened = await openState(both(ann))
  expect((await opened.get('topic'))?.text()).toBe('coffee')
})

test('a subscription whose broker is suspended continues at the next address', async () => {
  await using state = await openState(both(ann))
  await state.set('plan', 'a')
  const { lastSeq } = await state.status()
  const seen = state.watch({ after: lastSeq })
  const next = async () => {
    const { value } = await seen.next()
    return value?.type === 'set' ? value.text() : value
  }
  const second = next()
  await state.set('plan', 'b')
  expect(await second).toBe('b')
  const third = next()
  first!.signal('SIGSTOP')
  await state.set('plan', 'c')
  expect(await third).toBe('c')
}, 120_000)

test('a file is sent and fetched at the next address although its broker is suspended midway', async () => {
  await using files = new Attachments(both(ann))
  const sent = await files.upload(file, {
    ...{ name: 'zeros', to: ann.identity.signing.publicKey },
    onProgress: () => first!.signal('SIGSTOP'),
  })
  first!.signal('SIGCONT')
  let bytes = 0
  for await (const piece of files.download(sent, { onProgress: () => first!.signal('SIGSTOP') })) bytes += piece.length
  expect(bytes).toBe(300_000)
})

test('without another address the request fails with connection_lost after its time limit', async () => {
  const alone = { ...placeAt(first!, ann), patienceMs: 3_000 }
  await using state = await openState(alone)
  await using files = new Attachments(alone, alone)
  first!.signal('SIGSTOP')
  const lost = { code: 'connection_lost', isRetryable: true }
  await expect(state.get('topic')).rejects.toMatchObject(lost)
  await expect(openState(alone)).rejects.toMatchObject(lost)
  await expect(files.upload(file, { name: 'f', to: ann.identity.signing.publicKey })).rejects.toMatchObject(lost)
})

test('an abort signal ends a request to a suspended broker, and the connection attempt', async () => {
  first!.signal('SIGSTOP')
  const stop = new AbortController()
  const opening = openState({ ...placeAt(first!, ann), signal: stop.signal })
  queueMicrotask(() => stop.abort())
  await expect(opening).rejects.toMatchObject({ code: 'aborted' })
})
