import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { PaceWatch, readAtPace } from './connection.ts'

const PACE = { bytesPerSecond: 1000, startMs: 5_000 }

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

test('a transfer at the minimum rate is never too slow, and one that stops is', () => {
  const tooSlow = vi.fn()
  const watch = new PaceWatch(PACE, tooSlow)
  for (let second = 0; second < 60; second++) {
    vi.advanceTimersByTime(1000)
    watch.passed(1000)
  }
  expect(tooSlow).not.toHaveBeenCalled()
  vi.advanceTimersByTime(4_900)
  expect(tooSlow).not.toHaveBeenCalled()
  vi.advanceTimersByTime(200)
  expect(tooSlow).toHaveBeenCalledOnce()
})

test('a steady transfer below the minimum rate is too slow', () => {
  const tooSlow = vi.fn()
  const watch = new PaceWatch(PACE, tooSlow)
  for (let second = 0; second < 11; second++) {
    vi.advanceTimersByTime(1000)
    watch.passed(500)
  }
  expect(tooSlow).toHaveBeenCalledOnce()
})

test('a stopped watch reports nothing', () => {
  const tooSlow = vi.fn()
  new PaceWatch(PACE, tooSlow).stop()
  vi.advanceTimersByTime(60_000)
  expect(tooSlow).not.toHaveBeenCalled()
})

test('a body is read completely at the minimum rate, and abandoned below it', async () => {
  const bodyOf = (pieces: number, everyMs: number) => {
    let sent = 0
    const pull = async (controller: ReadableStreamDefaultController<Uint8Array>) => {
      if (sent++ === pieces) return controller.close()
      await new Promise((resolve) => setTimeout(resolve, everyMs))
      controller.enqueue(new Uint8Array(1000).fill(sent))
    }
    const body = new ReadableStream<Uint8Array>({ pull }, { highWaterMark: 0 })
    return new Request('http://x', { method: 'POST', body })
  }
  const whole = readAtPace(bodyOf(3, 500), PACE)
  await vi.advanceTimersByTimeAsync(2_000)
  expect((await whole)?.length).toBe(3000)
  const slow = readAtPace(bodyOf(60, 4_000), PACE)
  await vi.advanceTimersByTimeAsync(60_000)
  expect(await slow).toBeNull()
  expect(await readAtPace(new Request('http://x', { method: 'POST' }), PACE)).toEqual(new Uint8Array())
})
