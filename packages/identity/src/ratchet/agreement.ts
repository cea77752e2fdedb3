/**
 * Computes the first secret of a ratchet session from the keys of two peers, after X3DH
 * (https://signal.org/docs/specifications/x3dh/) and, for suite 2, PQXDH
 * (https://signal.org/docs/specifications/pqxdh/). The secret of X3DH is bound to a transcript that names the mesh, the
 * priority, both peers, and every key that was used.
 *
 * Initiation: u8 suite, u32 prekey id, u32 one-time id (0: last resort), u32 box epoch of the
 * initiator, u64 atMs, ephemeral key 32, and for suite 2 the ML-KEM-768 ciphertext of 1,088 bytes.
 */
import { fromHex, type MeshId, type Millis, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u32, u64, utf8 } from '../byte-fields.ts'
import type { Correspondent } from '../envelope/envelope.ts'
import type { BoxKeys, Identity } from '../keys/keys.ts'
import { hash256 } from '../sodium.ts'
import type { OneTimePrekey, PrekeyBundle, PrekeyStatement, Prekeys, SpentPrekey } from './prekeys.ts'
import {
  halvesOf,
  headerKeyOf,
  hkdf,
  KEM_CIPHERTEXT_BYTES,
  KEY_BYTES,
  type KeyPair,
  kemOpen,
  kemSeal,
  newKeyPair,
  type RatchetCrypto,
} from './ratchet-crypto.ts'

/** The lane pair that an agreement is for. */
export interface RatchetScope {
  readonly meshId: MeshId
  /** 0 `now`, 1 `next`, 2 `low`, as in the frames. */
  readonly priority: number
}

/** 1: X25519. 2: X25519 and ML-KEM-768. */
export type RatchetSuite = 1 | 2

export interface Agreement {
  /** 20 hex digits: `atMs` as 6 bytes, then 4 bytes of the hash of the transcript. A newer session has a higher id. */
  readonly sessionId: string
  readonly suite: RatchetSuite
  readonly isLastResort: boolean
  readonly atMs: Millis
  readonly root: Uint8Array
  readonly binding: Uint8Array
  readonly headerKey: Uint8Array
  readonly initiation: Uint8Array
  readonly spent: SpentPrekey
}

/** An agreement, with the responder's signed prekey, which is parent 0. */
export interface InitiatedAgreement extends Agreement {
  readonly parentKey: Uint8Array
}

export interface AcceptedAgreement extends Agreement {
  readonly parent: KeyPair
}

/**
 * `key_unusable`: a key has small order, or is not a key. `initiation_malformed`. `suite_refused`: the initiator left out
 * the ML-KEM key of the prekey, or named an unknown suite. `prekey_gone`: the prekey was used or deleted, or is in use
 * by another session. `box_key_unknown`: a box key of this epoch is needed.
 */
export type AgreementRefusal =
  | 'key_unusable'
  | 'initiation_malformed'
  | 'suite_refused'
  | 'prekey_gone'
  | 'box_key_unknown'

type Outcome<Value> =
  | { readonly ok: true; readonly agreement: Value }
  | { readonly ok: false; readonly code: AgreementRefusal }

const INITIATION_BYTES = 53
/** Of suite 2. */
export const INITIATION_BYTES_MAX = INITIATION_BYTES + KEM_CIPHERTEXT_BYTES
const TIME_MS_MAX = 2 ** 48 - 1
const INFO = utf8('sealpost-x3dh/1')
const CONTEXT = context('sealpost-agreement/1')
const PADDING = new Uint8Array(KEY_BYTES).fill(0xff)
const NOTHING = new Uint8Array(0)

interface Initiation {
  readonly suite: RatchetSuite
  readonly prekeyId: number
  readonly oneTimeId: number
  readonly boxEpoch: number
  readonly atMs: Millis
  readonly ephemeralKey: Uint8Array
  readonly kemText: Uint8Array
}

/** What an agreement is about, the same on both sides. */
interface Sides {
  readonly scope: RatchetScope
  readonly initiator: Correspondent
  readonly responder: Correspondent
  readonly prekey: { readonly id: number; readonly publicKey: Uint8Array; readonly kemKey: Uint8Array | null }
  readonly oneTime: OneTimePrekey | null
}

