/** The meshes that have a session here or had one lately: which members are known, and which of them are live here. */
import { type Consent, GROUPS_MAX, type Member } from '@sealpost/protocol'
import { assert, type GroupId, type MeshId, type Millis, type PeerKey, type PeerNo } from '@sealpost/std'
import type { Effects } from '../effects.ts'
import { PoolTable } from '../pools/pool-table.ts'
import { RemotePresence } from '../presence/remote-presence.ts'
import { type Mailbox, type Owner, unknownMailbox } from '../send/mailboxes.ts'
import type { Pace } from '../send/rate.ts'
import type { LiveSession } from '../session/session.ts'
import type { RemoteSession } from '../shards/session-locations.ts'
import { type ConsentRule, ruleOf } from './consent.ts'

export interface Peer {
  readonly peer: PeerNo
  readonly peerKey: PeerKey
  /** The user whose device it is, or itself: consent is between users, and a user has one share of each quota. */
  readonly user: PeerNo
  live: LiveSession | null
  /** As another shard has said that it has one. */
  remoteSession: RemoteSession | null
  /** Of its last session here. */
  epoch: number
  /**
   * What it sent before this moment, through another shard or in a commit whose answer was lost, may have come to the
   * queue unseen: the start of its session, or its last commit that found something it did not expect.
   */
  knownSinceTick: number
  /** Whom it takes mail from; null: from everybody. */
  rule: ConsentRule | null
  consentVersion: number
  /** What waits for it, as far as this shard knows. */
  readonly mailbox: Mailbox
  /** One object for all devices of its user. */
  readonly share: Share
  /** Another shard says that its rule is another one now. */
  isStale: boolean
  /** When it was looked up is too long ago after that, unless it is live here: then it changes nothing elsewhere. */
  goodUntilMs: Millis
}

/** What a user's devices take together. */
export interface Share {
  /** Of envelopes of their sessions here that wait to be stored. */
  inFlightBytes: number
  /** How fast they give deliveries back; null until one does. */
  retries: Pace | null
}

/** How long another shard's change of a consent or a group may stay unseen here. */
const GOOD_FOR_MS = 15_000

/**
 * A mesh that everybody left is known for so long. Each request by HTTP is a session: without it every one would find all
 * mailboxes unknown, and what is sent to an unknown one passes.
 */
const IDLE_FOR_MS = 10 * 60_000

/** In the place of a peer's number: all of a mesh. */
const EVERYBODY = 0 as PeerNo

export class Mesh {
  readonly meshId: MeshId
  readonly byKey = new Map<PeerKey, Peer>()
  readonly byNo = new Map<PeerNo, Peer>()
  private readonly shares = new Map<PeerNo, Share>()
  readonly pools = new PoolTable()
  /** What waits in all of it, as far as this shard knows. */
  readonly whole: Owner = { peer: EVERYBODY, mailbox: unknownMailbox() }
  liveCount = 0
  /** When the last session left. */
  idleSinceMs: Millis = 0
  /** Of the groups that somebody here asked about, changed or wrote to: how far they have come, and when that was read. */
  private readonly groups = new Map<GroupId, { epoch: number; goodUntilMs: Millis }>()
  /** Who wants to hear of every peer's comings and goings. */
  readonly watchers = new Set<LiveSession>()
  readonly remotePresence = new RemotePresence()

  constructor(meshId: MeshId) {
    this.meshId = meshId
  }

  /** Of one that is known it takes over what was read later. */
  add(member: Member, nowMs: Millis): Peer {
    const peer = this.byKey.get(member.peerKey) ?? this.place(member)
    if (!member.consent) return peer
    peer.goodUntilMs = nowMs + GOOD_FOR_MS
    peer.isStale = false
    admitBy(peer, member.consent)
    return peer
  }

  /** A user's word is that of all its devices. */
  consented(user: PeerNo, consent: Consent): void {
    for (const peer of this.byNo.values()) if (peer.user === user) admitBy(peer, consent)
  }

  /** Whom it takes mail from is to be read anew. */
  doubtConsent(user: PeerNo): void {
    for (const peer of this.byNo.values()) if (peer.user === user) peer.isStale = true
  }

  /** Undefined for one that is to be looked up, perhaps once more. */
  find(peerKey: PeerKey, nowMs: Millis): Peer | undefined {
    const peer = this.byKey.get(peerKey)
    return peer && !peer.isStale && (peer.live || nowMs < peer.goodUntilMs) ? peer : undefined
  }

  /** 0 for a group of which nothing was seen. */
  groupEpoch(groupId: GroupId): number {
    return this.groups.get(groupId)?.epoch ?? 0
  }

