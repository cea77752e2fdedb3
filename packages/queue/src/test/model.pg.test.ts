/**
 * Runs both queues under the same random commands and compares them after each one, so that the simulator can trust the
 * memory queue. Times are multiples of ten seconds, limits lie in between, and `holdClock` stops the server's clock, so
 * that the machine's speed has no effect.
 */

import {
  ANY_ID,
  type Append,
  type Delivery,
  type DeliveryRef,
  encodeTerms,
  NO_THREAD,
  PRIORITY_MAX,
  RECEIPT_WISHES,
  type RemoteClaimed,
  type Want,
} from '@sealpost/protocol'
import type { MeshId, PeerNo } from '@sealpost/std'
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Queue, QueueOptions } from '../queue.ts'
import {
  bytesOf,
  envelopeIdOf,
  HERE,
  MESH,
  OTHER_MESH,
  peerKeyOf,
  type QueueWorld,
  THERE,
} from './conformance-world.ts'
import { type MemoryWorld, memoryWorld } from './memory-world.ts'
import { type PostgresWorlds, postgresWorlds } from './postgres-world.ts'

const RUNS = 40
/** The tolerated drift, well below the five seconds between a time and a limit. */
const DRIFT_MAX_MS = 1_000
const SEED = 20_261_121

const options: QueueOptions = {
  leaseMs: 35_000,
  dedupeMs: 605_000,
  failedAttemptsMax: 2,
  failedAttemptsSpanMs: 125_000,
  sweepRows: 3,
}

let worlds: PostgresWorlds
beforeAll(async () => {
  worlds = await postgresWorlds()
})
afterAll(() => worlds.close())

test(`the in-memory queue behaves like the Postgres queue (seed ${SEED}, ${RUNS} runs)`, async () => {
  const property = fc.asyncProperty(fc.array(command, { minLength: 20, maxLength: 60 }), async (commands) => {
    const pair = await Pair.open(worlds)
    for (const one of commands) await pair.run(one)
  })
  await fc.assert(property, { seed: SEED, numRuns: RUNS, endOnFailure: false })
})

const place = fc.nat(2)
const isHere = fc.boolean()
const epochOffset = fc.constantFrom(0, 0, 0, 0, -1, 1)
const append = fc.record({
  from: place,
  to: place,
  isOtherMesh: fc.constantFrom(false, false, false, true),
  envelope: fc.nat(12),
  text: fc.constantFrom('a', 'a', 'a', 'b'),
  priority: fc.nat(2),
  ttlSeconds: fc.constantFrom(45, 3605),
  birth: fc.constantFrom('none', 'current', 'current', 'elsewhere', 'elsewhere', 'stale'),
  /** Where the scan begins, counted back from the last stored delivery; null for the start. */
  begin: fc.option(fc.nat(4)),
  body: fc.constantFrom(null, null, null, '11', '22'),
  wish: fc.constantFrom(...RECEIPT_WISHES),
  delay: fc.constantFrom('none', 'none', 'none', 'past', 'ages'),
})
const NOT_BEFORE: Readonly<Record<string, number>> = { none: 0, past: 1, ages: 9_000_000_000_000 }
const want = fc.record({
  to: place,
  epochOffset,
  limit: fc.integer({ min: 1, max: 4 }),
  limitBytes: fc.constantFrom(1, 60, 9_999),
  priorityMax: fc.constantFrom(PRIORITY_MAX, PRIORITY_MAX, 0),
  virtualTimes: fc.tuple(fc.nat(20), fc.nat(20), fc.nat(20)),
  begin: fc.option(fc.nat(4)),
  /** The last collected delivery, counted back from the last one; null for none. */
  collected: fc.option(fc.nat(4)),
})
const command = fc.oneof(
  {
    weight: 30,
    arbitrary: fc.record({
      name: fc.constant('commit'),
      isHere,
      appends: fc.array(append, { maxLength: 4 }),
      settles: fc.array(fc.nat(8), { maxLength: 2 }),
    }),
  },
  {
    weight: 30,
    arbitrary: fc.record({
      name: fc.constant('claim'),
      isHere,
      wants: fc.uniqueArray(want, { minLength: 1, maxLength: 3, selector: ({ to }) => to }),
    }),
  },
  { weight: 10, arbitrary: fc.record({ name: fc.constant('collect'), isHere, want }) },
  { weight: 15, arbitrary: fc.record({ name: fc.constant('open'), isHere, to: place, epochOffset }) },
  { weight: 10, arbitrary: fc.record({ name: fc.constant('fence'), isHere, to: place, epochOffset }) },
  {
    weight: 10,
    arbitrary: fc.record({
      name: fc.constant('retry'),
      isHere,
      delivery: fc.nat(8),
      afterMs: fc.constantFrom(0, 15_000, 1_800_000),
    }),
  },
  { weight: 5, arbitrary: fc.record({ name: fc.constant('countFailedAttempt'), isHere, delivery: fc.nat(8) }) },
  { weight: 15, arbitrary: fc.record({ name: fc.constant('sweep'), isHere }) },
  {
    weight: 15,
    arbitrary: fc.record({
      name: fc.constant('advance'),
      byMs: fc.constantFrom(10_000, 20_000, 40_000, 150_000, 610_000, -350_000),
    }),
  },
  { weight: 5, arbitrary: fc.record({ name: fc.constant('find'), isHere }) },
  { weight: 6, arbitrary: fc.record({ name: fc.constant('reject'), isHere, delivery: fc.nat(4) }) },
  {
    weight: 4,
    arbitrary: fc.record({ name: fc.constant('extend'), isHere, delivery: fc.nat(4), forMs: fc.nat(70_000) }),
  },
  { weight: 4, arbitrary: fc.record({ name: fc.constant('notifyPushed'), isHere, delivery: fc.nat(4) }) },
  { weight: 5, arbitrary: fc.record({ name: fc.constant('releaseDue'), isHere }) },
  {
    weight: 5,
    arbitrary: fc.record({ name: fc.constant('release'), isHere, delivery: fc.nat(8), isUntouched: fc.boolean() }),
  },
  { weight: 4, arbitrary: fc.record({ name: fc.constant('lost'), isHere, to: place }) },
  { weight: 1, arbitrary: fc.record({ name: fc.constant('revoke'), to: place }) },
)

