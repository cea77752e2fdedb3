/** Sends the messages of a program's peers: all at once, one per turn of the event loop, or when due. */
import { clockMs } from '@sealpost/sdk'
import type { PaceOrder } from './pacer.ts'
import { CALLS_OPEN_MAX, dueMs, holds, type Plan, type Share, senderOf, sendersOf } from './plan.ts'

/** Sends one message; resolves when it is acked or refused. */
export type SendNumbered = (number: number) => Promise<unknown>

/** Makes all calls of a peer in one turn of the event loop. */
export async function sendAtOnce(plan: Plan, share: Share, send: SendNumbered): Promise<void> {
  const senders = sendersOf(plan)
  for (let peer = share.first; peer < Math.min(share.end, senders); peer++) {
    let number = peer
    const callNext = (): void => {
      if (number >= plan.total) return
      const current = number
      number += senders
      const answered = send(current)
      if (number < plan.total) void answered.then(callNext)
    }
    for (let open = 0; open < CALLS_OPEN_MAX && number < plan.total; open++) callNext()
    await nextTurn()
  }
}

/**
 * Starts at most one send per peer and turn, and keeps at most `window` open, so that no client can combine the
 * calls of one turn. Resolves once all are answered.
 */
export async function sendOnePerTurn(
  plan: Plan,
  { share, window }: { readonly share: Share; readonly window: number },
  send: SendNumbered,
): Promise<void> {
  const senders: Promise<void>[] = []
  for (let peer = share.first; peer < Math.min(share.end, sendersOf(plan), plan.total); peer++)
    senders.push(sendAllOf(peer, { plan, window }, send))
  await Promise.all(senders)
}

function sendAllOf(peer: number, { plan, window }: { plan: Plan; window: number }, send: SendNumbered): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  let number = peer
  let open = 0
  let isScheduled = false
  const schedule = (): void => {
    if (isScheduled || number >= plan.total || open === window) return
    isScheduled = true
    setImmediate(sendNext)
  }
  const sendNext = (): void => {
    isScheduled = false
    open += 1
    send(number).then(() => {
      open -= 1
      if (number >= plan.total && open === 0) resolve()
      schedule()
    }, reject)
    number += sendersOf(plan)
    schedule()
  }
  schedule()
  return promise
}

/**
 * Runs an open loop: sends each message when due, however slow the broker is, and measures from then. Resolves when all
 * sends have been called.
 */
export function sendPaced(
  plan: Plan,
  { rate, share, atMs }: { readonly rate: number; readonly share: Share; readonly atMs: number },
  send: SendNumbered,
): Promise<void> {
  const pacer = new Worker(new URL('./pacer.ts', import.meta.url))
  let number = 0
  return new Promise((resolve, reject) => {
    pacer.onerror = ({ message }) => reject(new Error(`The pacer stopped: ${message}`))
    pacer.onmessage = () => {
      const nowMs = clockMs()
      for (; number < plan.total && atMs + dueMs(rate, number) <= nowMs; number++)
        if (holds(share, senderOf(plan, number))) void send(number)
      if (number < plan.total) return
      pacer.terminate()
      resolve()
    }
    pacer.postMessage({ atMs, rate, total: plan.total } satisfies PaceOrder)
  })
}

export const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve))