/**
 * Begins a session with a peer that may be away. Check the statement with `readPrekeyStatement` first, and take the
 * binding of its `boxEpoch`.
 */
export function initiate(
  crypto: RatchetCrypto,
  parties: { own: Identity; peer: Correspondent; scope: RatchetScope },
  bundle: { statement: PrekeyStatement; oneTime: PrekeyBundle['oneTime'] },
  atMs: Millis,
): Outcome<InitiatedAgreement> {
  const { own, peer, scope } = parties
  const { statement, oneTime } = bundle
  if (statement.boxEpoch !== peer.boxEpoch) return { ok: false, code: 'box_key_unknown' }
  const ephemeral = newKeyPair(crypto)
  const kem = statement.kemKey && kemSeal(crypto, statement.kemKey)
  if (statement.kemKey && !kem) return { ok: false, code: 'key_unusable' }
  const secret = x3dh([
    crypto.sharedSecret(own.box.secretKey, statement.publicKey),
    crypto.sharedSecret(ephemeral.secretKey, peer.boxKey),
    crypto.sharedSecret(ephemeral.secretKey, statement.publicKey),
    oneTime ? crypto.sharedSecret(ephemeral.secretKey, oneTime.publicKey) : NOTHING,
  ])
  ephemeral.secretKey.fill(0)
  if (!secret) return { ok: false, code: 'key_unusable' }
  const initiation: Initiation = {
    suite: kem ? 2 : 1,
    prekeyId: statement.id,
    oneTimeId: oneTime?.id ?? 0,
    boxEpoch: own.box.epoch,
    atMs,
    ephemeralKey: ephemeral.publicKey,
    kemText: kem?.text ?? NOTHING,
  }
  const sides = { scope, initiator: correspondentOf(own, own.box), responder: peer, prekey: statement, oneTime }
  const agreement = bind(secret, kem?.secret ?? NOTHING, initiation, sides)
  return { ok: true, agreement: { ...agreement, parentKey: statement.publicKey } }
}

/**
 * Computes the agreement of an initiation from the network. `own` are the reader's box keys and `peers` the initiator's,
 * current and former.
 */
export function accept(
  crypto: RatchetCrypto,
  parties: { own: Identity; ownBoxes: readonly BoxKeys[]; peers: readonly Correspondent[]; scope: RatchetScope },
  prekeys: Prekeys,
  bytes: Uint8Array,
): Outcome<AcceptedAgreement> {
  const initiation = readInitiation(bytes)
  if (!initiation) return { ok: false, code: 'initiation_malformed' }
  const signed = prekeys.signedOf(initiation.prekeyId)
  if (!signed) return { ok: false, code: 'prekey_gone' }
  if (initiation.suite !== (signed.kem ? 2 : 1)) return { ok: false, code: 'suite_refused' }
  const box = parties.ownBoxes.find(({ epoch }) => epoch === signed.boxEpoch)
  const peer = parties.peers.find(({ boxEpoch }) => boxEpoch === initiation.boxEpoch)
  if (!box || !peer) return { ok: false, code: 'box_key_unknown' }
  const { prekeyId, oneTimeId, ephemeralKey } = initiation
  const oneTime = oneTimeId === 0 ? null : prekeys.oneTimeKey(oneTimeId)
  if (oneTimeId !== 0 && !oneTime) return { ok: false, code: 'prekey_gone' }
  const secret = x3dh([
    crypto.sharedSecret(signed.keys.secretKey, peer.boxKey),
    crypto.sharedSecret(box.secretKey, ephemeralKey),
    crypto.sharedSecret(signed.keys.secretKey, ephemeralKey),
    oneTime ? crypto.sharedSecret(oneTime.secretKey, ephemeralKey) : NOTHING,
  ])
  if (!secret) return { ok: false, code: 'key_unusable' }
  const kemSecret = signed.kem ? kemOpen(initiation.kemText, signed.kem.secretKey) : NOTHING
  const sides: Sides = {
    scope: parties.scope,
    initiator: peer,
    responder: correspondentOf(parties.own, box),
    prekey: { id: prekeyId, publicKey: signed.keys.publicKey, kemKey: signed.kem?.publicKey ?? null },
    oneTime: oneTime && { id: oneTimeId, publicKey: oneTime.publicKey },
  }
  const agreement = bind(secret, kemSecret, initiation, sides)
  if (prekeys.isTaken(agreement.spent)) return { ok: false, code: 'prekey_gone' }
  return { ok: true, agreement: { ...agreement, parent: signed.keys } }
}