type AppendDraft = typeof append extends fc.Arbitrary<infer T> ? T : never
type WantDraft = typeof want extends fc.Arbitrary<infer T> ? T : never
type Command = typeof command extends fc.Arbitrary<infer T> ? T : never

const ONE: Omit<WantDraft, 'to' | 'epochOffset'> = {
  limit: 1,
  limitBytes: 1,
  priorityMax: 2,
  virtualTimes: [0, 0, 0],
  begin: null,
  collected: null,
}

interface Twin {
  readonly world: QueueWorld
  readonly here: Queue
  readonly there: Queue
}

/** The two queues, and a broker's state about them. */
class Pair {
  private readonly twins: readonly [Twin, Twin]
  private readonly peers: readonly PeerNo[]
  private readonly stranger: PeerNo
  private readonly epochs = new Map<PeerNo, number>()
  private readonly refs: DeliveryRef[] = []
  private heldAtMs = performance.now()

  private constructor(twins: readonly [Twin, Twin], members: readonly PeerNo[]) {
    this.twins = twins
    this.peers = members.slice(0, 3)
    this.stranger = members[3]!
  }

  static async open(postgres: PostgresWorlds): Promise<Pair> {
    const real = await postgres.next()
    const memory = memoryWorld()
    const members: PeerNo[] = []
    for (const meshId of [MESH, OTHER_MESH]) for (const world of [real, memory]) await world.addMesh(meshId)
    for (const n of [1, 2, 3, 4]) members.push(await addTo({ real, memory }, n === 4 ? OTHER_MESH : MESH, n))
    const twinOf = (world: QueueWorld) => ({
      world,
      here: world.queueFor(HERE, options),
      there: world.queueFor(THERE, options),
    })
    return new Pair([twinOf(memory), twinOf(real)], members)
  }

  async run(one: Command): Promise<void> {
    await this.holdClock()
    const [inMemory, inPostgres] = await this.both((twin) => this.apply(twin, one))
    expect(inMemory, JSON.stringify(one)).toEqual(inPostgres)
    this.learn(one, inMemory)
    const [letters, realLetters] = await this.both((twin) => twin.world.deadLetters())
    expect(letters).toEqual(realLetters.map((letter) => ({ ...letter })))
    expect(rowsInMemory(this.twins[0].world as MemoryWorld)).toEqual(await rowsInPostgres())
  }

