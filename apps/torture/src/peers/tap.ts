/**
 * Listens to a peer's wire: a WebSocket for the SDK that notes which deliveries came and which were settled. The SDK
 * hides duplicates from its application, so they can only be counted here.
 */
import { decodeClientFrame, decodeServerFrame } from '@sealpost/protocol'
import type { WebSocketConstructor } from '@sealpost/sdk'
import type { PeerKey } from '@sealpost/std'
import type { PushedItem } from '../judgement/ledger.ts'

export interface TapListener {
  pushed(session: number, items: readonly PushedItem[]): void
  settled(session: number, ids: readonly number[]): void
}

/** A sender that is none of the population. */
export const STRANGER = -1

export function tapped(listener: TapListener, numberOf: (key: PeerKey) => number | undefined): WebSocketConstructor {
  let sessions = 0

  const heard = (session: number, wire: ArrayBuffer): void => {
    const decoded = decodeServerFrame('binary', new Uint8Array(wire))
    if (!decoded.ok) return
    const { frame } = decoded
    if (frame.type !== 'push') return
    const items = frame.deliveries.map(
      ({ id, envelopeId, sender, attempt }): PushedItem => [id, envelopeId, numberOf(sender) ?? STRANGER, attempt],
    )
    listener.pushed(session, items)
  }

  class Tapped extends WebSocket {
    readonly #session: number

    constructor(url: string, protocols: string[]) {
      super(url, protocols)
      sessions += 1
      this.#session = sessions
      this.addEventListener('message', ({ data }) => heard(this.#session, data as ArrayBuffer))
    }

    override send(wire: string | Uint8Array<ArrayBuffer>): void {
      const decoded = decodeClientFrame('binary', wire)
      if (decoded.ok && decoded.frame.type === 'settle') listener.settled(this.#session, decoded.frame.ids)
      super.send(wire)
    }
  }
  return Tapped as unknown as WebSocketConstructor
}
