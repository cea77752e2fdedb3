/**
 * Sends a message once per idempotency key, even if the process dies at any moment: `@sealpost/sdk/once`. The key is
 * stored in the same write as the message, so either both are on disk or neither is.
 */
import type { Note } from '@sealpost/identity'
import { type EnvelopeId, type Millis, type PeerKey, withResolvers } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { bytesOf } from '../inbox/message.ts'
import { type Peer, portsOf } from '../peer.ts'
import type { SendKeyRecord, StoreRecord } from '../stores/records.ts'
import type { PeerStore, StoreChange } from '../stores/store.ts'
import { postTermsOf, type Receipt, type SendOptions } from './lane.ts'

/** The maximum number of keys, of which the oldest are forgotten. */
const KEYS_MAX = 10_000
/** How long a key is remembered. */
const REMEMBERED_MS: Millis = 24 * 3_600_000

export interface OnceOptions extends SendOptions {
  /** 1 to 255 characters. */
  readonly key: string
  /** Any text that identifies the request, such as a hash. A different one with the same key is refused. */
  readonly fingerprint?: string
}

export interface OnceOutcome {
  readonly outboxNo: number
  /** Whether an earlier call, perhaps of an earlier process, has stored the message. */
  readonly isRepeated: boolean
  /** Settles like `Peer.send` if this process stored the message; null after a restart. */
  readonly receipt: Promise<Receipt> | null
  /** The id of the envelope; null until the broker has stored it. */
  readonly envelopeId: EnvelopeId | null
}

/**
 * A store that also remembers idempotency keys. Pass it to `openPeer` or `connect`, and to `sendOnce`.
 * @example const store = new OnceStore(await openFileStore('peer.store'))
 */
export class OnceStore implements PeerStore {
  readonly #store: PeerStore
  readonly #now: () => Millis
  readonly #known = new Map<string, KnownKey>()
  /** The keys of messages that wait for their first write, by the note of the message. */
  readonly #expected = new WeakMap<Note, string>()
  /** Changes to keys that join the next write. */
  #changes: StoreChange[] = []

  constructor(store: PeerStore, now: () => Millis = Date.now) {
    this.#store = store
    this.#now = now
  }

  async load(): Promise<StoreRecord[]> {
    const records = await this.#store.load()
    for (const record of records)
      if (record.kind === 'sendKey') this.#known.set(record.key, { record, receipt: null, stored: null })
    return records.filter(({ kind }) => kind !== 'sendKey')
  }

  write(changes: readonly StoreChange[]): Promise<void> {
    for (const { record } of changes) if (record) this.#admit(record)
    const all = [...changes, ...this.#changes]
    this.#changes = []
    return this.#store.write(all)
  }

  close(): Promise<void> {
    return this.#store.close()
  }

  /**
   * Returns whether a message with this key was stored, so that `sendOnce` would not send it again.
   * @example if (!once.has('order-7')) console.log('not sent yet')
   */
  has(key: string): boolean {
    return this.#known.has(key)
  }

  /** @internal */
  find(key: string): KnownKey | undefined {
    return this.#known.get(key)
  }

  /** Registers a message whose record will be written. @internal */
  expect(note: Note, key: string, fingerprint: string): Expected {
    const stored = withResolvers<void>()
    const receipt = withResolvers<Receipt>()
    for (const promise of [stored.promise, receipt.promise]) promise.catch(() => undefined)
    this.#expected.set(note, key)
    const record: SendKeyRecord = {
      kind: 'sendKey',
      key,
      fingerprint,
      outboxNo: 0,
      envelopeId: null,
      atMs: this.#now(),
    }
    this.#known.set(key, { record, receipt: receipt.promise, stored: stored.promise })
    return { stored, receipt }
  }

  /** Forgets a key whose message was refused before it was stored. @internal */
  forget(key: string): void {
    this.#known.delete(key)
    this.#changes.push({ key: storeKey(key), record: null })
  }

  /** Remembers the envelope's id. It joins the next write, because a repeated call can do without it. @internal */
  sent(key: string, envelopeId: EnvelopeId): void {
    const known = this.#known.get(key)
    if (known) this.#put({ ...known, record: { ...known.record, envelopeId } })
  }

  #admit(record: StoreRecord): void {
    if (record.kind !== 'waiting' && record.kind !== 'sealed') return
    const { note } = record.terms
    const key = note && this.#expected.get(note)
    if (!note || key === undefined) return
    this.#expected.delete(note)
    const known = this.#known.get(key)!
    this.#put({ ...known, record: { ...known.record, outboxNo: record.outboxNo } })
    this.#forgetOld()
  }

  #put(known: KnownKey): void {
    const { key } = known.record
    this.#known.set(key, known)
    this.#changes.push({ key: storeKey(key), record: known.record })
  }

  #forgetOld(): void {
    const untilMs = this.#now() - REMEMBERED_MS
    for (const [key, { record }] of this.#known) {
      if (this.#known.size <= KEYS_MAX && record.atMs >= untilMs) return
      this.forget(key)
    }
  }
}

interface KnownKey {
  readonly record: SendKeyRecord
  readonly receipt: Promise<Receipt> | null
  /** Resolves when the message is on disk; null after a restart. */
  readonly stored: Promise<void> | null
}

interface Expected {
  readonly stored: ReturnType<typeof withResolvers<void>>
  readonly receipt: ReturnType<typeof withResolvers<Receipt>>
}

const storeKey = (key: string): string => `once ${key}`

/**
 * Stores a message like `Peer.enqueue`, unless a message with this key was stored within the last 24 hours. Resolves
 * when the message is on disk. `store` is the store of the peer.
 * @throws SealpostError `key_reused` if the key belongs to a different request; the errors of `Peer.enqueue`
 * @example const { isRepeated } = await sendOnce(peer, once, ben, 'paid', { key: 'order-7' })
 */
export async function sendOnce(
  peer: Peer,
  store: OnceStore,
  to: PeerKey,
  body: Uint8Array | string,
  { key, fingerprint = '', ...options }: OnceOptions,
): Promise<OnceOutcome> {
  if (key.length < 1 || key.length > 255) throw new RangeError('key must have 1 to 255 characters')
  const known = store.find(key)
  if (known) return repeated(store, known, fingerprint)
  const { note: given, ...terms } = postTermsOf(to, options)
  const note: Note = { ...given }
  const { stored, receipt } = store.expect(note, key, fingerprint)
  receipt.promise.then(
    ({ envelopeId }) => store.sent(key, envelopeId),
    () => undefined,
  )
  const refused = (error: SealpostError) => {
    stored.reject(error) // has no effect once the message is stored
    receipt.reject(error)
  }
  const post = { ...terms, note, body: bytesOf(body), accepted: receipt.resolve, refused, kept: () => stored.resolve() }
  portsOf(peer).tell((engine) => engine.enqueue(post))
  try {
    await stored.promise
  } catch (error) {
    store.forget(key)
    throw error
  }
  const { outboxNo, envelopeId } = store.find(key)!.record
  return { outboxNo, isRepeated: false, receipt: receipt.promise, envelopeId }
}

async function repeated(
  store: OnceStore,
  { record, receipt, stored }: KnownKey,
  fingerprint: string,
): Promise<OnceOutcome> {
  if (record.fingerprint !== fingerprint)
    throw new SealpostError('key_reused', 'This idempotency key belongs to a different request.')
  await stored
  const { outboxNo, envelopeId } = store.find(record.key)?.record ?? record
  return { outboxNo, isRepeated: true, receipt, envelopeId }
}
