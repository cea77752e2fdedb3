/**
 * What the members of a space share and its broker never has. The *name key* is one for the life of the space: under it a
 * key of the state becomes the hash that the broker files it by. A *space key* is good for one epoch, and no content is
 * sealed under it directly: each entry and each record has a key derived from it.
 */
import { assert, fromHex, type MeshId, type SpaceId, toHex } from '@sealpost/std'
import { concatBytes, context, u32, utf8 } from '../byte-fields.ts'
import { sodium } from '../sodium.ts'

/** Where a key belongs: one of another place or epoch opens nothing here. */
export interface KeyScope {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
  readonly keyEpoch: number
}

export const SPACE_KEY_BYTES = 32
/** An epoch is an `integer` of the database. */
export const KEY_EPOCH_MAX = 2 ** 31 - 1

/** A new name key, or a new space key. */
export const newSpaceKey = (): Uint8Array => crypto.getRandomValues(new Uint8Array(SPACE_KEY_BYTES))

/** 64 hex digits: the keyed BLAKE2b-256 of the key's UTF-8 under the name key. */
export function keyHashOf(nameKey: Uint8Array, key: string): string {
  return toHex(keyed(nameKey, utf8(key)))
}

/**
 * The key of one box. Its whole header goes in, so a box opens under no other header than its own: nobody who has not the
 * space key can sign what another member wrote as a newer revision, or as its own.
 */
export function boxKeyOf(spaceKey: Uint8Array, header: Uint8Array): Uint8Array {
  return keyed(spaceKey, concatBytes([context('sealpost-box-key/1'), header]))
}

/** Shows who has both that one key followed the other: nobody makes it without the former one. */
export function keyLink(formerKey: Uint8Array, key: Uint8Array, place: KeyScope): Uint8Array {
  return keyed(formerKey, concatBytes([context('sealpost-key-link/1'), placeBytes(place), key]))
}

function placeBytes({ meshId, spaceId, keyEpoch }: KeyScope): Uint8Array {
  return concatBytes([fromHex(meshId), fromHex(spaceId), u32(keyEpoch)])
}

function keyed(key: Uint8Array, text: Uint8Array): Uint8Array {
  assert(key.length === SPACE_KEY_BYTES, 'a key of a space has 32 bytes')
  return sodium.crypto_generichash(32, text, key)
}
