/** The names of peers by their numbers, cached for a minute: the worst peers of a mesh rarely change. */
import type { Database } from '@sealpost/pg'
import type { MeshId, Millis, PeerNo } from '@sealpost/std'
import { findPeers, type PeerEntry } from '@sealpost/store'

const GOOD_FOR_MS = 60_000
const KNOWN_MAX = 10_000

export class PeerNames {
  private readonly db: Database
  private readonly known = new Map<string, { entry: PeerEntry; untilMs: Millis }>()

  constructor(db: Database) {
    this.db = db
  }

  async find(meshId: MeshId, peers: readonly PeerNo[]): Promise<Map<PeerNo, PeerEntry>> {
    const nowMs = performance.now()
    const fresh = (peer: PeerNo) => (this.known.get(`${meshId}/${peer}`)?.untilMs ?? 0) > nowMs
    const unknown = peers.filter((peer) => !fresh(peer))
    if (this.known.size + unknown.length > KNOWN_MAX) this.known.clear()
    const found = unknown.length > 0 ? await findPeers(this.db, meshId, unknown) : []
    for (const entry of found) this.known.set(`${meshId}/${entry.peer}`, { entry, untilMs: nowMs + GOOD_FOR_MS })
    const entries = peers.flatMap((peer) => this.known.get(`${meshId}/${peer}`)?.entry ?? [])
    return new Map(entries.map((entry) => [entry.peer, entry]))
  }
}
