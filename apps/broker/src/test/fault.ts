/**
 * Plants a bug, for tests, in the broker that preloads this module. Envelopes with a certain time to live trigger it.
 */
import { Engine } from '@sealpost/core'
import type { ClientFrame } from '@sealpost/protocol'

export const FAULT_TTL_SECONDS = 666

const { received } = Engine.prototype
Engine.prototype.received = function (socket, frame) {
  if (sendsOf(frame).some(({ ttlSeconds }) => ttlSeconds === FAULT_TTL_SECONDS)) throw new Error('a bug')
  received.call(this, socket, frame)
}

function sendsOf(frame: ClientFrame): readonly { readonly ttlSeconds: number }[] {
  if (frame.type === 'send') return frame.envelopes
  return frame.type === 'sendWith' ? frame.envelopes.map(({ send }) => send) : []
}
