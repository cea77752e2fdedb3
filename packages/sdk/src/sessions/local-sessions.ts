/** Lists and clears the sessions in the folder of a profile, for commands that manage them. */
import { existsSync } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Identity } from '@sealpost/identity'
import type { Millis, PeerKey } from '@sealpost/std'
import { changesToForget } from '../forward/ratchet-lanes.ts'
import { openFileStore, readStoreRecords } from '../stores/file/file-store.ts'
import type { StoreRecord } from '../stores/records.ts'
import { type CertifyOptions, clearSlot, existingKeys, ownCertificate, storeOf } from './session-keys.ts'
import {
  folderNameOf,
  isSlotLocked,
  LENT,
  lockedSlot,
  releaseSlot,
  type SlotFile,
  slotFolderOf,
  slotsOf,
} from './session-slots.ts'

/** A session in the folder of a profile. */
export interface LocalSession {
  readonly label: string
  /** Whether it was opened with `as`. */
  readonly isNamed: boolean
  /** Whether a process runs the session now. Of others, the host receives the mail for the other sessions. */
  readonly isRunning: boolean
  /** When the session last changed a file, in ms since 1970. */
  readonly lastUsedMs: Millis
}

/**
 * Returns the sessions of this profile, including those whose process has ended.
 * @example for (const { label, isRunning } of await localSessions('profile')) console.log(label, isRunning)
 */
export async function localSessions(folder: string): Promise<LocalSession[]> {
  const known = await slotsOf(folder).catch(() => []) // no session was opened yet
  const own = known.filter(({ isTaken }) => !isTaken)
  return Promise.all(
    own.map(async ({ label, name, isNamed }) => {
      const path = slotFolderOf(folder, name)
      const [isLocked, lastUsedMs] = await Promise.all([isSlotLocked(folder, name), lastUseOf(path)])
      return { label, isNamed, isRunning: isLocked && !existsSync(join(path, LENT)), lastUsedMs }
    }),
  )
}

/**
 * Returns the identity of a session of this profile, for example to look at its mail with `peekInbox`; null if the
 * folder has no such session.
 * @throws SealpostError `session_foreign`; OperatingError `key_file_locked`, `passphrase_wrong`, …
 * @example const own = await sessionIdentity({ folder: 'profile', member: { identity }, label: 'builds' })
 */
export async function sessionIdentity(
  options: Pick<CertifyOptions, 'member' | 'passphrase'> & { readonly folder: string; readonly label: string },
): Promise<Identity | null> {
  const { folder, label, passphrase, member } = options
  const place = { folder: slotFolderOf(folder, folderNameOf(label)), label }
  const keys = await existingKeys(place, { passphrase })
  if (keys) await ownCertificate(place, keys.identity, { member })
  return keys?.identity ?? null
}

/**
 * Returns the stored records of the member's mailbox, or of a session's, with which `peekInbox` opens ratcheted messages.
 * Another process may have the mailbox open. Returns an empty list if the store can't be read.
 * @example const records = await mailboxRecords('profile', 'builds')
 */
export function mailboxRecords(folder: string, label?: string): Promise<readonly StoreRecord[]> {
  const path =
    label === undefined ? join(folder, 'messages') : storeOf({ folder: slotFolderOf(folder, folderNameOf(label)) })
  return readStoreRecords(path).catch(() => [])
}

/**
 * Deletes the keys and the mail of a session that the member has ended, unless a process uses it. Such a process does
 * this itself.
 * @example await forgetSession('profile', 'laptop-1')
 */
export async function forgetSession(folder: string, label: string): Promise<void> {
  const name = folderNameOf(label)
  if (!(await isSlotLocked(folder, name))) await clearSlot({ folder: slotFolderOf(folder, name) })
}

/**
 * Returns the peers with whom the member or a session of this profile uses ratchets. Omits a store that can't be read.
 * @example const isSecret = (await ratchetedPeersIn('profile')).has(ben)
 */
export async function ratchetedPeersIn(folder: string): Promise<ReadonlySet<PeerKey>> {
  const slots = await slotsOf(folder).catch(() => []) // no session was opened yet
  const labels = [undefined, ...slots.map(({ label }) => label)]
  const records = await Promise.all(labels.map((label) => mailboxRecords(folder, label)))
  return new Set(
    records.flat().flatMap((record) => (record.kind === 'ratchetPeer' && record.isPinned ? record.peer : [])),
  )
}

/**
 * Deletes the ratchets of this profile's sessions with a peer, who has stopped using them. Returns the labels of the
 * sessions that a process has open, which keep theirs. `forgetRatchets` does the same for the member.
 * @throws the errors of `openFileStore`
 * @example const inUse = await forgetSessionRatchets('profile', ben)
 */
export async function forgetSessionRatchets(folder: string, peer: PeerKey): Promise<readonly string[]> {
  const inUse: string[] = []
  for (const slot of await slotsOf(folder).catch(() => [])) {
    const hasRatchets = changesToForget(peer, await mailboxRecords(folder, slot.label)).length > 0
    if (hasRatchets && !(await forgetInSlot(folder, slot, peer))) inUse.push(slot.label)
  }
  return inUse
}

/** Returns false if a process has the session open. */
async function forgetInSlot(folder: string, file: SlotFile, peer: PeerKey): Promise<boolean> {
  const slot = await lockedSlot(folder, file)
  if (!slot) return false
  try {
    const store = await openFileStore(storeOf(slot))
    try {
      await store.write(changesToForget(peer, await store.load()))
    } finally {
      await store.close()
    }
    return true
  } finally {
    await releaseSlot(slot)
  }
}

async function lastUseOf(path: string): Promise<Millis> {
  const names = await readdir(path).catch(() => [])
  const times = await Promise.all(
    names.map((name) =>
      stat(join(path, name)).then(
        ({ mtimeMs }) => Math.round(mtimeMs),
        () => 0,
      ),
    ),
  )
  return Math.max(0, ...times)
}
