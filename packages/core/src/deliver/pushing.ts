/** The last step of a delivery: into the frames of its session. */
import { type Delivery, readMarking } from '@sealpost/protocol'
import type { PeerNo } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { LiveSession } from '../session/session.ts'
import { deliveryRef } from './delivery-refs.ts'

/** `pool`: whose delivery it is, if not the session's own. */
export function pushTo(context: Context, live: LiveSession, delivery: Delivery, pool?: PeerNo): void {
  const { counters, nowMs } = context
  if (live.credit.isInHand(delivery.id, nowMs)) return
  counters.pushed += 1
  if (delivery.attempt > 1) counters.redelivered += 1
  live.push(delivery, nowMs, pool)
  if (delivery.terms !== null) tellPushed(context, live, delivery, pool)
  context.touch(live)
}

function tellPushed(context: Context, live: LiveSession, delivery: Delivery, pool: PeerNo | undefined): void {
  const { id, priority, terms, attempt, sender } = delivery
  const marking = readMarking(terms!)
  if (marking?.kind !== 'terms' || marking.terms.receipts !== 'all' || attempt > 1 || live.declinesReceipts) return
  const { meshId, recipient } = deliveryRef(live, id, { priority, pool })
  context.pushedWithReceipt.push({ meshId, recipient, priority, id, receiptTo: sender })
}
