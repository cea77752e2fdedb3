/**
 * Runs the statements for a connecting peer: membership, session and lost deliveries. Concurrent requests share
 * statements: with one each, 2,000 peers that reconnected to a busy machine timed out.
 */
import { arrayLiteral, byteaText, type Database, runPrepared } from '@sealpost/pg'
import {
  BINDING_DUE_MS,
  type Consent,
  type ConsentPolicy,
  type KeyBindingEntry,
  type Lineage,
  type Lost,
  type Member,
  OPEN as OPEN_TO_ALL,
  type SessionRef,
  type SessionStatus,
} from '@sealpost/protocol'
import {
  type DeliveryId,
  type EnvelopeId,
  type MeshId,
  type PeerKey,
  type PeerNo,
  type ShardId,
  toHex,
} from '@sealpost/std'
import { Batcher } from '../batcher.ts'
import { CHECK_SESSIONS, FIND_LOST, FIND_MEMBERS, OPEN, OPEN_MANY } from '../sql/sql.ts'
import { arrayOf } from './binary.ts'
import type { DatabaseClock, DeliveryIds, SenderMarks } from './shard-memory.ts'

/** The maximum number of items in a statement, which keeps its locks short. */
const ASKED_MAX = 256

interface Memory {
  readonly marks: SenderMarks
  readonly ids: DeliveryIds
  readonly clock: DatabaseClock
}

interface MemberLookup {
  readonly meshId: MeshId
  readonly peerKey: PeerKey
}

const keyOf = ({ meshId, peerKey }: MemberLookup): string => meshId + peerKey

interface LostOf {
  readonly meshId: MeshId
  readonly peer: PeerNo
  readonly max: number
}

export class SessionOpener {
  private readonly db: Database
  private readonly shard: ShardId
  private readonly memory: Memory
  private readonly members = new Batcher((sought: readonly MemberLookup[]) => this.rowsOf(sought), {
    max: ASKED_MAX,
    keyOf,
  })
  private readonly openings = new Batcher((read: readonly SessionRef[]) => this.openMany(read), { max: ASKED_MAX })
  private readonly checks = new Batcher((sessions: readonly SessionRef[]) => this.statusesOf(sessions), {
    max: ASKED_MAX,
  })
  private readonly lostLookups = new Batcher((asked: readonly LostOf[]) => this.lostOf(asked), { max: ASKED_MAX })

  constructor(db: Database, shard: ShardId, memory: Memory) {
    this.db = db
    this.shard = shard
    this.memory = memory
  }

  async findMembers(meshId: MeshId, peers: readonly PeerKey[]): Promise<Member[]> {
    return (await this.memberRows(meshId, peers)).map((row) => memberOf(meshId, row))
  }

  async findBindings(meshId: MeshId, peers: readonly PeerKey[]): Promise<KeyBindingEntry[]> {
    return (await this.memberRows(meshId, peers)).filter((row) => !row.is_revoked).map(bindingOf)
  }

  /** Opens a session. Waits for a locked row in a separate statement, so that no other session waits. */
  async open(session: SessionRef): Promise<number | null> {
    return (await this.openings.add(session)) ?? (await this.openAlone(session))
  }

  checkSessions(sessions: readonly SessionRef[]): Promise<SessionStatus[]> {
    return Promise.all(sessions.map((session) => this.checks.add(session)))
  }

  findLost(meshId: MeshId, peer: PeerNo, max: number): Promise<Lost[]> {
    return this.lostLookups.add({ meshId, peer, max })
  }

  private async memberRows(meshId: MeshId, peers: readonly PeerKey[]): Promise<MemberRow[]> {
    const rows = await Promise.all(peers.map((peerKey) => this.members.add({ meshId, peerKey })))
    return rows.filter((row) => row !== null)
  }

  private async rowsOf(sought: readonly MemberLookup[]): Promise<(MemberRow | null)[]> {
    const peerKeys = arrayLiteral(sought.map(({ peerKey }) => byteaText(peerKey)))
    const rows = await runPrepared<MemberRow>(
      this.db,
      FIND_MEMBERS.bind({ meshes: arrayOf(sought.map(({ meshId }) => meshId)), peerKeys }),
    )
    const found = sought.map((): MemberRow | null => null)
    for (const row of rows) found[row.n - 1] = row
    return found
  }

  private async statusesOf(sessions: readonly SessionRef[]): Promise<SessionStatus[]> {
    const found: SessionStatus[] = []
    const rows = await runPrepared<SessionStatusRow>(this.db, CHECK_SESSIONS.bind(this.sessionsOf(sessions)))
    for (const row of rows) found[row.n - 1] = statusOf(row)
    return found
  }

