/**
 * What this process has taken in, so that the application sees each message once (P8) although the broker may push it
 * again. Two memories: messages that are with the application now, by their id, and numbers seen, by stream.
 */
import type { StreamId, StreamPosition } from '@sealpost/identity'
import type { EnvelopeId, PeerKey } from '@sealpost/std'
import { addBounded, StreamMark } from './stream-mark.ts'

/**
 * `fresh`: hand it out. `duplicate`: it was settled before, settle it again. `{ running }`: the application has it now;
 * settle it when that ends. `{ gap }`: hand it out; so many are missing before it.
 */
export type Verdict<Held> =
  | 'fresh'
  | 'duplicate'
  | { readonly running: Held; readonly gap?: never }
  | { readonly gap: number; readonly running?: never }

/** Where the numbers seen are kept beyond this process. The default keeps none. */
export interface InboxStore {
  /** What a former life has settled, or undefined for a stream it knows nothing of. Asked once for each stream. */
  load(sender: PeerKey, streamId: StreamId): StreamMark | undefined
  /** From now on this one must never be handed out again. */
  settled(sender: PeerKey, stream: StreamPosition): void
}

export const memoryStore: InboxStore = { load: () => undefined, settled: () => undefined }

/** A sender begins three streams whenever it starts. */
const STREAMS_MAX = 64
const LOOSE_MAX = 1_024

interface Sender<Held> {
  readonly streams: Map<StreamId, StreamMark>
  readonly running: Map<EnvelopeId, Held>
  /** Ids of messages that stand in no stream. */
  readonly loose: Set<EnvelopeId>
}

export interface ArrivedMessage {
  readonly sender: PeerKey
  readonly envelopeId: EnvelopeId
  readonly stream: StreamPosition | null
}

export class Inbox<Held extends ArrivedMessage> {
  private readonly senders = new Map<PeerKey, Sender<Held>>()
  private readonly store: InboxStore

  constructor(store: InboxStore = memoryStore) {
    this.store = store
  }

  /** `held` is what stands for the message while the application has it. */
  receive(held: Held): Verdict<Held> {
    const { sender: key, envelopeId, stream } = held
    const sender = this.senderOf(key)
    const running = sender.running.get(envelopeId)
    if (running) return { running }
    const missing = stream ? this.markOf(key, sender, stream.streamId).note(stream.seq) : noteLoose(sender, envelopeId)
    if (missing < 0) return 'duplicate'
    sender.running.set(envelopeId, held)
    return missing === 0 ? 'fresh' : { gap: missing }
  }

  /** The application is done with it. */
  settled({ sender, envelopeId, stream }: Held): void {
    this.senderOf(sender).running.delete(envelopeId)
    if (stream) this.store.settled(sender, stream)
  }

  /** The application wants it again. */
  reopened({ sender: key, envelopeId, stream }: Held): void {
    const sender = this.senderOf(key)
    sender.running.delete(envelopeId)
    if (stream) this.markOf(key, sender, stream.streamId).reopen(stream.seq)
    else sender.loose.delete(envelopeId)
  }

  private senderOf(key: PeerKey): Sender<Held> {
    const known = this.senders.get(key)
    if (known) return known
    const sender: Sender<Held> = { streams: new Map(), running: new Map(), loose: new Set() }
    this.senders.set(key, sender)
    return sender
  }

  private markOf(key: PeerKey, { streams }: Sender<Held>, streamId: StreamId): StreamMark {
    const known = streams.get(streamId)
    if (known) return known
    const mark = this.store.load(key, streamId) ?? new StreamMark()
    streams.set(streamId, mark)
    if (streams.size > STREAMS_MAX) streams.delete(streams.keys().next().value!)
    return mark
  }
}

function noteLoose({ loose }: Sender<unknown>, envelopeId: EnvelopeId): number {
  if (loose.has(envelopeId)) return -1
  addBounded(loose, envelopeId, LOOSE_MAX)
  return 0
}