  private async holdClock(): Promise<void> {
    const driftMs = performance.now() - this.heldAtMs
    if (driftMs < DRIFT_MAX_MS) return
    await this.twins[1].world.advance(-driftMs)
    this.heldAtMs += driftMs
  }

  private async both<T>(ask: (twin: Twin) => Promise<T>): Promise<[T, T]> {
    return [await ask(this.twins[0]), await ask(this.twins[1])]
  }

  private async apply(twin: Twin, one: Command): Promise<any> {
    const queue = 'isHere' in one && one.isHere ? twin.here : twin.there
    switch (one.name) {
      case 'commit': {
        const appends = one.appends.map((draft) => this.appendOf(draft))
        // If appends are uncertain, Postgres draws the block for receipts twice, so request none.
        const receiptTo = appends.length === 0 ? peerKeyOf(1) : null
        const settles = one.settles.flatMap(this.refAt).map((ref) => ({ ...ref, receiptTo }))
        return (await queue.commit({ appends, settles })).outcomes
      }
      case 'claim': {
        return plainClaims(await queue.claim(one.wants.map((draft) => this.wantOf(draft))))
      }
      case 'collect': {
        const { session, limit, limitBytes, ids } = this.wantOf(one.want)
        return plainCollects(await queue.collect([{ session, limit, limitBytes, ids }]))
      }
      case 'open':
        return queue.open(this.wantOf({ ...one, ...ONE }).session)
      case 'fence':
        return queue.fence(this.wantOf({ ...one, ...ONE }).session)
      case 'retry': {
        const { delivery, afterMs } = one
        await queue.retry(this.heldAt(delivery).map((held) => ({ ...held, afterMs })))
        return null
      }
      case 'reject':
        await queue.reject(this.heldAt(one.delivery).map((held) => ({ ...held, reason: 'no, "thanks"' })))
        return null
      case 'extend':
        await queue.extend(this.heldAt(one.delivery).map((held) => ({ ...held, forMs: one.forMs })))
        return null
      case 'notifyPushed':
        await queue.notifyPushed(this.refAt(one.delivery))
        return null
      case 'release': {
        const { delivery, isUntouched } = one
        await queue.release(this.heldAt(delivery).map((held) => ({ ...held, isUntouched })))
        return null
      }
      case 'releaseDue':
        return (await queue.releaseDue()).recipients.map(({ meshId, peer }) => `${meshId} ${peer}`).sort()
      case 'lost': {
        const lost = await queue.findLost(MESH, this.peers[one.to]!, 2)
        await queue.lostReported(
          MESH,
          this.peers[one.to]!,
          lost.map(({ id }) => id),
        )
        return lost
      }
      case 'countFailedAttempt':
        for (const ref of this.refAt(one.delivery)) await queue.countFailedAttempt(ref)
        return null
      case 'sweep':
        return queue.sweep()
      case 'advance':
        return twin.world.advance(one.byMs)
      case 'revoke':
        return twin.world.revoke(MESH, peerKeyOf(one.to + 1))
      default:
        return this.find(queue)
    }
  }

  private async find(queue: Queue): Promise<unknown> {
    const keys = [1, 2, 3, 4].map(peerKeyOf)
    const members = await queue.findMembers(MESH, keys)
    const bindings = await queue.findBindings(MESH, keys)
    return [[...members].sort((a, b) => a.peer - b.peer), bindings.map(({ peer }) => peer).sort()]
  }

  private learn(one: Command, answer: any): void {
    if ((one.name === 'open' || one.name === 'fence') && answer !== null) this.epochs.set(this.peers[one.to]!, answer)
    if (one.name !== 'commit') return
    one.appends.forEach((draft, i) => {
      const { meshId, recipient, priority } = this.appendOf(draft)
      if (answer[i].status === 'stored') this.refs.push({ meshId, recipient, priority, id: answer[i].id })
    })
  }

