/**
 * Handles users' devices and the rotation of identity keys. Checks signatures in the same queue as handshake
 * signatures; one SQL statement per request decides the result (`packages/store/src/members/devices.ts`,
 * `successions.ts`).
 */
import type { Enrolment, RemovalReply, Requester, SignedUserRecords, SuccessionReply } from '@sealpost/core'
import {
  checkKeyBinding,
  type DeviceStatement,
  type KeyBinding,
  readDevice,
  readIdentityRotation,
  readRemoval,
  type SigningKeys,
  signAsBroker,
  verifyEnrolment,
} from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { DEVICES_MAX, type FrameOf, type Member } from '@sealpost/protocol'
import { Batcher, type Queue } from '@sealpost/queue'
import { isChosenName, type MeshId, type PeerKey, toHex, unicodeName } from '@sealpost/std'
import {
  BOX_EPOCH_MAX,
  enrolDevice,
  findSuccessors,
  findUserRecords,
  removeDevice,
  rotateIdentity,
  type UserLookup,
} from '@sealpost/store'
import type { Cells } from '../shards/cells.ts'
import { type Authenticator, transcriptOf } from './authenticator.ts'

interface CheckedDevice {
  readonly claim: DeviceStatement
  readonly binding: KeyBinding
  readonly proof: Uint8Array
}

const ASKED_MAX = 256

interface FoundMembers {
  readonly members: Member[]
  readonly successors: ReadonlyMap<PeerKey, PeerKey>
}

export class UserService {
  private readonly db: Database
  private readonly queue: Queue
  private readonly authenticator: Authenticator
  private readonly keys: SigningKeys
  private readonly cells: Cells
  private readonly membersMax: number
  private readonly records: Batcher<UserLookup, SignedUserRecords>

  constructor(
    db: Database,
    queue: Queue,
    {
      authenticator,
      keys,
      cells,
      membersMax,
    }: { authenticator: Authenticator; keys: SigningKeys; cells: Cells; membersMax: number },
  ) {
    this.db = db
    this.queue = queue
    this.authenticator = authenticator
    this.keys = keys
    this.cells = cells
    this.membersMax = membersMax
    const keyOf = ({ meshId, peerKey }: UserLookup) => meshId + peerKey
    this.records = new Batcher((asked) => findUserRecords(db, asked), { max: ASKED_MAX, keyOf })
  }

  async enrolDevice(
    authority: string,
    hello: FrameOf<'hello'>,
    enrol: FrameOf<'enrolDevice'>,
  ): Promise<Enrolment | null> {
    const checked = await this.authenticator.inTurn(() => this.checkDevice(authority, hello, enrol))
    if (checked === null) return null
    if (checked === 'invite_refused') return { status: checked }
    const { claim, binding, proof } = checked
    if (!isChosenName(unicodeName(claim.label))) return { status: 'name_malformed' }
    const { membersMax } = this
    const terms = { ...claim, voucher: claim.user, statement: claim.bytes }
    const outcome = await enrolDevice(this.db, terms, binding, { devicesMax: DEVICES_MAX, membersMax })
    const { meshId, user: voucher, bytes: statement } = claim
    if (outcome.status === 'invite_refused') return this.cells.sendOn(meshId, proof)
    if (outcome.status !== 'enrolled') return outcome
    const { status, name, user } = outcome
    return { status, name, proof, device: { meshId, user, voucher, statement } }
  }

  /** Returns members by their current or former keys. @throws OperatingError */
  async findMembers(meshId: MeshId, keys: readonly PeerKey[]): Promise<FoundMembers> {
    const members = await this.queue.findMembers(meshId, keys)
    const known = new Set(members.map(({ peerKey }) => peerKey))
    const unknown = keys.filter((key) => !known.has(key))
    const successors = await findSuccessors(this.db, meshId, unknown)
    const others = new Set([...successors.values()].filter((key) => !known.has(key)))
    if (others.size === 0) return { members, successors }
    return { members: [...members, ...(await this.queue.findMembers(meshId, [...others]))], successors }
  }

