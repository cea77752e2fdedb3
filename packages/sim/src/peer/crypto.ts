/**
 * Simulates cryptography: an envelope contains the number of a send, which opening looks up. It opens under the same
 * conditions as a real one. Each mesh has one group and one pool of all its peers, without signatures.
 */
import type { GroupEntry } from '@sealpost/core'
import type { Correspondent, EnvelopeDraft, PoolStatement } from '@sealpost/identity'
import type { FrameOf, KeyBindingEntry } from '@sealpost/protocol'
import type { MemoryDatabase } from '@sealpost/queue/memory'
import type { CryptoPort, GroupCrypto, OpenVerdict } from '@sealpost/sdk/engine'
import {
  type EnvelopeId,
  fromHex,
  type GroupId,
  type MeshId,
  type Millis,
  type PeerKey,
  type PoolId,
  type Random,
  seededRandom,
} from '@sealpost/std'

const encoder = new TextEncoder()
const decoder = new TextDecoder()
const unused = (): never => {
  throw new Error('the peers of a world have no devices')
}
const NO_USERS: CryptoPort['users'] = { readDevice: unused, readRemoval: unused, readIdentityRotation: unused }

interface SealedFacts {
  readonly meshId: MeshId
  readonly from: PeerKey
  readonly draft: EnvelopeDraft
  readonly fromBox: Uint8Array
}

export interface Vault {
  readonly envelopes: SealedFacts[]
  readonly bodies: Uint8Array[]
}

const NO_SIGNATURE = new Uint8Array(64)
const ENVELOPE_BYTES = 40

interface CryptoPlace {
  readonly meshId: MeshId
  readonly peerKey: PeerKey
  readonly random: Random
  readonly ring: KeyRing
  readonly nowMs: () => Millis
}

export function vaultCrypto(vault: Vault, { meshId, peerKey, random, ring, nowMs }: CryptoPlace): CryptoPort {
  let lastId = 0
  const randomHex = (digits: number) => Array.from({ length: digits }, () => random.below(16).toString(16)).join('')
  return {
    signAuth: () => NO_SIGNATURE,
    isBrokerProof: () => true,
    checkCertificate: () => 'ok',
    checkBinding: (binding, { peer }) => (binding.peer === peer ? 'ok' : 'binding_foreign'),
    seal: (draft) => {
      const number = vault.envelopes.push({ meshId, from: peerKey, draft, fromBox: ring.current })
      const envelope = new Uint8Array(ENVELOPE_BYTES)
      new DataView(envelope.buffer).setUint32(0, number)
      return { envelope, headerHash: hashOf(envelope) }
    },
    open: (from, { envelopeId, envelope }) => {
      const facts = vault.envelopes[new DataView(envelope.buffer, envelope.byteOffset).getUint32(0) - 1]
      const opened = openFacts(facts, { meshId, to: peerKey, from, ring, envelopeId })
      return opened.ok ? { ...opened, headerHash: opened.header.stream && hashOf(envelope) } : opened
    },
    lacksBoxKey: ({ boxKey, boxEpoch }) => boxEpoch >= ring.newestEpoch && !ring.holds(boxKey),
    newNonce: () => new Uint8Array(32),
    newEnvelopeId: () => {
      lastId += 1
      const time = Math.floor(nowMs()).toString(16).padStart(12, '0')
      return `${time}7${(lastId & 0xfff).toString(16).padStart(3, '0')}${randomHex(16)}` as EnvelopeId
    },
    newStreamId: () => randomHex(32) as ReturnType<CryptoPort['newStreamId']>,
    groups: vaultGroups(vault.bodies, meshId),
    users: NO_USERS,
  }
}

function openFacts(
  facts: SealedFacts | undefined,
  outside: { meshId: MeshId; from: Correspondent; to: PeerKey; ring: KeyRing; envelopeId: EnvelopeId },
): OpenVerdict {
  if (facts?.from !== outside.from.peerKey || facts.draft.to.peerKey !== outside.to)
    return { ok: false, reason: 'does_not_open' }
  if (!isSame(facts.fromBox, outside.from.boxKey) || !outside.ring.holds(facts.draft.to.boxKey))
    return { ok: false, reason: 'does_not_open' }
  if (facts.meshId !== outside.meshId) return { ok: false, reason: 'foreign_mesh' }
  if (facts.draft.envelopeId !== outside.envelopeId) return { ok: false, reason: 'wrong_envelope_id' }
  const { stream, sentAtMs, note = null, body } = facts.draft
  return { ok: true, header: { stream: stream ?? null, sentAtMs }, headerHash: null, note, body: body.slice() }
}

const hashOf = (envelope: Uint8Array): Uint8Array => envelope.slice(0, 16)

/** Returns a distinct box key for each peer and epoch. */
export const boxKeyOf = (peerKey: PeerKey, epoch: number): Uint8Array => fromHex(peerKey).with(0, epoch)

/** The same group id in each mesh, so that code that ignores the mesh finds the wrong group. */
export const GROUP_ID = '9'.repeat(32) as GroupId

