/**
 * Persons: the devices they vouch for, and the identity keys they turn to. Signatures are checked here, in turn with those
 * of newcomers; what stands is decided by one statement each (`packages/db/src/devices.ts`, `successions.ts`).
 */
import type { Asker, Enrolment, PersonRecords, RemovalAnswer, SuccessionAnswer } from '@sealpost/core'
import {
  type AskedPerson,
  BOX_EPOCH_MAX,
  type Database,
  enrolDevice,
  findPersons,
  findSuccessors,
  removeDevice,
  succeedIdentity,
} from '@sealpost/db'
import {
  checkKeyBinding,
  type DeviceStatement,
  type KeyBinding,
  readDevice,
  readRemoval,
  readSuccession,
  type SigningKeys,
  signAsBroker,
  verifyEnrolment,
} from '@sealpost/identity'
import { DEVICES_MAX, type FrameOf, type Member } from '@sealpost/protocol'
import { Gathered, type Queue } from '@sealpost/queue'
import { isChosenName, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { type Authenticator, transcriptOf } from './authenticator.ts'
import type { Cells } from './cells.ts'

interface CheckedDevice {
  readonly claim: DeviceStatement
  readonly binding: KeyBinding
  readonly proof: Uint8Array
}

/** So that one statement stays short. */
const ASKED_MAX = 256

interface FoundMembers {
  readonly members: Member[]
  readonly successors: ReadonlyMap<PeerKey, PeerKey>
}

export class PersonRegistrar {
  private readonly db: Database
  private readonly queue: Queue
  private readonly authenticator: Authenticator
  private readonly keys: SigningKeys
  private readonly cells: Cells
  private readonly membersMax: number
  private readonly records: Gathered<AskedPerson, PersonRecords>

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
    this.records = new Gathered(
      (asked) => findPersons(db, asked),
      ASKED_MAX,
      ({ meshId, peerKey }) => meshId + peerKey,
    )
  }

  /** `null`: too many wait. @throws OperatingError */
  async enrolDevice(
    authority: string,
    hello: FrameOf<'hello'>,
    enrol: FrameOf<'enrolDevice'>,
  ): Promise<Enrolment | null> {
    const checked = await this.authenticator.inTurn(() => this.checkDevice(authority, hello, enrol))
    if (checked === null) return null
    if (checked === 'invite_refused') return { status: checked }
    const { claim, binding, proof } = checked
    if (!isChosenName(claim.label)) return { status: 'name_malformed' }
    const { membersMax } = this
    const terms = { ...claim, statement: claim.bytes }
    const outcome = await enrolDevice(this.db, terms, binding, { devicesMax: DEVICES_MAX, membersMax })
    const { meshId, person, bytes } = claim
    if (outcome.status === 'invite_refused') return this.cells.sendOn(meshId, proof)
    if (outcome.status !== 'enrolled') return outcome
    return { ...outcome, proof, device: { meshId, person, statement: bytes } }
  }

  /** Members by their keys, and by keys that others have followed. @throws OperatingError */
  async findMembers(meshId: MeshId, keys: readonly PeerKey[]): Promise<FoundMembers> {
    const members = await this.queue.findMembers(meshId, keys)
    const known = new Set(members.map(({ peerKey }) => peerKey))
    const unknown = keys.filter((key) => !known.has(key))
    const successors = await findSuccessors(this.db, meshId, unknown)
    const others = new Set([...successors.values()].filter((key) => !known.has(key)))
    if (others.size === 0) return { members, successors }
    return { members: [...members, ...(await this.queue.findMembers(meshId, [...others]))], successors }
  }

  /** Of all the persons together. @throws OperatingError */
  async find(meshId: MeshId, keys: readonly PeerKey[]): Promise<PersonRecords> {
    const all = await Promise.all(keys.map((peerKey) => this.records.ask({ meshId, peerKey })))
    const each = (kind: keyof PersonRecords) => distinct(all.flatMap((records) => records[kind]))
    return { statements: each('statements'), removals: each('removals'), successions: each('successions') }
  }

  /** `null`: too many wait. @throws OperatingError */
  async remove(asker: Asker, { removal }: FrameOf<'removeDevice'>): Promise<RemovalAnswer | null> {
    const read = await this.authenticator.inTurn(() => ({ removal: readRemoval(removal) }))
    if (!read) return null
    const checked = read.removal
    if (checked?.meshId !== asker.meshId || checked.person !== asker.peerKey) return { outcome: 'malformed' }
    const removed = await removeDevice(this.db, asker, { device: checked.device, removal })
    if (!removed) return { outcome: 'unknown_device' }
    return { outcome: 'done', removal, removed: { ...removed, meshId: asker.meshId } }
  }

  /** `null`: too many wait. @throws OperatingError */
  async succeed(asker: Asker, frame: FrameOf<'succeed'>): Promise<SuccessionAnswer | null> {
    const checked = await this.authenticator.inTurn(() => checkSuccession(asker, frame))
    if (checked === null || 'outcome' in checked) return checked
    const { statement } = frame
    const outcome = await succeedIdentity(this.db, asker, { former: asker.peerKey, statement, binding: checked })
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

/** A device turns to no other key: its person vouches for another one. */
function checkSuccession(
  { meshId, peerKey, peer, person }: Asker,
  frame: FrameOf<'succeed'>,
): KeyBinding | SuccessionAnswer {
  const succession = readSuccession(frame.statement)
  if (succession?.meshId !== meshId || succession.former !== peerKey || peer !== person) return { outcome: 'malformed' }
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

/** Keys of one person have the same records. */
const distinct = (records: readonly Uint8Array[]): Uint8Array[] => [
  ...new Map(records.map((record) => [toHex(record), record])).values(),
]
