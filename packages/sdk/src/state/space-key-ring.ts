/** The keys of a space that this member has: its name key, and a space key for each epoch it was given one of. */
import { GRANT_KEYS_MAX, type KeyGrant, type KeyScope, keyLink, NO_LINK, newSpaceKey } from '@sealpost/identity'
import { isSameBytes, type PeerKey } from '@sealpost/std'

type Place = Omit<KeyScope, 'keyEpoch'>
/** A key that nobody was given yet. */
export interface NextKey {
  readonly keyEpoch: number
  readonly groupEpoch: number
  readonly key: Uint8Array
  readonly nameKey: Uint8Array
}

/** Why a grant is not taken, in words. */
export type GrantFlaw = string

export class SpaceKeyRing {
  readonly #place: Place
  readonly #keys = new Map<number, Uint8Array>()
  #nameKey: Uint8Array | null = null
  /** Of the newest key, see `KeyGrant`. */
  #groupEpoch = 0

  constructor(place: Place) {
    this.#place = place
  }

  get nameKey(): Uint8Array | null {
    return this.#nameKey
  }
  /** 0: none. */
  get newest(): number {
    return Math.max(0, ...this.#keys.keys())
  }
  /** Nobody was given the newest key but the members of the group at this epoch, as far as its granters know. */
  get groupEpoch(): number {
    return this.#groupEpoch
  }
  /** How many it holds. */
  get size(): number {
    return this.#keys.size
  }

  find(keyEpoch: number): Uint8Array | null {
    return this.#keys.get(keyEpoch) ?? null
  }

  /** Takes what is new in a grant, all of it or nothing. Whether its granter belongs to the space was asked before. */
  take(grant: KeyGrant): GrantFlaw | null {
    const { meshId, spaceId, nameKey, keys, keyEpoch, link } = grant
    if (meshId !== this.#place.meshId || spaceId !== this.#place.spaceId) return 'a grant is of another space'
    if (this.#nameKey && !isSameBytes(this.#nameKey, nameKey)) return 'a grant has another name key'
    for (const one of keys) {
      const known = this.#keys.get(one.keyEpoch)
      if (known && !isSameBytes(known, one.key)) return 'a grant has another key of an epoch that is known'
    }
    const former = this.#keys.get(keyEpoch - 1)
    const key = keys.at(-1)!.key
    if (former && !isSameBytes(link, keyLink(former, key, { ...this.#place, keyEpoch })))
      return 'a grant has a key that does not follow the one before'
    if (keyEpoch >= this.newest)
      this.#groupEpoch = Math.max(keyEpoch > this.newest ? 0 : this.#groupEpoch, grant.groupEpoch)
    this.#nameKey ??= nameKey
    for (const one of keys) this.#keys.set(one.keyEpoch, one.key)
    return null
  }

  /** Nobody has left the group up to this epoch who was given the newest key. */
  vouch(groupEpoch: number): void {
    this.#groupEpoch = groupEpoch
  }

  /** The next key; only `take` of a grant puts it in the ring. */
  next(groupEpoch: number): NextKey {
    return { keyEpoch: this.newest + 1, groupEpoch, key: newSpaceKey(), nameKey: this.#nameKey ?? newSpaceKey() }
  }

  /** A grant of the keys from one epoch on, with one that is new, if there is one. */
  grantTo(member: PeerKey, { granter, from, next }: { granter: PeerKey; from: number; next?: NextKey }): KeyGrant {
    const keys = [...this.#keys].map(([keyEpoch, key]) => ({ keyEpoch, key }))
    const all = (next ? [...keys, next] : keys).filter(({ keyEpoch }) => keyEpoch >= from)
    const given = all.sort((a, b) => a.keyEpoch - b.keyEpoch).slice(-GRANT_KEYS_MAX)
    const { keyEpoch, key } = given.at(-1)!
    const former = this.#keys.get(keyEpoch - 1)
    const link = former ? keyLink(former, key, { ...this.#place, keyEpoch }) : NO_LINK
    const named = given.map((one) => ({ keyEpoch: one.keyEpoch, key: one.key }))
    const { groupEpoch, nameKey } = next ?? { groupEpoch: this.#groupEpoch, nameKey: this.#nameKey! }
    return { ...this.#place, keyEpoch, groupEpoch, granter, member, link, nameKey, keys: named }
  }
}
