/**
 * Pins names to keys on first use. A name is looked up once in the broker's directory and then means that key; another
 * key is an error.
 */

import { setTimeout as delay } from 'node:timers/promises'
import { fingerprint } from '@sealpost/identity'
import { type MeshId, type PeerStore, SealpostError, type StoreChange, type StoreRecord } from '@sealpost/sdk'
import { openFileStore } from '@sealpost/sdk/file-store'
import { openKeyEpochs, type StoredKeyEpochs } from '@sealpost/sdk/key-epochs'
import { isChosenName, isHex, OperatingError, type PeerKey, unicodeName } from '@sealpost/std'
import { skeletonOf } from '@sealpost/std/confusables'
import { escapeName } from '../output.ts'
import { isRecord, type Profile, type ProfileKeys, readJsonFile, updateJsonFile } from './profile.ts'

export class Contacts {
  readonly #path: string
  #keys: ReadonlyMap<string, PeerKey>
  #verified: ReadonlySet<PeerKey>

  private constructor(path: string, file: ContactsFile | undefined) {
    this.#path = path
    this.#keys = keysOf(file)
    this.#verified = verifiedIn(file)
  }

  static async read(path: string): Promise<Contacts> {
    return new Contacts(path, await readJsonFile(path, isContactsFile))
  }

  /** Returns whether the user has compared the fingerprint of this key. */
  isVerified(key: PeerKey): boolean {
    return this.#verified.has(key)
  }

  keyOf(name: string): PeerKey | undefined {
    return this.#keys.get(name)
  }

  /** Returns the pinned names and their keys. */
  entries(): [name: string, key: PeerKey][] {
    return [...this.#keys]
  }

  keyByFingerprint(print: string): PeerKey | undefined {
    return this.#keys.values().find((key) => fingerprint(key) === print)
  }

  nameOf(key: PeerKey): string | undefined {
    for (const [name, pinned] of this.#keys) if (pinned === key) return name
    return undefined
  }

  /**
   * Pins a name to a key. Returns whether the name was new.
   * @throws OperatingError `key_changed`, `name_unusable`, `name_confusable`
   */
  async pin(name: string, key: PeerKey): Promise<boolean> {
    if (this.#keys.get(name) === key) return false
    if (!isUsableName(name))
      throw new OperatingError(
        'name_unusable',
        `The name ${escapeName(name)} can't be pinned. Address the peer by its key.`,
      )
    let isNew = true
    await this.#update((keys, verified) => {
      const pinned = keys.get(name)
      if (pinned !== undefined && pinned !== key)
        throw keyChanged(name, { pinned, offered: key, wasVerified: verified.has(pinned) })
      isNew = pinned === undefined
      if (isNew) checkLookalikes(name, keys)
      keys.set(name, key)
    })
    return isNew
  }

  /** Replaces a name's key. The new key counts as not verified. */
  accept(name: string, key: PeerKey): Promise<void> {
    return this.#update((keys) => keys.set(name, key))
  }

  /** Pins a name to a key whose fingerprint the user has compared. */
  verify(name: string, key: PeerKey): Promise<void> {
    return this.#update((keys, verified) => {
      keys.set(name, key)
      verified.add(key)
    })
  }

  /** Changes the contacts. Reads them first, because other commands may have pinned names. */
  async #update(change: (keys: Map<string, PeerKey>, verified: Set<PeerKey>) => unknown): Promise<void> {
    const file = await updateJsonFile(this.#path, isContactsFile, (former) => {
      const [keys, verified] = [keysOf(former), verifiedIn(former)]
      change(keys, verified)
      const pinned = new Set(keys.values())
      return {
        version: 1,
        contacts: Object.fromEntries(keys),
        verified: [...verified].filter((key) => pinned.has(key)),
      }
    })
    this.#keys = keysOf(file)
    this.#verified = verifiedIn(file)
  }
}

/** Earlier versions pinned the ASCII form of a name. */
const keysOf = (file: ContactsFile | undefined): Map<string, PeerKey> =>
  new Map(Object.entries(file?.contacts ?? {}).map(([name, key]) => [unicodeName(name), key]))

const verifiedIn = (file: ContactsFile | undefined): Set<PeerKey> => new Set(file?.verified ?? [])