  private async openMany(read: readonly SessionRef[]): Promise<(number | null)[]> {
    const opened = read.map((): number | null => null)
    const rows = await runPrepared<OpenRow & { n: number }>(this.db, OPEN_MANY.bind(this.sessionsOf(read)))
    for (const row of rows) opened[row.n - 1] = this.learn(read[row.n - 1]!, row)
    return opened
  }

  private async openAlone(read: SessionRef): Promise<number | null> {
    const { shard } = this
    const { meshId, peer, epoch } = read
    const [row] = await runPrepared<OpenRow>(this.db, OPEN.bind({ shard, mesh: meshId, peer, epoch }))
    return row ? this.learn(read, row) : null
  }

  private sessionsOf(sessions: readonly SessionRef[]) {
    return {
      shard: this.shard,
      meshes: arrayOf(sessions.map(({ meshId }) => meshId)),
      peers: arrayOf(sessions.map(({ peer }) => peer)),
      epochs: arrayOf(sessions.map(({ epoch }) => epoch)),
    }
  }

  private learn({ meshId, peer }: SessionRef, row: OpenRow): number {
    const { marks, ids, clock } = this.memory
    marks.note(meshId, peer, { envelopeId: row.last_envelope_id, ctid: row.mark_place })
    ids.drawn(row.block)
    clock.set(row.clock_ms)
    return row.epoch
  }

  private async lostOf(asked: readonly LostOf[]): Promise<Lost[][]> {
    const rows = await runPrepared<LostRow>(
      this.db,
      FIND_LOST.bind({
        meshes: arrayOf(asked.map(({ meshId }) => meshId)),
        peers: arrayOf(asked.map(({ peer }) => peer)),
        limits: arrayOf(asked.map(({ max }) => max)),
      }),
    )
    const lost = asked.map((): Lost[] => [])
    for (const { n, id, envelope_id, sender, reason } of rows)
      lost[n - 1]!.push({ id, envelopeId: envelope_id, sender, reason })
    return lost
  }
}

interface SessionStatusRow {
  n: number
  peer_key: Uint8Array | null
  is_revoked: boolean
  is_elsewhere: boolean | null
  is_away: boolean
}

function statusOf({ peer_key, is_revoked, is_elsewhere, is_away }: SessionStatusRow): SessionStatus {
  const standing = {
    peerKey: peer_key && keyText(peer_key),
    isRevoked: is_revoked,
    isElsewhere: is_elsewhere ?? false,
  }
  return is_away ? { ...standing, isAway: true } : standing
}

interface OpenRow {
  epoch: number
  last_envelope_id: EnvelopeId
  mark_place: string
  block: number
  clock_ms: number
}

interface LostRow {
  n: number
  id: DeliveryId
  envelope_id: EnvelopeId
  sender: PeerKey
  reason: Lost['reason']
}

interface MemberRow {
  n: number
  peer_no: PeerNo
  person: PeerNo
  peer_key: Uint8Array
  is_revoked: boolean
  session_epoch: number
  box_key: Uint8Array
  box_epoch: number
  binding_not_after_ms: number
  binding_signature: Uint8Array
  /** Two incarnations, separated by a space; null if the mesh never moved. */
  lineage: string | null
  consent_policy: ConsentPolicy
  consent_version: number
  /** Peer numbers, separated by commas. */
  consent_named: string
}

function memberOf(meshId: MeshId, row: MemberRow): Member {
  return {
    meshId,
    peer: row.peer_no,
    peerKey: keyText(row.peer_key),
    user: row.person,
    isRevoked: row.is_revoked,
    sessionEpoch: row.session_epoch,
    consent: consentOf(row),
    ...(row.lineage === null ? {} : { lineage: lineageOf(row.lineage) }),
    ...(row.binding_not_after_ms - Date.now() < BINDING_DUE_MS ? { dueBinding: bindingOf(row) } : {}),
  }
}

function bindingOf(row: MemberRow): KeyBindingEntry {
  return {
    peer: keyText(row.peer_key),
    boxKey: row.box_key,
    boxEpoch: row.box_epoch,
    notAfterMs: row.binding_not_after_ms,
    signature: row.binding_signature,
  }
}

function lineageOf(lineage: string): Lineage {
  const [incarnation, cameIn] = lineage.split(' ') as [string, string]
  return { incarnation, cameIn }
}

function consentOf({ consent_policy: policy, consent_version: version, consent_named }: MemberRow): Consent {
  if (policy === 'open' && version === 0) return OPEN_TO_ALL
  const named = consent_named === '' ? [] : consent_named.split(',').map((no) => Number(no) as PeerNo)
  return { policy, named, version }
}

const keyText = (key: Uint8Array): PeerKey => toHex(key) as PeerKey
