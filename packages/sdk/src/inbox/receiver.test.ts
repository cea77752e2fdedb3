import type { Priority } from '@sealpost/protocol'
import { seededRandom } from '@sealpost/std'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { TurnsScene } from '../test/turns.ts'
import { GRACE_MS } from './dispatcher.ts'
import { HOLD_MS } from './stream-order.ts'

/**
 * Returns a scene in which Bob has just requested all of Alice's keys, and she then rotates. He must wait 10 s for a
 * new request.
 */
function turnedTwice(): TurnsScene {
  const scene = new TurnsScene()
  scene.turn()
  scene.send('0', 'low')
  scene.turn()
  scene.send('1', 'low')
  scene.turn()
  expect(scene.texts).toEqual(['0', '1'])
  return scene
}

describe('around a rotation of box keys', () => {
  test('the second message of a lane waits for the first one, which does not open yet', () => {
    const scene = turnedTwice()
    scene.advance(5_000)
    scene.send('first')
    scene.advance(5_500) // the keys can be requested again, and the first message is delayed by another 4.5 seconds
    scene.send('second')
    expect(scene.texts).toEqual(['0', '1'])
    scene.advance(4_500)
    expect(scene.shown.slice(2)).toEqual([
      { text: 'first', atMs: 15_000 },
      { text: 'second', atMs: 15_000 },
    ])
  })

  test('another lane of the same sender does not wait', () => {
    const scene = turnedTwice()
    scene.advance(5_000)
    scene.send('first')
    scene.advance(5_500)
    scene.send('urgent', 'now')
    expect(scene.texts).toEqual(['0', '1', 'urgent'])
  })

  test('a deferred message that dies holds up its lane for half a minute more', () => {
    const scene = turnedTwice()
    scene.advance(5_000)
    scene.send('first')
    scene.expire()
    scene.advance(5_500)
    scene.send('second')
    scene.advance(4_500 + 2 * GRACE_MS)
    expect(scene.texts).toEqual(['0', '1', 'second'])
    expect(scene.shown.at(-1)!.atMs).toBeGreaterThanOrEqual(15_000 + GRACE_MS)
  })

  test('a deferred message is awaited in a new session too, since its pause continues there', () => {
    const scene = turnedTwice()
    scene.advance(5_000)
    scene.send('first')
    scene.expire()
    for (const text of ['second', 'third']) scene.send(text)
    scene.advance(5_500)
    scene.reconnect()
    expect(scene.texts).toEqual(['0', '1'])
    scene.advance(4_500 + 2 * GRACE_MS)
    expect(scene.texts).toEqual(['0', '1', 'second', 'third'])
  })

  test('a message that waits for keys is not dropped when its sender is unlocked for another reason', () => {
    const scene = turnedTwice()
    scene.advance(10_500)
    scene.whileSilent(() => {
      scene.send('first')
      scene.send('second')
      scene.unlock()
    })
    expect(scene.texts).toEqual(['0', '1', 'first', 'second'])
  })

  test('mail of a peer that the broker did not know keeps its order once it does', () => {
    const scene = new TurnsScene()
    scene.turnUnheard()
    scene.send('first')
    scene.publish()
    scene.advance(20_000)
    scene.send('second')
    expect(scene.texts).toEqual([])
    scene.advance(40_000)
    expect(scene.texts).toEqual(['first', 'second'])
  })

  test('the messages of each lane are handed out in order, whenever the sender rotates its keys and however late messages return', () => {
    const steps = fc.array(
      fc.record({
        pauseMs: fc.integer({ min: 0, max: 6_000 }),
        isTurn: fc.boolean(),
        priority: fc.constantFrom<Priority>('now', 'next'),
      }),
      { minLength: 5, maxLength: 40 },
    )
    const inOrder = fc.property(steps, fc.integer(), (story, seed) => {
      const random = seededRandom(seed)
      const scene = new TurnsScene(() => random.next() * 2_000)
      scene.turn()
      for (const [n, { pauseMs, isTurn, priority }] of story.entries()) {
        scene.advance(pauseMs)
        if (isTurn) scene.turn()
        scene.send(`${priority} ${n}`, priority)
      }
      scene.advance(300_000)
      for (const lane of ['now', 'next']) {
        const sent = story.flatMap(({ priority }, n) => (priority === lane ? `${lane} ${n}` : []))
        expect(scene.texts.filter((text) => text.startsWith(lane))).toEqual(sent)
      }
    })
    fc.assert(inOrder, { numRuns: 300 })
  })
})

