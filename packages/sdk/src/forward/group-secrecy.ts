/**
 * Seals messages to groups under sender keys (docs/adr/0025-sender-keys.md): the ratchets of the members distribute one
 * chain, instead of sealing each message.
 */
import type { Correspondent, EnvelopeDraft, SealedBody, SealedEnvelope } from '@sealpost/identity'
import type { RatchetOpening } from '@sealpost/identity/ratchet'
import {
  markSenderKeyEnvelope,
  ReceivedSenderKeys,
  type SenderKeyMessage,
  type SenderKeyPlace,
  SenderKeys,
  senderKeyBox,
} from '@sealpost/identity/sender-keys'
import { PRIORITIES } from '@sealpost/protocol'
import { type EnvelopeId, type GroupId, type MeshId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import type { DeliveryReceipt } from '../inbox/inbox.ts'
import type { OpenVerdict } from '../inbox/message.ts'
import type { BodyAudience, CryptoPort, IncomingEnvelope } from '../ports.ts'
import type { StoreRecord } from '../stores/records.ts'
import type { StoreWriter } from '../stores/store.ts'
import type { RatchetLane } from './ratchet-lanes.ts'

export interface GroupSecrecyPorts {
  readonly meshId: MeshId
  readonly now: () => Millis
  readonly writer: StoreWriter
  readonly plain: Pick<CryptoPort, 'seal' | 'open'>
  readonly sealBody: (body: Uint8Array) => SealedBody
  /** Seals with the ratchet of the lane. Null if it has no session. */
  readonly distribute: (lane: RatchetLane, text: Uint8Array) => Uint8Array | null
}

/** The chains of one sender, for a group and a priority. */
interface ReceivedKeys {
  readonly sender: PeerKey
  readonly group: GroupId
  readonly lane: number
  readonly keys: ReceivedSenderKeys
}

/** Names an opened message for `end`. */
export interface GroupPlace {
  readonly received: ReceivedKeys
  readonly place: SenderKeyPlace
}

/** A message with recipients whose envelopes are not sealed. */
interface Unsealed {
  readonly message: SenderKeyMessage
  readonly keys: SenderKeys
  readonly waiting: Set<PeerKey>
}

interface SentTicket {
  readonly peer: PeerKey
  readonly chainId: string
  readonly keys: SenderKeys
}

const TICKET_BYTES = 64
const BODY_ID_AT = 32
/** The messages and tickets that are remembered. Without them, a recipient gets the key of the message from its ratchet. */
const REMEMBERED_MAX = 4_096

export class GroupSecrecy {
  readonly #ports: GroupSecrecyPorts
  readonly #sending = new Map<string, SenderKeys>()
  readonly #unsealed = new Map<string, Unsealed>()
  readonly #sent = new Map<EnvelopeId, SentTicket>()
  readonly #received = new Map<string, ReceivedKeys>()

  constructor(ports: GroupSecrecyPorts, records: readonly StoreRecord[]) {
    this.#ports = ports
    for (const record of records) {
      if (record.kind !== 'senderKeys') continue
      const { sender, group, lane, bytes } = record
      const keys = ReceivedSenderKeys.restore(bytes, this.#scopeOf(group, lane))
      this.#received.set(keyOf(record), { sender, group, lane, keys })
    }
  }

  /** A member that is barred counts as departed. */
  sealBody(body: Uint8Array, audience?: BodyAudience, barred?: ReadonlySet<PeerKey>): SealedBody {
    if (!audience) return this.#ports.sealBody(body)
    const { group, terms } = audience
    const to = audience.to.filter((peer) => !barred?.has(peer))
    const keys = this.#sendingTo(group.groupId, PRIORITIES.indexOf(terms.priority))
    const message = keys.seal(body, to, this.#ports.now())
    remember(this.#unsealed, message.body.bodyId, { message, keys, waiting: new Set(to) })
    return message.body
  }

  /** Seals the envelope of a member. Returns null for other messages, and without a ratchet: seal them as before. */
  seal(lane: RatchetLane, draft: EnvelopeDraft): SealedEnvelope | null {
    const { note, body, to } = draft
    if (!note?.group || note.attachment || body.length !== TICKET_BYTES) return null
    const bodyId = toHex(body.subarray(BODY_ID_AT))
    const unsealed = this.#unsealed.get(bodyId)
    if (!unsealed?.waiting.delete(to.peerKey)) return null
    const { message, keys, waiting } = unsealed
    if (waiting.size === 0) this.#unsealed.delete(bodyId)
    const ticket = message.ticketFor(to.peerKey, (text) => this.#ports.distribute(lane, text))
    if (!ticket) return null
    remember(this.#sent, draft.envelopeId, { peer: to.peerKey, chainId: message.place.chainId, keys })
    const { envelope, headerHash } = this.#ports.plain.seal({ ...draft, body: ticket })
    return { envelope: markSenderKeyEnvelope(envelope), headerHash }
  }

  /** Opens an envelope under a sender key to one with the key of its body. */
  open(
    from: Correspondent,
    arrival: IncomingEnvelope,
    openRatcheted: (bytes: Uint8Array) => RatchetOpening,
  ): { verdict: OpenVerdict; place: GroupPlace | null } {
    const opened = this.#ports.plain.open(from, { ...arrival, envelope: senderKeyBox(arrival.envelope)! })
    if (!opened.ok) return { verdict: opened, place: null }
    const received = opened.note?.group && this.#receivedFrom(arrival, opened.note.group)
    if (!received) return { verdict: { ok: false, reason: 'no_group' }, place: null }
    const ticket = received.keys.open(opened.body, openRatcheted, this.#ports.now())
    if (!ticket.ok) return { verdict: { ok: false, reason: ticket.code }, place: null }
    return { verdict: { ...opened, body: ticket.ticket }, place: { received, place: ticket.place } }
  }

  /**
   * Puts the chains of a message that ended into the current batch, without the key of one that was settled. The ratchet of
   * the lane belongs in the same batch.
   */
  end({ received, place }: GroupPlace, lane: RatchetLane, reason: string | null): void {
    if (reason === null) received.keys.settle(place)
    this.#put(received, lane)
  }

  expire(beforeMs: number, laneOf: (peer: PeerKey, no: number) => RatchetLane): void {
    for (const received of this.#received.values()) {
      received.keys.expire(beforeMs)
      this.#put(received, laneOf(received.sender, received.lane))
    }
  }

  /** The broker reports no reason of a rejection, so each begins another chain. */
  receipt({ envelopeId, event }: DeliveryReceipt): void {
    const sent = this.#sent.get(envelopeId)
    if (!sent || event === 'pushed') return
    this.#sent.delete(envelopeId)
    if (event === 'settled') sent.keys.confirm(sent.peer, sent.chainId)
    else sent.keys.refused(sent.chainId)
  }

  /** The bytes are those of this moment: later ones may contain chains whose distributions are still in the ratchet. */
  #put(received: ReceivedKeys, lane: RatchetLane): void {
    const { bytes, distributions } = received.keys.export()
    for (const place of distributions) lane.ratchet.settle(place)
    const { sender, group, lane: no } = received
    this.#ports.writer.put(keyOf(received), () => ({ kind: 'senderKeys', sender, group, lane: no, bytes }))
  }

  #sendingTo(group: GroupId, lane: number): SenderKeys {
    const key = `${group} ${lane}`
    const keys = this.#sending.get(key) ?? new SenderKeys(this.#scopeOf(group, lane))
    this.#sending.set(key, keys)
    return keys
  }

  #receivedFrom({ sender, priority }: IncomingEnvelope, group: GroupId): ReceivedKeys {
    const place = { sender, group, lane: PRIORITIES.indexOf(priority!) }
    const known = this.#received.get(keyOf(place))
    if (known) return known
    const received = { ...place, keys: new ReceivedSenderKeys(this.#scopeOf(place.group, place.lane)) }
    this.#received.set(keyOf(place), received)
    return received
  }

  #scopeOf(audience: GroupId, priority: number) {
    return { meshId: this.#ports.meshId, audience, priority }
  }
}

function remember<Key, Value>(values: Map<Key, Value>, key: Key, value: Value): void {
  values.set(key, value)
  if (values.size > REMEMBERED_MAX) values.delete(values.keys().next().value!)
}

const keyOf = ({ sender, group, lane }: Pick<ReceivedKeys, 'sender' | 'group' | 'lane'>): string =>
  `secret/senderKeys ${sender} ${group} ${lane}`
