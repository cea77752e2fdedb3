import { encodeFields, type FrameOf } from '@sealpost/protocol'

type PushItem = FrameOf<'push'>['deliveries'][number]
type Terms = FrameOf<'pushWith'>['deliveries'][number]['terms']

/** A delivery; `terms`: if its sender set any; `body`: for a broadcast, which always has terms. */
export interface PolledDelivery {
  readonly push: PushItem
  readonly terms: Terms | null
  readonly body?: Uint8Array
}
export type ReceiptItem = FrameOf<'receipts'>['items'][number]
export type LostItem = FrameOf<'recovered'>['lost'][number]

export interface PollResult {
  readonly deliveries: readonly PolledDelivery[]
  readonly receipts: readonly ReceiptItem[]
  /** The deliveries that left the queue unsettled while the peer was away. Reported once. */
  readonly lost: readonly LostItem[]
}

export const EMPTY_RESULT: PollResult = { deliveries: [], receipts: [], lost: [] }

export const isEmpty = ({ deliveries, receipts, lost }: PollResult): boolean =>
  deliveries.length + receipts.length + lost.length === 0

export function pollResultJson({ deliveries, receipts, lost }: PollResult) {
  return {
    deliveries: deliveries.map(handedJson),
    receipts: receipts.length > 0 ? encodeFields({ type: 'receipts', items: [...receipts] }).items : [],
    lost: encodeFields({ type: 'recovered', lost: [...lost], isAll: true }).lost,
  }
}

function handedJson({ push, terms, body }: PolledDelivery): Record<string, unknown> {
  if (!terms) return encodeFields({ type: 'push', deliveries: [push] }).deliveries[0]!
  if (!body) {
    const [item] = encodeFields({ type: 'pushWith', deliveries: [{ push, terms }] }).deliveries
    return { ...item!.push, terms: item!.terms }
  }
  const [item] = encodeFields({ type: 'pushBody', deliveries: [{ push, terms, body }] }).deliveries
  return { ...item!.push, terms: item!.terms, body: item!.body }
}
