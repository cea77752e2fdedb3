/**
 * What the members of a space share and its broker never has. The *name key* is one for the life of the space: under it a
 * key of the state becomes the hash that the broker files it by. A *space key* is good for one epoch, and no content is
 * sealed under it directly: entries and records each have a key derived from it.
 */
import { assert, fromHex, type MeshId, type SpaceId, toHex } from '@sealpost/std'
import { concatBytes, context, u32, utf8 } from './byte-fields.ts'
import { sodium } from './sodium.ts'

/** Where a key belongs: one of another place or epoch opens nothing here. */
export interface KeyPlace {
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

export const entryKeyOf = (spaceKey: Uint8Array, place: KeyPlace): Uint8Array =>
  derived('sealpost-entry-key/1', spaceKey, place)

export const recordKeyOf = (spaceKey: Uint8Array, place: KeyPlace): Uint8Array =>
  derived('sealpost-record-key/1', spaceKey, place)

/** Shows who has both that one key followed the other: nobody makes it without the former one. */
export function keyLink(formerKey: Uint8Array, key: Uint8Array, place: KeyPlace): Uint8Array {
  return keyed(formerKey, concatBytes([context('sealpost-key-link/1'), placeBytes(place), key]))
}

function derived(as: string, spaceKey: Uint8Array, place: KeyPlace): Uint8Array {
  return keyed(spaceKey, concatBytes([context(as), placeBytes(place)]))
}

function placeBytes({ meshId, spaceId, keyEpoch }: KeyPlace): Uint8Array {
  return concatBytes([fromHex(meshId), fromHex(spaceId), u32(keyEpoch)])
}

function keyed(key: Uint8Array, text: Uint8Array): Uint8Array {
  assert(key.length === SPACE_KEY_BYTES, 'a key of a space has 32 bytes')
  return sodium.crypto_generichash(32, text, key)
}