  private appendOf(draft: AppendDraft): Append {
    const { stranger } = this
    const recipient = draft.isOtherMesh ? stranger : this.peers[draft.to]!
    const epoch = this.epochs.get(recipient) ?? 0
    return {
      meshId: draft.isOtherMesh ? OTHER_MESH : MESH,
      sender: draft.isOtherMesh && draft.from > 0 ? stranger : this.peers[draft.from]!,
      recipient,
      envelopeId: envelopeIdOf(draft.envelope),
      priority: draft.priority,
      ttlSeconds: draft.ttlSeconds,
      envelope: bytesOf(draft.text),
      remoteLeaseEpoch: draft.birth === 'elsewhere' && draft.delay === 'none' ? epoch : 0,
      insertLeaseEpoch: draft.birth === 'current' ? epoch : draft.birth === 'stale' ? Math.max(0, epoch - 1) : 0,
      insertLeaseFloor: this.idAt(draft.begin),
      terms: encodeTerms({ receipts: draft.wish, thread: NO_THREAD, hops: 0, noAutoReply: false }),
      notBeforeMs: draft.body ? 0 : NOT_BEFORE[draft.delay]!,
      body: draft.body === null ? null : { bodyId: draft.body.repeat(32), bytes: bytesOf(draft.body) },
    }
  }

  private wantOf(draft: WantDraft): Want {
    const peer = this.peers[draft.to]!
    const epoch = (this.epochs.get(peer) ?? 0) + draft.epochOffset
    const { begin, collected, to: _, epochOffset: __, ...rest } = draft
    return {
      session: { meshId: MESH, peer, epoch },
      ...rest,
      collected: collected === null ? [] : [this.idAt(collected)],
      ids: { ...ANY_ID, from: this.idAt(begin) },
    }
  }

  private idAt(begin: number | null): number {
    return (begin !== null && this.refAt(begin)[0]?.id) || 0
  }

  private heldAt(n: number): { delivery: DeliveryRef; epoch: number }[] {
    return this.refAt(n).map((delivery) => ({ delivery, epoch: this.epochs.get(delivery.recipient) ?? 0 }))
  }

  private refAt = (n: number): DeliveryRef[] => this.refs.slice(-1 - n).slice(0, 1)
}

async function addTo(to: { real: QueueWorld; memory: MemoryWorld }, meshId: MeshId, n: number): Promise<PeerNo> {
  const peer = await to.real.addMember(meshId, peerKeyOf(n))
  to.memory.addNumbered(meshId, peerKeyOf(n), peer)
  return peer
}

function plainClaims(answers: Awaited<ReturnType<Queue['claim']>>): unknown {
  return answers.map((claimed) => (claimed.status === 'claimed' ? claimed.deliveries.map(plain) : claimed.status))
}

function plainCollects(answers: readonly RemoteClaimed[]): unknown {
  return answers.map((answer) =>
    answer.status === 'collected' ? [answer.hasMore, answer.deliveries.map(plain)] : answer.status,
  )
}

function plain({ enqueuedAtMs, envelope, terms, body, ...rest }: Delivery): unknown {
  return { ...rest, envelope: envelope.join(), terms: terms?.join(), body: body?.join() }
}

interface RowFacts {
  meshId: MeshId
  recipient: PeerNo
  priority: number
  id: number
  attempts: number
  failedAttempts: number
  leaseEpoch: number | null
  hasFailed: boolean
}

function rowsInMemory({ store }: MemoryWorld): RowFacts[] {
  return [...store.deliveries()].map(
    ({ meshId, recipient, priority, id, attempts, failedAttempts, lease, firstFailedAttemptAtMs }) => ({
      ...{ meshId, recipient, priority, id, attempts, failedAttempts },
      leaseEpoch: lease?.epoch ?? null,
      hasFailed: firstFailedAttemptAtMs !== null,
    }),
  )
}

async function rowsInPostgres(): Promise<RowFacts[]> {
  const rows = await worlds.admin.run((sql) =>
    sql.unsafe<RowFacts[]>(
      `select replace(mesh_id::text, '-', '') as "meshId", recipient, priority, id, attempts, strikes as "failedAttempts",
         lease_epoch as "leaseEpoch", first_strike_at is not null as "hasFailed"
       from message_queue order by mesh_id, recipient, priority, id`,
      [],
      { prepare: true },
    ),
  )
  return rows.map((row) => ({ ...row }))
}
