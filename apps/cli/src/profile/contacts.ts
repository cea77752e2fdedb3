/**
 * Names and the keys they stand for, as this profile first saw them. The broker's directory is asked once for a name and
 * believed once: from then on the name means that key, and a directory that says another one is contradicted aloud.
 */
import { fingerprint } from '@sealpost/identity'
import { isChosenName, isHex, OperatingError, type PeerKey } from '@sealpost/std'
import { escapeName } from '../terminal-text.ts'
import { isRecord, readJsonFile, updateJsonFile } from './json-file.ts'

export class Contacts {
  readonly #path: string
  /** As the file stood when it was last read or written here. */
  #keys: ReadonlyMap<string, PeerKey>

  private constructor(path: string, keys: ReadonlyMap<string, PeerKey>) {
    this.#path = path
    this.#keys = keys
  }

  static async read(path: string): Promise<Contacts> {
    return new Contacts(path, keysOf(await readJsonFile(path, isContactsFile)))
  }

  keyOf(name: string): PeerKey | undefined {
    return this.#keys.get(name)
  }

  /** The one with this fingerprint. */
  keyByFingerprint(print: string): PeerKey | undefined {
    return this.#keys.values().find((key) => fingerprint(key) === print)
  }

  nameOf(key: PeerKey): string | undefined {
    for (const [name, pinned] of this.#keys) if (pinned === key) return name
    return undefined
  }

  /**
   * Takes what the directory says of a name.
   * @returns true when the name was new
   * @throws OperatingError `key_changed`, `name_unusable`
   */
  async pin(name: string, key: PeerKey): Promise<boolean> {
    if (this.#keys.get(name) === key) return false
    if (!isUsableName(name))
      throw new OperatingError(
        'name_unusable',
        `The name ${escapeName(name)} can't be kept: address the peer by its key.`,
      )
    let isNew = true
    await this.#update((keys) => {
      const pinned = keys.get(name)
      if (pinned !== undefined && pinned !== key) throw keyChanged(name, { pinned, offered: key })
      isNew = pinned === undefined
      return keys.set(name, key)
    })
    return isNew
  }

  /** The person at the keyboard has compared the fingerprints and takes the other key. */
  accept(name: string, key: PeerKey): Promise<void> {
    return this.#update((keys) => keys.set(name, key))
  }

  /** Of the file as it is now: other commands pin names meanwhile. */
  async #update(change: (keys: Map<string, PeerKey>) => Map<string, PeerKey>): Promise<void> {
    const file = await updateJsonFile(this.#path, isContactsFile, (former) => ({
      version: 1,
      contacts: Object.fromEntries(change(keysOf(former))),
    }))
    this.#keys = keysOf(file)
  }
}

const keysOf = (file: ContactsFile | undefined): Map<string, PeerKey> => new Map(Object.entries(file?.contacts ?? {}))

/** Whatever a broker's directory says: a name must not look like a key, a device, an option or another name. */
export const isUsableName = isChosenName

export function isPeerKey(text: string): text is PeerKey {
  return isHex(text, 32)
}

export function keyChanged(name: string, keys: { pinned: PeerKey; offered: PeerKey }): OperatingError {
  return new OperatingError(
    'key_changed',
    `THE KEY OF ${escapeName(name)} IS NOT THE ONE YOU KNOW. Nothing was sent.
  known     ${fingerprint(keys.pinned)}
  directory ${fingerprint(keys.offered)}
Somebody may be posing as ${escapeName(name)}, or they have moved to a new key. Compare the fingerprint with them in another way;
if it is theirs: sealpost peers --accept '${escapeName(name)}'`,
  )
}

interface ContactsFile {
  readonly version: number
  readonly contacts: Readonly<Record<string, PeerKey>>
}

function isContactsFile(value: unknown): value is ContactsFile {
  if (!isRecord(value) || value.version !== 1 || !isRecord(value.contacts)) return false
  return Object.values(value.contacts).every((key) => isHex(key, 32))
}
