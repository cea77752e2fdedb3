/**
 * What this profile remembers of spaces or of box keys, in a file that several commands of it share: it is held only while
 * it is read or written. What one of them has learned is not lost by another that knows less.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type MeshId, type PeerStore, SealpostError, type StoreChange, type StoreRecord } from '@sealpost/sdk'
import { openFileStore } from '@sealpost/sdk/file-store'
import { openKeyEpochs, type StoredKeyEpochs } from '@sealpost/sdk/key-epochs'
import type { Profile, ProfileKeys } from './profile.ts'

const WITHIN_MS = 10_000
const TURN_EVERY_MS = 20

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
    // It is held by nobody between two calls.
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

/** Of what, and which one: a record of a lower version does not replace it. */
function versionsOf(record: StoreRecord | null): [string, number][] {
  if (record?.kind === 'entry') return [[`${record.space}/${record.keyHash}`, record.revision]]
  return record?.kind === 'keyEpoch' ? [[record.peer, record.boxEpoch]] : []
}

/** The caller closes it after what uses it. @throws SealpostError of the store */
export function openProfileKeyEpochs(
  profile: Profile,
  { identity, formerKeys }: Pick<ProfileKeys, 'identity' | 'formerKeys'>,
  meshId: MeshId,
): Promise<StoredKeyEpochs> {
  const owner = { meshId, peerKey: identity.signing.publicKey }
  return openKeyEpochs(new SharedStore(profile.keyEpochsFile), owner, formerKeys)
}