const SEALED_BYTES = 48
const TICKET_BYTES = 64

export function groupOf(meshId: MeshId, members: readonly PeerKey[]): GroupEntry {
  const group = { meshId, groupId: GROUP_ID, epoch: 1, owner: members[0], nonce: '', name: 'all', members }
  return { groupId: GROUP_ID, epoch: 1, statement: encoder.encode(JSON.stringify(group)) }
}

/** `bodies`: all bodies that were sealed for groups. */
function vaultGroups(bodies: Uint8Array[], meshId: MeshId): GroupCrypto {
  return {
    read: (bytes) => {
      const group = JSON.parse(decoder.decode(bytes))
      return group.meshId === meshId ? { ...group, bytes } : null
    },
    sealBody: (body) => {
      const number = bodies.push(body.slice())
      const numbered = (length: number) => {
        const bytes = new Uint8Array(length)
        new DataView(bytes.buffer).setUint32(0, number)
        return bytes
      }
      const bodyId = number.toString(16).padStart(64, '0')
      return { bodyId, bytes: numbered(SEALED_BYTES), ticket: numbered(TICKET_BYTES) }
    },
    openBody: (bytes, ticket) => (numberOf(bytes) === numberOf(ticket) ? bodyOf(bodies, ticket).slice() : null),
  }
}

export const bodyOf = (bodies: readonly Uint8Array[], ticket: Uint8Array): Uint8Array => bodies[numberOf(ticket) - 1]!

const numberOf = (bytes: Uint8Array): number => new DataView(bytes.buffer, bytes.byteOffset).getUint32(0)

export const textOfSends = (numbers: readonly number[]): Uint8Array => encoder.encode(numbers.join(' '))

/** Returns the send that this body contains for `to`. `others`: the recipients in the sender's order. */
export function sendOf(body: Uint8Array, others: readonly PeerKey[], to: PeerKey): number {
  const numbers = decoder.decode(body).split(' ').map(Number)
  return numbers.length === 1 ? numbers[0]! : numbers[others.indexOf(to)]!
}

export const POOL = 'f0'.repeat(32) as PoolId

export function poolStatementOf(meshId: MeshId, members: readonly PeerKey[]): Uint8Array {
  const roster = { meshId, poolId: POOL, epoch: 1, owner: members[0], nonce: '', name: 'pool', members }
  return encoder.encode(JSON.stringify(roster))
}

export const readPoolFor =
  (meshId: MeshId) =>
  (bytes: Uint8Array): PoolStatement | null => {
    const pool = JSON.parse(decoder.decode(bytes))
    return pool.meshId === meshId ? { ...pool, bytes } : null
  }

const TURNS_SALT = 0xb0cce
const TURNS_MAX = 4

export class BoxKeyTurns {
  /** Rotation times, as fractions of the fault period. */
  readonly shares: readonly number[]
  private readonly formers = new Map<string, KeyBindingEntry[]>()

  constructor(seed: number) {
    const random = seededRandom(seed ^ TURNS_SALT)
    const count = random.chance(0.5) ? 1 + random.below(TURNS_MAX) : 0
    this.shares = Array.from({ length: count }, random.next)
  }

  /** Changes the binding. The newest one applies, possibly repeatedly. */
  bind(store: MemoryDatabase, { meshId, peer }: Owner, bind: FrameOf<'bind'>): FrameOf<'bound'>['outcome'] {
    const member = store.findByKey(meshId, peer)!
    const { boxKey, boxEpoch, notAfterMs, signature } = bind
    const former = member.binding
    if (boxEpoch === former.boxEpoch && isSame(boxKey, former.boxKey)) return 'done'
    if (boxEpoch <= former.boxEpoch) return 'stale_epoch'
    this.formers.set(meshId + peer, [former, ...this.formersOf({ meshId, peer })])
    member.binding = { peer, boxKey, boxEpoch, notAfterMs, signature }
    return 'done'
  }

  formersOf({ meshId, peer }: Owner): readonly KeyBindingEntry[] {
    return this.formers.get(meshId + peer) ?? []
  }
}

interface Owner {
  readonly meshId: MeshId
  readonly peer: PeerKey
}

const isSame = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && a.every((byte, i) => byte === b[i])

export class KeyRing {
  private readonly keys: { boxKey: Uint8Array; boxEpoch: number }[] = []
  private currentEpoch = 0

  /** Accepts envelopes sealed to this key from now on. */
  add(boxKey: Uint8Array, boxEpoch: number): void {
    this.keys.push({ boxKey, boxEpoch })
  }

  /** Seals with this key from now on, unless it is older than the current one. */
  turnTo(boxEpoch: number): void {
    this.currentEpoch = Math.max(this.currentEpoch, boxEpoch)
  }

  get newestEpoch(): number {
    return this.keys.at(-1)!.boxEpoch
  }

  get current(): Uint8Array {
    return this.keys.find(({ boxEpoch }) => boxEpoch === this.currentEpoch)!.boxKey
  }

  holds(boxKey: Uint8Array): boolean {
    return this.keys.some((own) => isSame(own.boxKey, boxKey))
  }
}
