/**
 * Simulates time, which advances to the next event. Events with the same time happen in the order of scheduling, each
 * after all effects of the previous one.
 */
import { drainMicrotasks } from 'bun:jsc'
import { assert, type Millis } from '@sealpost/std'

interface Event {
  readonly atMs: Millis
  readonly no: number
  readonly run: () => void
}

export class VirtualClock {
  nowMs: Millis
  private readonly heap: Event[] = []
  private lastNo = 0

  constructor(startMs: Millis) {
    this.nowMs = startMs
  }

  at(atMs: Millis, run: () => void): void {
    this.lastNo += 1
    const { heap } = this
    heap.push({ atMs: Math.max(atMs, this.nowMs), no: this.lastNo, run })
    let place = heap.length - 1
    while (place > 0) {
      const parent = (place - 1) >> 1
      if (!isBefore(heap[place]!, heap[parent]!)) return
      swap(heap, place, parent)
      place = parent
    }
  }

  after(delayMs: Millis, run: () => void): void {
    this.at(this.nowMs + delayMs, run)
  }

  step(): void {
    const { heap } = this
    assert(heap.length > 0, 'a world with ticks never runs out of events')
    const event = heap[0]!
    const last = heap.pop()!
    if (heap.length > 0) {
      heap[0] = last
      sink(heap)
    }
    this.nowMs = event.atMs
    event.run()
    drainMicrotasks()
  }
}

function sink(heap: Event[]): void {
  let place = 0
  for (;;) {
    const left = 2 * place + 1
    const right = left + 1
    let least = place
    if (left < heap.length && isBefore(heap[left]!, heap[least]!)) least = left
    if (right < heap.length && isBefore(heap[right]!, heap[least]!)) least = right
    if (least === place) return
    swap(heap, place, least)
    place = least
  }
}

const isBefore = (a: Event, b: Event): boolean => a.atMs < b.atMs || (a.atMs === b.atMs && a.no < b.no)

function swap(heap: Event[], a: number, b: number): void {
  const kept = heap[a]!
  heap[a] = heap[b]!
  heap[b] = kept
}