  /** Returns the records of all these users. @throws OperatingError */
  async find(meshId: MeshId, keys: readonly PeerKey[]): Promise<SignedUserRecords> {
    const all = await Promise.all(keys.map((peerKey) => this.records.add({ meshId, peerKey })))
    const each = (kind: keyof SignedUserRecords) => distinct(all.flatMap((records) => records[kind]))
    return { statements: each('statements'), removals: each('removals'), successions: each('successions') }
  }

  async remove(requester: Requester, { removal }: FrameOf<'removeDevice'>): Promise<RemovalReply | null> {
    const read = await this.authenticator.inTurn(() => ({ removal: readRemoval(removal) }))
    if (!read) return null
    const checked = read.removal
    if (checked?.meshId !== requester.meshId || checked.user !== requester.peerKey) return { outcome: 'malformed' }
    const removed = await removeDevice(this.db, requester, { device: checked.device, removal })
    if (!removed) return { outcome: 'unknown_device' }
    const ended = removed.ended.map((peer) => ({ ...peer, meshId: requester.meshId }))
    return { outcome: 'done', removal, user: removed.user, ended }
  }

  async succeed(requester: Requester, frame: FrameOf<'succeed'>): Promise<SuccessionReply | null> {
    const checked = await this.authenticator.inTurn(() => checkSuccession(requester, frame))
    if (checked === null || 'outcome' in checked) return checked
    const { statement } = frame
    const outcome = await rotateIdentity(this.db, requester, { former: requester.peerKey, statement, binding: checked })
    if (outcome === 'done') return { outcome, successor: checked.peerKey, statement }
    return { outcome: outcome === 'stale' ? 'bad_binding' : outcome }
  }

  private checkDevice(
    authority: string,
    hello: FrameOf<'hello'>,
    enrol: FrameOf<'enrolDevice'>,
  ): CheckedDevice | 'invite_refused' {
    const claim = readDevice(enrol.statement)
    if (!claim) return 'invite_refused'
    const { meshId, device: peerKey, label: name } = claim
    const transcript = transcriptOf(authority, hello, { ...enrol, meshId, peerKey, capabilities: [] })
    const { statement: invite, bindingSignature } = enrol
    if (!verifyEnrolment(transcript, { invite, name, bindingSignature }, enrol.signature)) return 'invite_refused'
    const binding = bindingOf(enrol, { meshId, peerKey })
    if (checkKeyBinding(binding, { meshId, peerKey, nowMs: Date.now() }) !== 'ok') return 'invite_refused'
    return { claim, binding, proof: signAsBroker(this.keys, transcript, enrol.signature) }
  }
}

/** Refuses to rotate a device's identity key. */
function checkSuccession(
  { meshId, peerKey, peer, user }: Requester,
  frame: FrameOf<'succeed'>,
): KeyBinding | SuccessionReply {
  const succession = readIdentityRotation(frame.statement)
  if (succession?.meshId !== meshId || succession.former !== peerKey || peer !== user) return { outcome: 'malformed' }
  const { successor } = succession
  const binding = bindingOf(frame, { meshId, peerKey: successor })
  const verdict = checkKeyBinding(binding, { meshId, peerKey: successor, nowMs: Date.now() })
  return verdict === 'ok' && binding.boxEpoch <= BOX_EPOCH_MAX ? binding : { outcome: 'bad_binding' }
}

function bindingOf(
  { boxKey, boxEpoch, bindingNotAfterMs, bindingSignature }: FrameOf<'enrolDevice'> | FrameOf<'succeed'>,
  whose: Pick<KeyBinding, 'meshId' | 'peerKey'>,
): KeyBinding {
  return { ...whose, boxKey, boxEpoch, notAfterMs: bindingNotAfterMs, signature: bindingSignature }
}

/** Removes duplicates, because all keys of a user lead to the same records. */
const distinct = (records: readonly Uint8Array[]): Uint8Array[] => [
  ...new Map(records.map((record) => [toHex(record), record])).values(),
]
