/** Who is online on this shard, and what they say of themselves. In memory only: nobody stores a heartbeat. */
import { type Availability, type FrameOf, PRIORITY_MAX } from '@sealpost/protocol'
import type { MeshId, PeerNo } from '@sealpost/std'
import type { Context } from './context.ts'
import { chunks, type PresenceItem } from './outgoing.ts'
import type { Peer } from './roster.ts'
import type { LiveSession } from './session.ts'

/** A member in session, as an operator sees it. */
export interface LivePeer {
  readonly peer: PeerNo
  readonly availability: Availability
  /** Pushed to it, and not settled. */
  readonly unsettled: number
  /** Its socket takes no more for now. */
  readonly isCongested: boolean
}

export class Presence {
  private readonly context: Context

  constructor(context: Context) {
    this.context = context
  }

  /** Who is in session here. */
  livePeers(meshId: MeshId): LivePeer[] {
    const peers = [...(this.context.roster.find(meshId)?.byNo.values() ?? [])]
    return peers.flatMap(({ peer, live }) =>
      live
        ? [
            {
              peer,
              availability: live.availability,
              unsettled: live.credit.unsettled.size,
              isCongested: live.credit.isCongested,
            },
          ]
        : [],
    )
  }

  /** From here on the session hears of every change in its mesh; first, of all as it is now. */
  watch(live: LiveSession, isOn: boolean): void {
    live.mesh.watchers.delete(live)
    if (!isOn) return
    live.mesh.watchers.add(live)
    if (this.context.nowMs < live.snapshotFromMs) return
    live.snapshotFromMs = this.context.nowMs + SNAPSHOT_EVERY_MS
    const online = [...live.mesh.byNo.values()].filter((peer) => peer.live).map(itemOf)
    for (const peers of chunks(online)) this.context.send(live, [{ type: 'presence', peers, isSnapshot: true }])
  }

  say(live: LiveSession, { availability, summary, declinesReceipts }: FrameOf<'status'>): void {
    const { isFree } = live
    Object.assign(live, { availability, summary, declinesReceipts })
    live.credit.priorityMax = live.isFree ? PRIORITY_MAX : 0
    if (live.isFree && !isFree) live.credit.noticeBacklog()
    this.changed(live.peer, live.mesh.watchers)
  }

  changed(peer: Peer, watchers: ReadonlySet<LiveSession>): void {
    if (watchers.size === 0) return
    const item = itemOf(peer)
    for (const watcher of watchers) {
      watcher.outgoing.presence(item)
      this.context.touch(watcher)
    }
  }
}

/** All of a large mesh at once is dear. */
const SNAPSHOT_EVERY_MS = 2_000

function itemOf({ peerKey, live }: Peer): PresenceItem {
  const { availability, summary } = live ?? { availability: 'idle', summary: '' }
  return { peer: peerKey, isOnline: live !== null, availability, summary }
}
