/** Checks whether devices have certified new keys of this profile's user or of its contacts. */
import { fingerprint } from '@sealpost/identity'
import { type Peer, SealpostError } from '@sealpost/sdk'
import { applyRecoveries, type KeyRecovery, type Recoveries } from '@sealpost/sdk/recoveries'
import { OperatingError, type PeerKey } from '@sealpost/std'
import { escapeName } from '../output.ts'
import type { Shell } from '../shell.ts'
import { Contacts } from './contacts.ts'
import { isRecord, readJsonFile, writeJsonFile } from './profile.ts'
import { openProofsWith } from './proofs.ts'
import { openProfileRecoveries } from './recoveries.ts'

/** Calls `use` with recoveries that rely on the log of the mesh. */
async function withRecoveries<T>(
  shell: Shell,
  use: (recoveries: Recoveries) => Promise<T>,
  patienceMs?: number,
): Promise<T> {
  const recoveries = await openProfileRecoveries(shell, patienceMs)
  await using _proofs = await openProofsWith(recoveries, shell)
  return await use(recoveries)
}

/** Follows the recovery of a contact's key, if the broker lists its successor. */
export function acceptRecovery(
  shell: Shell,
  { former, successor }: { readonly former: PeerKey; readonly successor: PeerKey },
): Promise<void> {
  return withRecoveries(shell, async (recoveries) => {
    await recoveries.check([former])
    if (recoveries.find(former)?.successor === successor) recoveries.accept(former)
  })
}

/**
 * Checks the own key and the pinned ones, and pins the new keys that the profile follows.
 * @returns the recovery of the own key, if one is pending
 * @throws SealpostError `connection_lost`, and the broker's refusals
 */
async function checkRecoveries(shell: Shell, recoveries: Recoveries): Promise<KeyRecovery | null> {
  const { profile } = shell
  const contacts = await Contacts.read(profile.contactsFile)
  const own = await profile.readOwnKey()
  const pinned = contacts.entries()
  await recoveries.check([own, ...pinned.map(([, key]) => key)])
  for (const [name, key] of pinned) {
    const next = followedKey(recoveries, key)
    if (next !== null) await contacts.accept(name, next)
  }
  await writeJsonFile(profile.recoveryCheckFile, { atMs: Date.now() } satisfies LastCheck)
  return recoveries.find(own)
}

/** Like `checkRecoveries`, with a warning if the broker does not reply. Never throws. */
export async function noticeRecoveries(shell: Shell): Promise<KeyRecovery | null> {
  try {
    return await withRecoveries(shell, (recoveries) => checkRecoveries(shell, recoveries))
  } catch (error) {
    shell.output.warn(`can't check for new keys of contacts: ${(error as Error).message}`)
    return null
  }
}

/** Returns the new key of a contact whose recovery the profile follows. */
function followedKey(recoveries: Recoveries, key: PeerKey): PeerKey | null {
  const recovery = recoveries.find(key)
  return recovery?.state === 'followed' ? recovery.successor : null
}

interface LastCheck {
  readonly atMs: number
}

const isLastCheck = (value: unknown): value is LastCheck => isRecord(value) && typeof value.atMs === 'number'

const CHECK_EVERY_MS = 86_400_000
const PATIENCE_MS = 5_000
/** How long an ending command waits for its check. */
const GRACE_MS = 1_000

/**
 * Checks now and once a day, if the last check of the profile is a day old, because each user has seven days to object, and applies
 * the recoveries that the profile follows to the peer. Returns a function that ends the checks. Neither throws.
 */
export function watchRecoveries(shell: Shell, peer: Peer): () => Promise<void> {
  const ended = new AbortController()
  let running = checkIfDue(shell, peer, ended.signal)
  const timer = setInterval(() => (running = checkIfDue(shell, peer, ended.signal)), CHECK_EVERY_MS)
  timer.unref()
  return async () => {
    clearInterval(timer)
    const grace = setTimeout(() => ended.abort(), GRACE_MS)
    await running
    clearTimeout(grace)
  }
}

/** Resolves when the check has ended, or the signal has fired. Without a broker, the next command checks. */
async function checkIfDue(shell: Shell, peer: Peer, signal: AbortSignal): Promise<void> {
  const isOver = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
  const check = checkAndApply(shell, peer).catch((error) => {
    if (!(error instanceof SealpostError || error instanceof OperatingError)) throw error
  })
  await Promise.race([check, isOver])
}

async function checkAndApply(shell: Shell, peer: Peer): Promise<void> {
  const last = await readJsonFile(shell.profile.recoveryCheckFile, isLastCheck)
  if (last && Date.now() - last.atMs < CHECK_EVERY_MS) return
  const check = async (recoveries: Recoveries) => {
    await checkRecoveries(shell, recoveries)
    applyRecoveries(peer, recoveries)
  }
  await withRecoveries(shell, check, PATIENCE_MS)
}

/** Explains why a contact's pinned key is no longer a member's. @throws OperatingError `key_recovered` */
export async function explainRecovered(shell: Shell, name: string, pinned: PeerKey): Promise<void> {
  const recovery = await withRecoveries(shell, async (recoveries) => {
    await checkRecoveries(shell, recoveries)
    return recoveries.find(pinned)
  })
  if (!recovery || recovery.state === 'pending') return
  if (recovery.state === 'followed')
    throw new OperatingError(
      'key_recovered',
      `${escapeName(name)} has a new key, which ${deviceOf(name, recovery)} certified. It is pinned now. Nothing was sent: run the command again.`,
    )
  throw new OperatingError(
    'key_recovered',
    `${escapeName(name)} has a new key, certified by ${deviceOf(name, recovery)}: compare the fingerprint again. Nothing was sent.
  pinned    ${fingerprint(pinned)}
  new       ${fingerprint(recovery.successor)}
If it is theirs, run: sealpost peers --accept '${escapeName(name)}'`,
  )
}

const deviceOf = (name: string, { label }: KeyRecovery): string => `${escapeName(name)}'s device ${escapeName(label)}`
