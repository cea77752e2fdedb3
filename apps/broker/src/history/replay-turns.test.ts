import { expect, test } from 'vitest'
import { isRefused } from '../http/refusals.ts'
import { encodingFor } from './replay-body.ts'
import { Turns } from './replay-turns.ts'

const never = new AbortController().signal

async function begun(turns: Turns, who: string, signal = never): Promise<() => void> {
  const done = await turns.begin(who, signal)
  if (isRefused(done)) throw new Error(done.code)
  return done
}

test('the limit of concurrent replays holds, and members take turns', async () => {
  const turns = new Turns({ atATime: 1, waitingMax: 9, waitingEachMax: 9 })
  const order: string[] = []
  const first = await begun(turns, 'ann')
  const others = ['ann', 'ann', 'ben', 'ann', 'cid'].map(async (who) => {
    const done = await begun(turns, who)
    order.push(who)
    expect(turns.running).toBe(1)
    done()
    done() // a second call has no effect
  })
  expect(turns.waiting).toBe(5)
  first()
  await Promise.all(others)
  expect(order).toEqual(['ann', 'ben', 'cid', 'ann', 'ann'])
  expect([turns.running, turns.waiting]).toEqual([0, 0])
})

test('a member has one replay at a time, and members behind it in the queue go first', async () => {
  const turns = new Turns({ atATime: 3, waitingMax: 9, waitingEachMax: 9 })
  const [first, second] = [await begun(turns, 'ann'), begun(turns, 'ann')]
  expect([turns.running, turns.waiting]).toEqual([1, 1])
  const [ben, cid] = [await begun(turns, 'ben'), await begun(turns, 'cid')]
  const dan = begun(turns, 'dan')
  ben()
  const ended = await dan
  expect([turns.running, turns.waiting]).toEqual([3, 1])
  cid()
  expect([turns.running, turns.waiting]).toEqual([2, 1])
  first()
  ;(await second)()
  ended()
  expect([turns.running, turns.waiting]).toEqual([0, 0])
})

test('a full queue refuses, in total and per member', async () => {
  const turns = new Turns({ atATime: 0, waitingMax: 3, waitingEachMax: 2 })
  const waiting = ['ann', 'ann', 'ben'].map((who) => turns.begin(who, never))
  expect(await turns.begin('ann', never)).toMatchObject({ code: 'replay_busy' })
  expect(await turns.begin('cid', never)).toMatchObject({ code: 'replay_busy' })
  expect([turns.waiting, waiting.length]).toEqual([3, 3])
})

test('a client that disconnects leaves the queue', async () => {
  const turns = new Turns({ atATime: 1, waitingMax: 9, waitingEachMax: 9 })
  const first = await begun(turns, 'ann')
  const gone = new AbortController()
  const left = turns.begin('ben', gone.signal)
  const stays = begun(turns, 'cid')
  gone.abort(new Error('gone'))
  await expect(left).rejects.toThrow('gone')
  await expect(turns.begin('ben', gone.signal)).rejects.toThrow('gone')
  first()
  ;(await stays)()
  expect([turns.running, turns.waiting]).toEqual([0, 0])
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
