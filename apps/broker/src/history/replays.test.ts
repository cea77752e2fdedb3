import { expect, test } from 'vitest'
import { isRefused } from '../http/tokens.ts'
import { encodingFor } from './replay-body.ts'
import { ReplaySlots } from './replays.ts'

const never = new AbortController().signal

async function begun(slots: ReplaySlots, who: string, signal = never): Promise<() => void> {
  const done = await slots.begin(who, signal)
  if (isRefused(done)) throw new Error(done.code)
  return done
}

test('the limit of concurrent replays holds, and members take turns', async () => {
  const slots = new ReplaySlots({ atATime: 1, waitingMax: 9, waitingEachMax: 9 })
  const order: string[] = []
  const first = await begun(slots, 'ann')
  const others = ['ann', 'ann', 'ben', 'ann', 'cid'].map(async (who) => {
    const done = await begun(slots, who)
    order.push(who)
    expect(slots.running).toBe(1)
    done()
    done()
  })
  expect(slots.waiting).toBe(5)
  first()
  await Promise.all(others)
  expect(order).toEqual(['ann', 'ben', 'cid', 'ann', 'ann'])
  expect([slots.running, slots.waiting]).toEqual([0, 0])
})

test('a member has one replay at a time, and members queued behind it are served first', async () => {
  const slots = new ReplaySlots({ atATime: 3, waitingMax: 9, waitingEachMax: 9 })
  const [first, second] = [await begun(slots, 'ann'), begun(slots, 'ann')]
  expect([slots.running, slots.waiting]).toEqual([1, 1])
  const [ben, cid] = [await begun(slots, 'ben'), await begun(slots, 'cid')]
  const dan = begun(slots, 'dan')
  ben()
  const ended = await dan
  expect([slots.running, slots.waiting]).toEqual([3, 1])
  cid()
  expect([slots.running, slots.waiting]).toEqual([2, 1])
  first()
  ;(await second)()
  ended()
  expect([slots.running, slots.waiting]).toEqual([0, 0])
})

test("requests beyond the queue's limits are refused, in total and per member", async () => {
  const slots = new ReplaySlots({ atATime: 0, waitingMax: 3, waitingEachMax: 2 })
  const waiting = ['ann', 'ann', 'ben'].map((who) => slots.begin(who, never))
  expect(await slots.begin('ann', never)).toMatchObject({ code: 'replay_busy' })
  expect(await slots.begin('cid', never)).toMatchObject({ code: 'replay_busy' })
  expect([slots.waiting, waiting.length]).toEqual([3, 3])
})

test('a client that disconnects leaves the queue', async () => {
  const slots = new ReplaySlots({ atATime: 1, waitingMax: 9, waitingEachMax: 9 })
  const first = await begun(slots, 'ann')
  const gone = new AbortController()
  const left = slots.begin('ben', gone.signal)
  const stays = begun(slots, 'cid')
  gone.abort(new Error('gone'))
  await expect(left).rejects.toThrow('gone')
  await expect(slots.begin('ben', gone.signal)).rejects.toThrow('gone')
  first()
  ;(await stays)()
  expect([slots.running, slots.waiting]).toEqual([0, 0])
})

test.each([
  [undefined, null],
  ['', null],
  ['br', null],
  ['gzip', 'gzip'],
  ['gzip, zstd', 'zstd'],
  ['zstd;q=0, GZIP;q=0.5', 'gzip'],
  ['zstd;q=0', null],
])('a response for a client that accepts %s is encoded as %s', (header, encoding) => {
  expect(encodingFor(header)).toBe(encoding)
})