describe('behind a missing message', () => {
  /** Returns a scene in which the third message waits for the second one, which never arrives. */
  function withHole(): TurnsScene {
    const scene = new TurnsScene()
    scene.turn()
    scene.send('1')
    scene.lose('2')
    scene.send('3')
    expect(scene.texts).toEqual(['1'])
    return scene
  }

  test('a message of another stream of the lane waits with the one before it', () => {
    const scene = withHole()
    scene.restartStream()
    scene.send('4')
    scene.advance(HOLD_MS - 1)
    expect(scene.texts).toEqual(['1'])
    scene.advance(1)
    expect(scene.texts).toEqual(['1', '3', '4'])
  })

  test('another lane of the same sender and messages without a stream do not wait', () => {
    const scene = withHole()
    scene.send('urgent', 'now')
    scene.sendLoose('delayed')
    expect(scene.texts).toEqual(['1', 'urgent', 'delayed'])
  })

  test('the messages of each lane are handed out in order within two seconds, whatever is lost and wherever streams begin', () => {
    const steps = fc.array(
      fc.record({
        pauseMs: fc.integer({ min: 0, max: 1_000 }),
        isLost: fc.boolean(),
        isNewStream: fc.boolean(),
        priority: fc.constantFrom<Priority>('now', 'next'),
      }),
      { minLength: 5, maxLength: 40 },
    )
    const inOrder = fc.property(steps, (story) => {
      const scene = new TurnsScene()
      scene.turn()
      const sentAtMs = new Map<string, number>()
      for (const [n, { pauseMs, isLost, isNewStream, priority }] of story.entries()) {
        scene.advance(pauseMs)
        if (isNewStream) scene.restartStream(priority)
        const text = `${priority} ${n}`
        if (isLost) scene.lose(text, priority)
        else scene.send(text, priority)
        if (!isLost) sentAtMs.set(text, scene.nowMs)
      }
      scene.advance(HOLD_MS)
      for (const lane of ['now', 'next'])
        expect(scene.texts.filter((text) => text.startsWith(lane))).toEqual(
          [...sentAtMs.keys()].filter((text) => text.startsWith(lane)),
        )
      for (const { text, atMs } of scene.shown) expect(atMs - sentAtMs.get(text)!).toBeLessThanOrEqual(HOLD_MS)
    })
    fc.assert(inOrder, { numRuns: 300 })
  })
})

describe('settles', () => {
  test('wait for others, but only briefly', () => {
    const scene = new TurnsScene()
    scene.turn()
    scene.send('first')
    scene.advance(99)
    scene.send('second')
    expect(scene.settles).toEqual([])
    scene.advance(1)
    expect(scene.settles).toEqual([{ count: 2, atMs: 100 }])
    scene.advance(1_000)
    expect(scene.settles).toHaveLength(1)
  })

  test('wait for at most an eighth of the window', () => {
    const scene = new TurnsScene()
    scene.turn()
    for (let i = 0; i < 70; i++) scene.send(String(i))
    expect(scene.settles.map(({ count }) => count)).toEqual([32, 32])
  })

  test('of a small window and of large messages are sent at once', () => {
    const small = new TurnsScene(undefined, 4)
    small.turn()
    small.send('first')
    expect(small.settles).toEqual([{ count: 1, atMs: 0 }])
    const scene = new TurnsScene()
    scene.turn()
    scene.send('first')
    scene.send('x'.repeat(5_000))
    expect(scene.settles).toEqual([{ count: 2, atMs: 0 }])
  })
})