function correspondentOf({ signing }: Identity, box: BoxKeys): Correspondent {
  return { peerKey: signing.publicKey, boxKey: box.publicKey, boxEpoch: box.epoch }
}

/** Returns the secret of X3DH, section 3.3. Null if a key has small order. */
export function x3dh(secrets: readonly (Uint8Array | null)[]): Uint8Array | null {
  const whole = secrets.filter((secret) => secret !== null)
  return whole.length === secrets.length ? hkdf(concatBytes([PADDING, ...whole]), INFO) : null
}

function bind(secret: Uint8Array, kemSecret: Uint8Array, initiation: Initiation, sides: Sides): Agreement {
  const transcript = transcriptOf(initiation, sides)
  const { next: root, out: binding } = halvesOf(secret, concatBytes([CONTEXT, transcript, lengthPrefixed(kemSecret)]))
  secret.fill(0)
  kemSecret.fill(0)
  const hash = hash256(concatBytes([CONTEXT, transcript]))
  const sessionId = initiation.atMs.toString(16).padStart(12, '0') + toHex(hash.subarray(0, 4))
  const { suite, atMs, prekeyId, oneTimeId } = initiation
  return {
    ...{ sessionId, suite, atMs, root, binding },
    isLastResort: oneTimeId === 0,
    headerKey: headerKeyOf(root),
    initiation: initiationBytes(initiation),
    spent: { prekeyId, oneTimeId, sessionId },
  }
}

function transcriptOf(initiation: Initiation, { scope, initiator, responder, prekey, oneTime }: Sides): Uint8Array {
  const peer = ({ peerKey, boxKey, boxEpoch }: Correspondent) =>
    concatBytes([lengthPrefixed(fromHex(peerKey)), lengthPrefixed(boxKey), u32(boxEpoch)])
  return concatBytes([
    lengthPrefixed(fromHex(scope.meshId)),
    Uint8Array.of(scope.priority),
    peer(initiator),
    peer(responder),
    u32(prekey.id),
    lengthPrefixed(prekey.publicKey),
    lengthPrefixed(prekey.kemKey ?? NOTHING),
    lengthPrefixed(oneTime?.publicKey ?? NOTHING),
    initiationBytes(initiation),
  ])
}

function initiationBytes(initiation: Initiation): Uint8Array {
  return concatBytes([
    Uint8Array.of(initiation.suite),
    u32(initiation.prekeyId),
    u32(initiation.oneTimeId),
    u32(initiation.boxEpoch),
    u64(initiation.atMs),
    initiation.ephemeralKey,
    initiation.kemText,
  ])
}

/** Returns the length of the initiation at the start of `bytes`, or null if its suite is unknown or it is cut off. */
export function initiationLength(bytes: Uint8Array): number | null {
  if (bytes[0] !== 1 && bytes[0] !== 2) return null
  const length = bytes[0] === 2 ? INITIATION_BYTES_MAX : INITIATION_BYTES
  return bytes.length >= length ? length : null
}

/** Returns the time that a session id names, which nothing proves before a message of the session opens. */
export function sessionTime(sessionId: string): Millis {
  return Number.parseInt(sessionId.slice(0, 12), 16)
}

function readInitiation(bytes: Uint8Array): Initiation | null {
  if (initiationLength(bytes) !== bytes.length) return null
  const fields = new FieldReader(bytes)
  const [suite] = fields.take(1) as unknown as [RatchetSuite]
  const [prekeyId, oneTimeId, boxEpoch, atMs] = [fields.u32(), fields.u32(), fields.u32(), fields.u64()]
  if (!isUnsigned(atMs, TIME_MS_MAX)) return null
  const ephemeralKey = fields.take(KEY_BYTES).slice()
  const kemText = fields.take(suite === 2 ? KEM_CIPHERTEXT_BYTES : 0).slice()
  return { suite, prekeyId, oneTimeId, boxEpoch, atMs, ephemeralKey, kemText }
}