/** @throws OperatingError `name_confusable` if the name of another contact looks like this one */
function checkLookalikes(name: string, keys: ReadonlyMap<string, PeerKey>): void {
  const skeleton = skeletonOf(name)
  const other = keys.keys().find((pinned) => skeletonOf(pinned) === skeleton)
  if (other !== undefined)
    throw new OperatingError(
      'name_confusable',
      `The name ${escapeName(name)} looks like the name of another contact, ${escapeName(other)}. Address the peer by its fingerprint.`,
    )
}

/** A name must not look like a key, a device, an option or another name. */
export const isUsableName = isChosenName

export function isPeerKey(text: string): text is PeerKey {
  return isHex(text, 32)
}

interface KeyChange {
  readonly pinned: PeerKey
  readonly offered: PeerKey
  readonly wasVerified: boolean
}

export function keyChanged(name: string, { wasVerified, ...keys }: KeyChange): OperatingError {
  const which = wasVerified ? ', WHICH YOU VERIFIED,' : ''
  return new OperatingError(
    'key_changed',
    `THE KEY OF ${escapeName(name)}${which} HAS CHANGED. Nothing was sent.
  pinned    ${fingerprint(keys.pinned)}
  directory ${fingerprint(keys.offered)}
Someone may be impersonating ${escapeName(name)}, or they have a new key. Compare the fingerprint with them over another channel.
If it is theirs, run: sealpost peers --accept '${escapeName(name)}'`,
  )
}

interface ContactsFile {
  readonly version: number
  readonly contacts: Readonly<Record<string, PeerKey>>
  /** The pinned keys whose fingerprints the user has compared. Earlier versions write a file without it. */
  readonly verified?: readonly PeerKey[]
}

function isContactsFile(value: unknown): value is ContactsFile {
  if (!isRecord(value) || value.version !== 1 || !isRecord(value.contacts)) return false
  const { contacts, verified = [] } = value
  return Array.isArray(verified) && [...Object.values(contacts), ...verified].every((key) => isHex(key, 32))
}

const WITHIN_MS = 10_000
const TURN_EVERY_MS = 20

/**
 * Stores a profile's records of spaces or box keys in a file that commands share. Locks it only for reads and writes,
 * and never replaces newer records by older ones.
 */
export class SharedStore implements PeerStore {
  readonly #path: string

  constructor(path: string) {
    this.#path = path
  }

  load(): Promise<StoreRecord[]> {
    return this.#held((store) => store.load())
  }

  write(changes: readonly StoreChange[]): Promise<void> {
    return this.#held(async (store) => {
      const newest = new Map((await store.load()).flatMap((record) => versionsOf(record)))
      const isNews = ({ record }: StoreChange) =>
        versionsOf(record).every(([of, version]) => version >= (newest.get(of) ?? 0))
      await store.write(changes.filter(isNews))
    })
  }

  async close(): Promise<void> {
    // The file is not locked between calls.
  }

  async #held<T>(use: (store: PeerStore) => Promise<T>): Promise<T> {
    const store = await this.#inTurn()
    try {
      return await use(store)
    } finally {
      await store.close()
    }
  }

  async #inTurn(): Promise<PeerStore> {
    const untilMs = performance.now() + WITHIN_MS
    for (;;) {
      try {
        return await openFileStore(this.#path)
      } catch (error) {
        const isInUse = error instanceof SealpostError && error.code === 'store_in_use'
        if (!isInUse || performance.now() > untilMs) throw error
        await delay(TURN_EVERY_MS)
      }
    }
  }
}

/** Returns the versions of a record's subjects; a lower version never replaces a higher one. */
function versionsOf(record: StoreRecord | null): [string, number][] {
  if (record?.kind === 'entry') return [[`${record.space}/${record.keyHash}`, record.revision]]
  if (record?.kind === 'checkpoint') return [['checkpoint', record.accepted * 2 ** 32 + record.size]]
  return record?.kind === 'keyEpoch' ? [[record.peer, record.boxEpoch]] : []
}

/** Opens the profile's box-key epochs. Close them last. @throws SealpostError from the store */
export function openProfileKeyEpochs(
  profile: Profile,
  { identity, formerKeys }: Pick<ProfileKeys, 'identity' | 'formerKeys'>,
  meshId: MeshId,
): Promise<StoredKeyEpochs> {
  const owner = { meshId, peerKey: identity.signing.publicKey }
  return openKeyEpochs(new SharedStore(profile.keyEpochsFile), owner, formerKeys)
}