  /** Whether it was read lately. */
  isGroupKnown(groupId: GroupId, nowMs: Millis): boolean {
    const seen = this.groups.get(groupId)
    return seen !== undefined && nowMs < seen.goodUntilMs
  }

  /** It is to be read anew. */
  doubtGroup(groupId: GroupId): void {
    const seen = this.groups.get(groupId)
    if (seen) seen.goodUntilMs = -Infinity
  }

  /** Answers whether it is news. */
  groupSeen(groupId: GroupId, epoch: number, nowMs: Millis): boolean {
    const before = this.groupEpoch(groupId)
    if (this.groups.size >= 2 * GROUPS_MAX) this.groups.clear() // most of them ids that are no group's
    this.groups.set(groupId, { epoch: Math.max(before, epoch), goodUntilMs: nowMs + GOOD_FOR_MS })
    return epoch > before
  }

  /** Mail to a key that another one has followed is for that one. */
  alias(former: PeerKey, successor: PeerKey): void {
    const peer = this.byKey.get(successor)
    if (peer) this.byKey.set(former, peer)
  }

  private place({ peer: no, peerKey, user }: Member): Peer {
    const share = this.shares.get(user) ?? { inFlightBytes: 0, retries: null }
    this.shares.set(user, share)
    const peer: Peer = {
      peer: no,
      peerKey,
      user,
      live: null,
      remoteSession: null,
      epoch: 0,
      knownSinceTick: Infinity,
      rule: null,
      consentVersion: -1,
      mailbox: unknownMailbox(),
      share,
      isStale: false,
      goodUntilMs: -Infinity,
    }
    this.byKey.set(peerKey, peer)
    this.byNo.set(no, peer)
    return peer
  }

  /** The database no longer has it as a recipient; ask again next time. */
  forget(peer: Peer): void {
    if (peer.live) return
    for (const [key, known] of this.byKey) if (known === peer) this.byKey.delete(key)
    this.byNo.delete(peer.peer)
  }
}

/** Answers of the database overtake one another: the newest consent stays. */
function admitBy(peer: Peer, consent: Consent): void {
  if (consent.version < peer.consentVersion) return
  peer.consentVersion = consent.version
  peer.rule = ruleOf(peer.user, consent)
}

export class MeshRegistry {
  private readonly effects: Pick<Effects, 'follow' | 'unfollow'>
  private readonly meshes = new Map<MeshId, Mesh>()
  private readonly senders = new Set<LiveSession>()

  constructor(effects: Pick<Effects, 'follow' | 'unfollow'>) {
    this.effects = effects
  }

  find(meshId: MeshId): Mesh | undefined {
    return this.meshes.get(meshId)
  }

  /** The session becomes its peer's live one; an older one must have left. */
  enter(member: Member, nowMs: Millis, session: (mesh: Mesh, peer: Peer) => LiveSession): LiveSession {
    const mesh = this.open(member.meshId, nowMs)
    const peer = mesh.add(member, nowMs)
    assert(peer.live === null, 'one live session for each peer')
    mesh.liveCount += 1
    peer.live = session(mesh, peer)
    return peer.live
  }

  /** The session sends for its peer and receives nothing; the peer may have others. */
  enterSender(member: Member, nowMs: Millis, session: (mesh: Mesh, peer: Peer) => LiveSession): LiveSession {
    const mesh = this.open(member.meshId, nowMs)
    const sender = session(mesh, mesh.add(member, nowMs))
    mesh.liveCount += 1
    this.senders.add(sender)
    return sender
  }

  has(session: LiveSession): boolean {
    return session.peer.live === session || this.senders.has(session)
  }

  leave(session: LiveSession, nowMs: Millis): void {
    if (!this.has(session)) return
    const { mesh, peer } = session
    if (!this.senders.delete(session)) {
      peer.live = null
      peer.epoch = session.epoch
    }
    mesh.liveCount -= 1
    if (mesh.liveCount === 0) mesh.idleSinceMs = nowMs
  }

  /** Call it now and then. */
  forgetIdle(nowMs: Millis): void {
    for (const { meshId, liveCount, idleSinceMs } of this.meshes.values()) {
      if (liveCount > 0 || nowMs - idleSinceMs < IDLE_FOR_MS) continue
      this.meshes.delete(meshId)
      this.effects.unfollow(meshId)
    }
  }

  all(): Iterable<Mesh> {
    return this.meshes.values()
  }

  /** Makes it known here. */
  open(meshId: MeshId, nowMs: Millis): Mesh {
    const known = this.meshes.get(meshId)
    if (known) return known
    const mesh = new Mesh(meshId)
    mesh.idleSinceMs = nowMs
    this.meshes.set(meshId, mesh)
    this.effects.follow(meshId)
    return mesh
  }
}
