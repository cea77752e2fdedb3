/** Plants the bug in `PLANTED` in the broker that preloads this file (`bun --preload`). */
import { Driver } from '@sealpost/driver'
import type { FrameOf, ServerFrame } from '@sealpost/protocol'
import { type CommitParts, Commits, PostgresQueue, type QueueDatabases } from '@sealpost/queue/postgres'
import type { DeliveryId } from '@sealpost/std'

type Delivery = FrameOf<'push'>['deliveries'][number]
type Twist = (deliveries: readonly Delivery[], socket: number) => Delivery[]

/** One in this number of deliveries is affected. */
const RARELY = 40
const LATE_MS = 400
const NO_ENVELOPE = '00000000-0000-0000-0000-000000000000'

let seen = 0
const isTheOne = () => ++seen % RARELY === 0

const PLANTS = {
  /** Replies first and stores later. */
  'acks before the commit': () => {
    const { commit } = Commits.prototype
    Commits.prototype.commit = async function (batch) {
      setTimeout(() => void commit.call(this, batch).catch(() => undefined), LATE_MS)
      const stored = { status: 'stored', id: 1 as DeliveryId, isLeased: false, isExpected: true } as const
      return { outcomes: batch.appends.map(() => stored), enqueuedAtMs: Date.now() }
    }
  },
  'drops a push': () => twistPushes((deliveries) => deliveries.filter(() => !isTheOne())),
  'pushes twice': () =>
    twistPushes((deliveries) => deliveries.flatMap((delivery) => (isTheOne() ? [delivery, delivery] : [delivery]))),
  'swaps recipients': () => {
    let kept: { delivery: Delivery; socket: number } | null = null
    twistPushes((deliveries, socket) => {
      const [first, ...rest] = deliveries
      if (!first || !isTheOne()) return [...deliveries]
      const other = kept
      kept = { delivery: first, socket }
      return other && other.socket !== socket ? [other.delivery, ...rest] : [...deliveries]
    })
  },
  'turns a pair round': () => {
    const held = new Map<number, Delivery>()
    twistPushes((deliveries, socket) => {
      const late = held.get(socket)
      const next = deliveries.findIndex(({ sender }) => sender === late?.sender)
      if (late && next >= 0) {
        held.delete(socket)
        return deliveries.toSpliced(next + 1, 0, late)
      }
      const [first, ...rest] = deliveries
      if (late || !first || !isTheOne()) return [...deliveries]
      held.set(socket, first)
      return rest
    })
  },
  'names another sender': () => {
    let last: Delivery['sender'] | null = null
    twistPushes((deliveries) =>
      deliveries.map((delivery) => {
        const sender = last !== null && last !== delivery.sender && isTheOne() ? last : delivery.sender
        last = delivery.sender
        return { ...delivery, sender }
      }),
    )
  },
  'spoils a body': () =>
    twistPushes((deliveries) =>
      deliveries.map((delivery) => {
        if (!isTheOne()) return delivery
        const envelope = delivery.envelope.slice()
        envelope[envelope.length - 1]! ^= 1
        return { ...delivery, envelope }
      }),
    ),
  'throws away what expired': () => {
    const { sweep } = PostgresQueue.prototype
    PostgresQueue.prototype.sweep = async function () {
      const { asking } = insideOf(this).db
      await asking.run((sql) => sql`delete from message_queue where expires_at <= clock_timestamp()`)
      return sweep.call(this)
    }
  },
  'forgets what it stored': () => {
    const { commit } = Commits.prototype
    Commits.prototype.commit = async function (batch) {
      const { writing, memory } = (this as unknown as { parts: CommitParts }).parts
      const texts = ['delete from dedupe_ledger', `update sender_mark set last_envelope_id = '${NO_ENVELOPE}'`]
      await writing.run((pipe) => pipe.run(texts.map((text) => ({ text }))))
      ;(memory.marks as unknown as { marks: Map<string, unknown> }).marks.clear()
      return commit.call(this, batch)
    }
  },
} satisfies Record<string, () => void>

export type Plant = keyof typeof PLANTS
export const PLANT_NAMES = Object.keys(PLANTS) as Plant[]

interface Inside {
  readonly db: QueueDatabases
}

const insideOf = (queue: PostgresQueue) => queue as unknown as Inside

/** Changes pushes on their way to the sockets. */
function twistPushes(twist: Twist): void {
  const { send } = Driver.prototype
  Driver.prototype.send = function (socket, frames) {
    const twisted = frames.flatMap((frame): ServerFrame[] => {
      if (frame.type !== 'push') return [frame]
      const deliveries = twist(frame.deliveries, socket)
      return deliveries.length > 0 ? [{ ...frame, deliveries }] : []
    })
    return send.call(this, socket, twisted)
  }
}

const planted = process.env.PLANTED
if (planted) PLANTS[planted as Plant]()
