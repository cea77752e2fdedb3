/**
 * Holds the prekeys of a peer: the keys that let others begin a ratchet while the peer is away. A *signed prekey* serves
 * every initiator until it is replaced; a *one-time prekey* serves one. If no one-time prekey is left, an agreement is of
 * *last resort*.
 *
 * Statement: lp(mesh id), lp(peer key), u32 id, u32 box epoch, u64 issuedAtMs, u64 notAfterMs, lp(X25519 key), lp(ML-KEM-768 key or
 * nothing), then the peer's signature over the context `sealpost-prekey/1` and these fields.
 */
import { assert, fromHex, type MeshId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import {
  concatBytes,
  context,
  FieldReader,
  isUnsigned,
  lengthPrefixed,
  readU32,
  u16,
  u32,
  u64,
} from '../byte-fields.ts'
import { type Identity, SIGNATURE_BYTES, sign, verify } from '../keys/keys.ts'
import {
  KEM_KEY_BYTES,
  KEM_SECRET_BYTES,
  KEY_BYTES,
  type KeyPair,
  kemKeyPair,
  newKeyPair,
  type RatchetCrypto,
} from './ratchet-crypto.ts'

export interface PrekeyStatement {
  readonly meshId: MeshId
  readonly peerKey: PeerKey
  /** Random, and not 0. */
  readonly id: number
  /** The epoch of the box key that an agreement with this prekey uses. */
  readonly boxEpoch: number
  /** Ascends with each prekey of the peer, so that a broker can't return to a former one. */
  readonly issuedAtMs: Millis
  readonly notAfterMs: Millis
  readonly publicKey: Uint8Array
  /** Present: agreements must use suite 2. */
  readonly kemKey: Uint8Array | null
  /** The fields and the signature, as `readPrekeyStatement` takes them. */
  readonly bytes: Uint8Array
}

/** A one-time prekey that the directory hands out once. It is not signed, as in X3DH. */
export interface OneTimePrekey {
  readonly id: number
  readonly publicKey: Uint8Array
}

/** What the directory returns for an initiator. */
export interface PrekeyBundle {
  /** The bytes of a `PrekeyStatement`. */
  readonly statement: Uint8Array
  /** Null: the directory has none left, so the agreement is of last resort. */
  readonly oneTime: OneTimePrekey | null
}

/** The prekeys that a stored session used. They must not serve another session. */
export interface SpentPrekey {
  readonly prekeyId: number
  /** 0 for a last resort. */
  readonly oneTimeId: number
  readonly sessionId: string
}

const CONTEXT = context('sealpost-prekey/1')
const FORMAT = 2
/** It has no times of one-time prekeys. */
const FORMER_FORMAT = 1
/** The time of a prekey that the directory still hands out. */
const NEVER: Millis = Number.MAX_SAFE_INTEGER

interface SecretOneTime extends KeyPair {
  /** When the secret is deleted; for one that the directory still hands out, never. */
  readonly keepUntilMs: Millis
}

interface SignedPrekey {
  readonly id: number
  readonly boxEpoch: number
  readonly keys: KeyPair
  readonly kem: KeyPair | null
  /** When the secret is deleted; for the current prekey, never. */
  keepUntilMs: Millis
  /** The sessions of last resort that used it, so that a replay starts none of them again. */
  readonly answered: Set<string>
}

/**
 * The secrets of a peer's prekeys. Mutable and synchronous. Store `export()` in the batch that stores a ratchet.
 * @example const prekeys = new Prekeys()
 * const statement = prekeys.rotate(sodiumRatchetCrypto, { identity, meshId, nowMs, notAfterMs, keepFormerMs, hasKem: true })
 */
export class Prekeys {
  readonly #signed = new Map<number, SignedPrekey>()
  readonly #oneTime = new Map<number, SecretOneTime>()
  /** The sessions that use a one-time prekey and are not stored yet. */
  readonly #inUse = new Map<number, string>()

  /** The number of one-time prekeys that no stored session has used. Publish more when it is low. */
  get oneTimeCount(): number {
    return this.#oneTime.size
  }

  /**
   * Creates the next signed prekey. The former one still serves for `keepFormerMs`, because messages that were sealed
   * with it may still wait. `notAfterMs` must allow for a peer that is away, and can't rotate, for weeks.
   */
  rotate(
    crypto: RatchetCrypto,
    terms: {
      identity: Identity
      meshId: MeshId
      nowMs: Millis
      notAfterMs: Millis
      keepFormerMs: Millis
      hasKem: boolean
    },
  ): PrekeyStatement {
    const { identity, meshId, nowMs: issuedAtMs, notAfterMs } = terms
    for (const former of this.#signed.values())
      former.keepUntilMs = Math.min(former.keepUntilMs, terms.nowMs + terms.keepFormerMs)
    const id = this.#newId(crypto)
    const keys = newKeyPair(crypto)
    const kem = terms.hasKem ? kemKeyPair(crypto) : null
    const boxEpoch = identity.box.epoch
    this.#signed.set(id, { id, boxEpoch, keys, kem, keepUntilMs: NEVER, answered: new Set() })
    const claim = { meshId, peerKey: identity.signing.publicKey, id, boxEpoch, issuedAtMs, notAfterMs }
    const fields = fieldsOf({ ...claim, publicKey: keys.publicKey, kemKey: kem?.publicKey ?? null })
    const signature = sign(identity.signing, concatBytes([CONTEXT, fields]))
    const bytes = concatBytes([fields, signature])
    return { ...claim, publicKey: keys.publicKey, kemKey: kem?.publicKey ?? null, bytes }
  }

  addOneTime(crypto: RatchetCrypto, count: number): OneTimePrekey[] {
    return Array.from({ length: count }, () => {
      const id = this.#newId(crypto)
      const keys = newKeyPair(crypto)
      this.#oneTime.set(id, { ...keys, keepUntilMs: NEVER })
      return { id, publicKey: keys.publicKey }
    })
  }

  /**
   * Call when the directory hands out only `current` from now on. The others still serve until `keepUntilMs`, because
   * messages that were sealed with them may still wait.
   */
  retireOneTime(current: readonly OneTimePrekey[], keepUntilMs: Millis): void {
    const ids = new Set(current.map(({ id }) => id))
    for (const [id, key] of [...this.#oneTime])
      if (key.keepUntilMs === NEVER && !ids.has(id)) this.#oneTime.set(id, { ...key, keepUntilMs })
  }

  /** Deletes the secrets of prekeys whose time has passed. */
  expire(nowMs: Millis): void {
    for (const [id, { keepUntilMs, secretKey }] of [...this.#oneTime]) {
      if (keepUntilMs > nowMs) continue
      secretKey.fill(0)
      this.#oneTime.delete(id)
    }
    for (const { id, keepUntilMs, keys, kem } of [...this.#signed.values()]) {
      if (keepUntilMs > nowMs) continue
      keys.secretKey.fill(0)
      kem?.secretKey.fill(0)
      this.#signed.delete(id)
    }
  }

  /** @internal */
  signedOf(id: number): Pick<SignedPrekey, 'boxEpoch' | 'keys' | 'kem'> | null {
    return this.#signed.get(id) ?? null
  }

  /** @internal */
  oneTimeKey(id: number): KeyPair | null {
    return this.#oneTime.get(id) ?? null
  }

  /** Returns whether another session uses the one-time prekey, or this session of last resort was stored before. @internal */
  isTaken({ prekeyId, oneTimeId, sessionId }: SpentPrekey): boolean {
    if (oneTimeId === 0) return this.#signed.get(prekeyId)?.answered.has(sessionId) ?? false
    return (this.#inUse.get(oneTimeId) ?? sessionId) !== sessionId
  }

  /** Reserves the one-time prekey for a session that is not stored yet. @internal */
  reserve({ oneTimeId, sessionId }: SpentPrekey): void {
    if (oneTimeId !== 0) this.#inUse.set(oneTimeId, sessionId)
  }

  /** Deletes the prekeys of sessions that the same batch stores (`spent` of `Ratchet.export`). */
  spend(spent: readonly SpentPrekey[]): void {
    for (const { prekeyId, oneTimeId, sessionId } of spent) {
      if (oneTimeId === 0) this.#signed.get(prekeyId)?.answered.add(sessionId)
      this.#oneTime.get(oneTimeId)?.secretKey.fill(0)
      this.#oneTime.delete(oneTimeId)
      this.#inUse.delete(oneTimeId)
    }
  }

  /** Returns the secrets in a versioned form. They are not encrypted. */
  export(): Uint8Array {
    const signed = [...this.#signed.values()].map(({ id, boxEpoch, keys, kem, keepUntilMs, answered }) =>
      concatBytes([
        ...[u32(id), u32(boxEpoch), u64(keepUntilMs), keys.publicKey, keys.secretKey],
        ...[u16(kem ? 1 : 0), ...(kem ? [kem.publicKey, kem.secretKey] : [])],
        ...[u32(answered.size), ...[...answered].map(fromHex)],
      ]),
    )
    const oneTime = [...this.#oneTime].map(([id, { publicKey, secretKey, keepUntilMs }]) =>
      concatBytes([u32(id), u64(keepUntilMs), publicKey, secretKey]),
    )
    const counts = [u16(FORMAT), u32(signed.length), u32(oneTime.length)]
    return concatBytes([...counts, ...signed, ...oneTime])
  }

  /** @throws AssertionFailed for bytes that `export` did not write */
  static restore(bytes: Uint8Array): Prekeys {
    const fields = new FieldReader(bytes)
    const format = fields.u16()
    assert(format === FORMAT || format === FORMER_FORMAT, 'the prekeys have a known format')
    const prekeys = new Prekeys()
    const [signedCount, oneTimeCount] = [fields.u32(), fields.u32()]
    for (let i = 0; i < signedCount; i++) {
      const signed = readSigned(fields)
      prekeys.#signed.set(signed.id, signed)
    }
    for (let i = 0; i < oneTimeCount; i++) {
      const id = fields.u32()
      const keepUntilMs = format === FORMAT ? fields.u64() : NEVER
      prekeys.#oneTime.set(id, { ...readKeyPair(fields), keepUntilMs })
    }
    assert(fields.isAtEnd, 'the prekeys are complete')
    return prekeys
  }

  /** Returns a random id, because a restored store would give the next number to a second key. */
  #newId(crypto: RatchetCrypto): number {
    for (;;) {
      const id = readU32(crypto.random(4), 0)
      if (id !== 0 && !this.#signed.has(id) && !this.#oneTime.has(id)) return id
    }
  }
}

function readSigned(fields: FieldReader): SignedPrekey {
  const [id, boxEpoch, keepUntilMs, keys] = [fields.u32(), fields.u32(), fields.u64(), readKeyPair(fields)]
  const publicKey = fields.u16() === 1 ? fields.take(KEM_KEY_BYTES).slice() : null
  const kem = publicKey && { publicKey, secretKey: fields.take(KEM_SECRET_BYTES).slice() }
  const count = fields.u32()
  const answered = new Set(Array.from({ length: count }, () => toHex(fields.take(10))))
  return { id, boxEpoch, keys, kem, keepUntilMs, answered }
}

function readKeyPair(fields: FieldReader): KeyPair {
  return { publicKey: fields.take(KEY_BYTES).slice(), secretKey: fields.take(KEY_BYTES).slice() }
}

function fieldsOf(claim: Omit<PrekeyStatement, 'bytes'>): Uint8Array {
  return concatBytes([
    lengthPrefixed(fromHex(claim.meshId)),
    lengthPrefixed(fromHex(claim.peerKey)),
    u32(claim.id),
    u32(claim.boxEpoch),
    u64(claim.issuedAtMs),
    u64(claim.notAfterMs),
    lengthPrefixed(claim.publicKey),
    lengthPrefixed(claim.kemKey ?? new Uint8Array(0)),
  ])
}

/**
 * `prekey_forged`: not a statement, or not signed by this peer for this mesh. `prekey_rolled_back`: older than one that was
 * seen before, so it may lack an ML-KEM key that the peer has published since.
 */
export type PrekeyVerdict = { readonly ok: true; readonly statement: PrekeyStatement } | PrekeyRefusal
interface PrekeyRefusal {
  readonly ok: false
  readonly code: 'prekey_forged' | 'prekey_rolled_back' | 'prekey_expired'
}

/** Checks a signed prekey from the directory. `seenMs`: the newest `issuedAtMs` of this peer so far. Never throws. */
export function readPrekeyStatement(
  bytes: Uint8Array,
  expected: { meshId: MeshId; peerKey: PeerKey; nowMs: Millis; seenMs?: Millis },
): PrekeyVerdict {
  const statement = parse(bytes)
  const isFor = statement?.meshId === expected.meshId && statement.peerKey === expected.peerKey
  const at = bytes.length - SIGNATURE_BYTES
  const isSigned = isFor && verify(expected.peerKey, concatBytes([CONTEXT, bytes.subarray(0, at)]), bytes.subarray(at))
  if (!isSigned) return { ok: false, code: 'prekey_forged' }
  if (statement.issuedAtMs < (expected.seenMs ?? 0)) return { ok: false, code: 'prekey_rolled_back' }
  return expected.nowMs > statement.notAfterMs ? { ok: false, code: 'prekey_expired' } : { ok: true, statement }
}

function parse(bytes: Uint8Array): PrekeyStatement | null {
  if (bytes.length < SIGNATURE_BYTES) return null
  const fields = new FieldReader(bytes.subarray(0, bytes.length - SIGNATURE_BYTES))
  const [meshId, peerKey] = [toHex(fields.prefixed()) as MeshId, toHex(fields.prefixed()) as PeerKey]
  const [id, boxEpoch, issuedAtMs, notAfterMs] = [fields.u32(), fields.u32(), fields.u64(), fields.u64()]
  const [publicKey, kemKey] = [fields.prefixed().slice(), fields.prefixed().slice()]
  const isWhole =
    fields.isAtEnd &&
    publicKey.length === KEY_BYTES &&
    isUnsigned(Math.max(issuedAtMs, notAfterMs), Number.MAX_SAFE_INTEGER)
  if (!isWhole || ![0, KEM_KEY_BYTES].includes(kemKey.length)) return null
  const kem = kemKey.length === 0 ? null : kemKey
  return { meshId, peerKey, id, boxEpoch, issuedAtMs, notAfterMs, publicKey, kemKey: kem, bytes: bytes.slice() }
}
