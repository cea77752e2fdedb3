/** Defines the calls with which schedules send. The process that holds the session executes them. */
import { setTimeout as delay } from 'node:timers/promises'
import type { Enqueued, GroupId, Peer, PeerKey } from '@sealpost/sdk'
import { groupsOf } from '@sealpost/sdk/groups'
import type { Millis } from '@sealpost/std'
import type { PostParams } from '../session/bulk-calls.ts'
import type { TickStore } from './tick-store.ts'

type Tick = Pick<PostParams, 'bodyBase64' | 'attachment'> & { readonly tickMs: Millis }

export interface TickParams extends Omit<PostParams, 'bodyBase64' | 'attachment'> {
  readonly schedule: string
  /** The ticks to send, in ascending order, each with its body. */
  readonly ticks: readonly Tick[]
  readonly peers: readonly PeerKey[]
  readonly groups: readonly GroupId[]
}

export interface TickResult {
  /** The ticks that this call has sent. An earlier call that lost its reply may have sent the others. */
  readonly sent: readonly Millis[]
  /** Whether the broker has replied to all messages. Otherwise, they are in the outbox. */
  readonly isDrained: boolean
}

export interface TickCalls {
  /** Sends the messages of ticks that no earlier call has sent. A repetition sends nothing. */
  sendTicks(params: TickParams): Promise<TickResult>
  /** Returns the latest tick of each schedule. */
  lastTicks(params: null): Promise<Readonly<Record<string, Millis>>>
  forgetSchedule(schedule: string): Promise<null>
  /** Resolves when no message waits for the broker. */
  drain(params: null): Promise<null>
}

const DRAIN_EVERY_MS = 50
/** How long a tick waits for the broker before it leaves its messages in the outbox. */
const DRAIN_WITHIN_MS = 1_000

export function tickCallsOf(peer: Peer, ticks: TickStore, drainWithinMs = DRAIN_WITHIN_MS): TickCalls {
  const drain = async (signal?: AbortSignal) => {
    while (peer.pendingCount > 0 && !signal?.aborted) await delay(DRAIN_EVERY_MS)
    return peer.pendingCount === 0
  }
  return {
    sendTicks: async ({ schedule, groups, ticks: due, ...post }) => {
      const found = await Promise.all(groups.map((id) => groupsOf(peer).find(id)))
      const fresh = due.filter(({ tickMs }) => !ticks.isRecorded(schedule, tickMs))
      const last = fresh.at(-1)
      const postFresh = () => fresh.flatMap((tick) => postAll(peer, found, { ...post, ...tick }))
      if (last) await record(ticks, { schedule, tickMs: last.tickMs }, postFresh)
      const isDrained = await drain(AbortSignal.timeout(drainWithinMs))
      return { sent: fresh.map(({ tickMs }) => tickMs), isDrained }
    },
    lastTicks: async () => ticks.last,
    forgetSchedule: async (schedule) => {
      ticks.forget(schedule)
      return null
    },
    drain: async () => {
      await drain()
      return null
    },
  }
}

type Posts = readonly Promise<unknown>[]

/** Records the latest tick of posts, unless all posts were refused. @throws SealpostError, the first refusal, in that case */
async function record(
  ticks: TickStore,
  { schedule, tickMs }: { readonly schedule: string; readonly tickMs: Millis },
  post: () => Posts,
): Promise<void> {
  const undo = ticks.record(schedule, tickMs)
  const outcomes = await Promise.allSettled(post())
  const refused = outcomes.filter((outcome) => outcome.status === 'rejected')
  if (refused.length === 0 || refused.length < outcomes.length) return
  undo()
  throw refused[0]!.reason
}

/** Posts to each recipient in one turn. Each promise resolves when its post is in the store. */
function postAll(
  peer: Peer,
  groups: readonly Awaited<ReturnType<ReturnType<typeof groupsOf>['find']>>[],
  {
    peers,
    bodyBase64,
    attachment,
    priority,
    ttlSeconds,
  }: Pick<TickParams, 'peers' | 'priority' | 'ttlSeconds'> & TickParams['ticks'][number],
): Posts {
  const body = Buffer.from(bodyBase64, 'base64')
  const options = { priority, ttlSeconds, ...(attachment !== undefined && { attachment }) }
  return [
    ...peers.map((to): Promise<Enqueued> => peer.enqueue(to, body, options)),
    ...groups.map((group) => group.send(body, options)),
  ]
}
