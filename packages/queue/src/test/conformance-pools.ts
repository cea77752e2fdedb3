/** Conformance tests for pools: each delivery has a single holder, whose lease ends in several ways. */
import {
  type Append,
  type AppendOutcome,
  type DeliveryRef,
  encodeTerms,
  NO_THREAD,
  NO_VIRTUAL_TIMES,
  type PoolClaimed,
  PRIORITY_MAX,
  readMarking,
  type SessionRef,
} from '@sealpost/protocol'
import type { PeerKey, PeerNo, PoolId } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import type { Queue } from '../queue.ts'
import {
  bytesOf,
  MESH,
  OTHER_MESH,
  peerKeyOf,
  type Stage,
  statusesOf,
  suiteOptions,
  textOf,
} from './conformance-world.ts'

const POOL = 'f0'.repeat(32) as PoolId
const [ANN, BOB, CAT] = [1, 2, 3].map(peerKeyOf) as [PeerKey, PeerKey, PeerKey]
const MINUTE = 60_000

/** A pool of Bob and Cat, both connected, and its sender Ann. */
export class Crew {
  readonly stage: Stage
  readonly pool: PeerNo
  bob: SessionRef
  cat: SessionRef
  private bodies = 0

  private constructor(stage: Stage, pool: PeerNo, [bob, cat]: readonly [SessionRef, SessionRef]) {
    this.stage = stage
    this.pool = pool
    this.bob = bob
    this.cat = cat
  }

  static async gather(stage: Stage): Promise<Crew> {
    await stage.world.setPool(MESH, POOL, { owner: stage.ann, epoch: 1, members: [BOB, CAT] })
    const [found] = await stage.here.findPools(MESH, [POOL])
    await stage.openFor(ANN)
    return new Crew(stage, found!.pool, [await stage.openFor(BOB), await stage.openFor(CAT)])
  }

  /** `readers`: the members that have boxes, by default both. */
  task(
    text: string,
    changes: Partial<Append> = {},
    readers: readonly PeerNo[] = [this.stage.bob, this.stage.cat],
  ): Append {
    this.bodies += 1
    const body = { bodyId: this.bodies.toString(16).padStart(64, '0'), bytes: bytesOf(`body of ${text}`), readers }
    return this.stage.append(text, { recipient: this.pool, body, ...changes })
  }

  /** Claims with one slot for each of these members. */
  async deal(members: readonly SessionRef[], queue: Queue = this.stage.here, priorityMax = PRIORITY_MAX) {
    const slots = members.map(({ peer, epoch }) => ({ member: peer, epoch, priorityMax }))
    const [answer] = await queue.claimPools([{ meshId: MESH, pool: this.pool, slots, virtualTimes: NO_VIRTUAL_TIMES }])
    return answer!
  }

  async texts(members: readonly SessionRef[], queue?: Queue): Promise<(string | null)[]> {
    return textsOf(await this.deal(members, queue), members.length)
  }

  held(outcome: AppendOutcome, by: SessionRef): { delivery: DeliveryRef; epoch: number } {
    return { delivery: this.stage.refOf(outcome, { recipient: this.pool, holder: by.peer }), epoch: by.epoch }
  }
}

function textsOf(answer: PoolClaimed, count: number): (string | null)[] {
  if (answer.status === 'locked') throw new Error('the pool was locked')
  const texts: (string | null)[] = Array.from({ length: count }, () => null)
  for (const { slot, delivery } of answer.dealt) texts[slot] = textOf(delivery.envelope)
  return texts
}

export function poolTests(stageOf: () => Stage): void {
  describe('a pool', () => {
    test('deals each delivery to one slot, in the order of the slots, with its body', async () => {
      const crew = await Crew.gather(stageOf())
      const { bob, cat } = crew
      expect(statusesOf(await crew.stage.store(...['1', '2', '3', '4'].map((text) => crew.task(text))))).toEqual(
        Array.from({ length: 4 }, () => 'stored'),
      )
      const answer = await crew.deal([cat, bob, cat])
      expect(textsOf(answer, 3)).toEqual(['1', '2', '3'])
      if (answer.status !== 'claimed') throw new Error('it was locked')
      expect(answer.dealt.map(({ delivery }) => textOf(delivery.body!))).toEqual([
        'body of 1',
        'body of 2',
        'body of 3',
      ])
      expect(answer.dealt[0]!.delivery).toMatchObject({ sender: ANN, attempt: 1, priority: 1 })
      expect(await crew.texts([bob, cat])).toEqual(['4', null])
    })

    test('is not found as a peer', async () => {
      const { stage, pool } = await Crew.gather(stageOf())
      expect(await stage.here.findMembers(MESH, [POOL as string as PeerKey])).toEqual([])
      expect(await stage.here.findBindings(MESH, [POOL as string as PeerKey])).toEqual([])
      const members = [
        { peer: stage.bob, peerKey: BOB },
        { peer: stage.cat, peerKey: CAT },
      ]
      expect(await stage.here.findPools(MESH, [POOL])).toEqual([
        { meshId: MESH, poolId: POOL, pool, epoch: 1, members },
      ])
      expect(await stage.here.findPools(OTHER_MESH, [POOL])).toEqual([])
    })

    test('deals a delivery only to a current member with a box', async () => {
      const crew = await Crew.gather(stageOf())
      const { stage, bob, cat } = crew
      await stage.store(
        crew.task('for cat', {}, [stage.cat]),
        crew.task('for both'),
        crew.task('for bob', {}, [stage.bob]),
      )
      expect(await crew.texts([bob, bob, bob])).toEqual(['for both', 'for bob', null])
      await stage.world.setPool(MESH, POOL, { owner: stage.ann, epoch: 2, members: [BOB] })
      expect(await crew.deal([cat, bob])).toEqual({ status: 'claimed', dealt: [], strangers: [0], hasMore: false })
      await stage.world.setPool(MESH, POOL, { owner: stage.ann, epoch: 3, members: [BOB, CAT] })
      expect(await crew.texts([bob, cat])).toEqual([null, 'for cat'])
    })

    test('deals urgent deliveries first, and none below the priorities that a slot accepts', async () => {
      const crew = await Crew.gather(stageOf())
      const { bob, cat } = crew
      await crew.stage.store(
        crew.task('later'),
        crew.task('now', { priority: 0 }),
        crew.task('now too', { priority: 0 }),
      )
      expect(textsOf(await crew.deal([bob], crew.stage.here, 0), 1)).toEqual(['now'])
      expect(await crew.texts([cat, cat])).toEqual(['now too', 'later'])
    })

    test('is dealt by one shard at a time', async () => {
      const crew = await Crew.gather(stageOf())
      await crew.stage.store(crew.task('1'))
      await crew.stage.world.whileLocked(MESH, crew.pool, async () => {
        expect(await crew.deal([crew.bob])).toEqual({ status: 'locked' })
      })
      expect(await crew.texts([crew.bob])).toEqual(['1'])
    })

    test('deals nothing to a session that is over, or of another shard', async () => {
      const crew = await Crew.gather(stageOf())
      const { stage, bob, cat } = crew
      await stage.store(crew.task('1'))
      crew.bob = await stage.openFor(BOB, { queue: stage.there })
      expect(await crew.texts([bob])).toEqual([null])
      expect(await crew.texts([crew.bob])).toEqual([null])
      expect(await crew.texts([cat], stage.there)).toEqual([null])
      expect(await crew.texts([crew.bob], stage.there)).toEqual(['1'])
    })
  })

  describe('the lease of a pool', () => {
    test('ends for other members when it lapses, and counts a failed attempt', async () => {
      const crew = await Crew.gather(stageOf())
      const { stage, bob, cat } = crew
      await stage.store(crew.task('1'))
      expect(await crew.texts([bob])).toEqual(['1'])
      await stage.world.advance(suiteOptions.leaseMs - 5_000)
      expect(await crew.texts([cat])).toEqual([null])
      for (let lapse = 0; lapse < suiteOptions.failedAttemptsMax; lapse++) {
        await stage.world.advance(MINUTE)
        expect(await crew.texts([cat])).toEqual(['1'])
      }
      await stage.world.advance(MINUTE)
      expect(await crew.texts([bob, cat])).toEqual([null, null])
    })

    test('ends at once when its holder releases it, without a failed attempt', async () => {
      const crew = await Crew.gather(stageOf())
      const { stage, bob, cat } = crew
      const [outcome] = await stage.store(crew.task('1'))
      for (let turn = 0; turn < 5; turn++) {
        expect(await crew.texts([bob])).toEqual(['1'])
        await stage.here.release([{ ...crew.held(outcome!, cat), isUntouched: false }])
        expect(await crew.texts([cat])).toEqual([null])
        await stage.here.release([{ ...crew.held(outcome!, bob), isUntouched: turn > 0 }])
        await stage.world.advance(MINUTE)
      }
      expect(await crew.texts([cat])).toEqual(['1'])
    })

    test('ends when its holder opens another session, but not when that session is fenced', async () => {
      const crew = await Crew.gather(stageOf())
      const { stage, bob, cat } = crew
      await stage.store(crew.task('1'))
      expect(await crew.texts([bob])).toEqual(['1'])
      const fenced = await stage.here.fence(bob)
      expect(await crew.texts([cat])).toEqual([null])
      expect(fenced).toBe(bob.epoch + 1)
      await stage.openFor(BOB, { queue: stage.there })
      expect(await crew.texts([cat])).toEqual(['1'])
    })

    test('ends when the owner removes its holder', async () => {
      const crew = await Crew.gather(stageOf())
      const { stage, bob, cat } = crew
      await stage.store(crew.task('1'))
      expect(await crew.texts([bob])).toEqual(['1'])
      await stage.world.setPool(MESH, POOL, { owner: stage.ann, epoch: 2, members: [CAT] })
      expect(await crew.texts([cat])).toEqual(['1'])
    })

    test('continues when its holder extends it, and only then', async () => {
      const crew = await Crew.gather(stageOf())
      const { stage, bob, cat } = crew
      const [first, second] = await stage.store(crew.task('1'), crew.task('2'))
      expect(await crew.texts([bob, cat])).toEqual(['1', '2'])
      await stage.here.extend([
        { ...crew.held(first!, bob), forMs: 2 * MINUTE },
        { ...crew.held(second!, bob), forMs: 2 * MINUTE },
      ])
      await stage.world.advance(MINUTE)
      expect(await crew.texts([bob, cat])).toEqual(['2', null])
    })
  })

  describe('a delivery of a pool', () => {
    const told = encodeTerms({ receipts: 'end', thread: NO_THREAD, hops: 0, noAutoReply: false })

    test('is settled by its holder only, and its sender gets a receipt', async () => {
      const crew = await Crew.gather(stageOf())
      const { stage, bob, cat } = crew
      const [outcome] = await stage.store(crew.task('1', { terms: told }))
      expect(await crew.texts([bob])).toEqual(['1'])
      await stage.commit([], [{ ...crew.held(outcome!, cat).delivery, receiptTo: ANN }])
      await stage.world.advance(MINUTE)
      expect(await crew.texts([cat])).toEqual(['1'])
      await stage.commit([], [crew.held(outcome!, bob).delivery])
      await stage.world.advance(MINUTE)
      expect(await crew.texts([bob])).toEqual(['1'])
      await stage.commit([], [{ ...crew.held(outcome!, bob).delivery, receiptTo: ANN }])
      await stage.world.advance(MINUTE)
      expect(await crew.texts([bob, cat])).toEqual([null, null])
      const [receipt] = await stage.take(await stage.openFor(ANN))
      expect(receipt).toMatchObject({ sender: POOL })
      expect(readMarking(receipt!.terms!)).toEqual({ kind: 'receipt', event: 'settled' })
    })

    test('is retried by its holder, and then any member may take it', async () => {
      const crew = await Crew.gather(stageOf())
      const { stage, bob, cat } = crew
      const [outcome] = await stage.store(crew.task('1'))
      expect(await crew.texts([bob])).toEqual(['1'])
      await stage.here.retry([{ ...crew.held(outcome!, cat), afterMs: 0 }])
      expect(await crew.texts([cat])).toEqual([null])
      await stage.here.retry([{ ...crew.held(outcome!, bob), afterMs: 90_000 }])
      await stage.world.advance(MINUTE)
      expect(await crew.texts([bob, cat])).toEqual([null, null])
      await stage.world.advance(MINUTE)
      expect(await crew.texts([cat])).toEqual(['1'])
    })

    test('is rejected by its holder', async () => {
      const crew = await Crew.gather(stageOf())
      const { stage, bob, cat } = crew
      const [outcome] = await stage.store(crew.task('1'))
      expect(await crew.texts([bob])).toEqual(['1'])
      await stage.here.reject([{ ...crew.held(outcome!, cat), reason: 'not mine' }])
      expect(await stage.world.deadLetters()).toEqual([])
      await stage.here.reject([{ ...crew.held(outcome!, bob), reason: 'no' }])
      expect(await stage.world.deadLetters()).toMatchObject([
        { recipient: crew.pool, reason: 'rejected', detail: 'no' },
      ])
    })

    test('is stored once when it is resent, whatever its state', async () => {
      const crew = await Crew.gather(stageOf())
      const task = crew.task('1')
      expect(statusesOf(await crew.stage.store(task))).toEqual(['stored'])
      expect(statusesOf(await crew.stage.store(task))).toEqual(['duplicate'])
      expect(await crew.texts([crew.bob, crew.cat])).toEqual(['1', null])
    })

    test('counts in the backlog of the pool with its body, also while it is delayed', async () => {
      const crew = await Crew.gather(stageOf())
      const { stage, pool } = crew
      const now = crew.task('1')
      const { enqueuedAtMs } = await stage.commit([now])
      await stage.store(crew.task('2', { notBeforeMs: enqueuedAtMs + MINUTE, ttlSeconds: 7200 }))
      const bytes = now.envelope.length + now.body!.bytes.length
      expect(await stage.here.measure([{ meshId: MESH, peer: pool }], 10)).toEqual([
        [{ sender: stage.ann, count: 2, bytes: 2 * bytes }],
      ])
    })

    test('that is delayed is dealt when it is due, with its body', async () => {
      const crew = await Crew.gather(stageOf())
      const { stage, bob } = crew
      const [now] = await stage.store(crew.task('at once'))
      expect(now!.status).toBe('stored')
      const { enqueuedAtMs } = await stage.commit([crew.task('clock')])
      expect(statusesOf(await stage.store(crew.task('later', { notBeforeMs: enqueuedAtMs + 20 * MINUTE })))).toEqual([
        'stored',
      ])
      expect(await crew.texts([bob, bob, bob])).toEqual(['at once', 'clock', null])
      await stage.world.advance(15 * MINUTE)
      await stage.here.sweep()
      expect((await stage.here.releaseDue()).recipients).toEqual([])
      await stage.world.advance(10 * MINUTE)
      expect((await stage.here.releaseDue()).recipients).toEqual([{ meshId: MESH, peer: crew.pool }])
      const answer = await crew.deal([crew.cat])
      if (answer.status !== 'claimed') throw new Error('it was locked')
      const found = answer.dealt.map(({ delivery }) => textOf(delivery.body!))
      expect(found.length).toBe(1)
      await stage.commit([], [])
    })
  })
}
