/** Checks whether devices have certified new keys of this profile's user or of its contacts, and warns about them. */
import { fingerprint } from '@sealpost/identity'
import { type Peer, SealpostError } from '@sealpost/sdk'
import {
  applyRecoveries,
  type KeyRecovery,
  openRecoveries,
  type Recoveries,
  type RecoveryEvent,
} from '@sealpost/sdk/recoveries'
import { OperatingError, type PeerKey } from '@sealpost/std'
import { escapeName, type Output } from '../output.ts'
import type { Shell } from '../shell.ts'
import { Contacts, SharedStore } from './contacts.ts'
import { isRecord, readJsonFile, writeJsonFile } from './profile.ts'

/** Opens the recoveries, which commands of the profile share. Sends no request. Events become warnings. */
export async function openProfileRecoveries({ profile, output }: Shell, patienceMs?: number): Promise<Recoveries> {
  const { identity, formerKeys } = await profile.readKeys()
  const { brokerKey, meshId } = await profile.readMembership()
  const contacts = await Contacts.read(profile.contactsFile)
  const own = identity.signing.publicKey
  return openRecoveries({
    ...{ url: await profile.readUrls(), brokerKey, meshId, identity, store: new SharedStore(profile.recoveriesFile) },
    ...(formerKeys && { formerKeys }),
    ...(patienceMs !== undefined && { patienceMs }),
    isVerified: (key) => contacts.isVerified(key),
    onEvent: (event) => warnOnce(output, warningOf(event, { own, contacts })),
  })
}

/** Two parts of one command can report the same. */
const warned = new WeakMap<Output, Set<string>>()

function warnOnce(output: Output, text: string): void {
  const known = warned.get(output) ?? new Set()
  warned.set(output, known)
  if (!known.has(text)) output.warn(text)
  known.add(text)
}

/**
 * Checks the own key and the pinned ones, and pins the new keys that the profile follows.
 * @returns the recovery of the own key, if one is pending
 * @throws SealpostError `connection_lost`, and the broker's refusals
 */
export async function checkRecoveries(shell: Shell, recoveries: Recoveries): Promise<KeyRecovery | null> {
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
    await using recoveries = await openProfileRecoveries(shell)
    return await checkRecoveries(shell, recoveries)
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
  await using recoveries = await openProfileRecoveries(shell, PATIENCE_MS)
  await checkRecoveries(shell, recoveries)
  applyRecoveries(peer, recoveries)
}

/** Reads the recoveries that the profile follows, to apply them to a peer before its first message arrives. */
export async function readRecoveries(shell: Shell): Promise<Recoveries> {
  await using recoveries = await openProfileRecoveries(shell)
  return recoveries
}

/** Explains why a contact's pinned key is no longer a member's. @throws OperatingError `key_recovered` */
export async function explainRecovered(shell: Shell, name: string, pinned: PeerKey): Promise<void> {
  await using recoveries = await openProfileRecoveries(shell)
  await checkRecoveries(shell, recoveries)
  const recovery = recoveries.find(pinned)
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

function warningOf(event: RecoveryEvent, { own, contacts }: { own: PeerKey; contacts: Contacts }): string {
  const of = (key: PeerKey) => escapeName(contacts.nameOf(key) ?? fingerprint(key))
  switch (event.type) {
    case 'recovery_pending':
      return event.former === own ? ownPendingText(event) : pendingText(of(event.former), event)
    case 'recovery_cancelled':
      return `${event.former === own ? 'You have' : `${of(event.former)} has`} cancelled the recovery by the device ${escapeName(event.label)} (recovery_cancelled)`
    case 'identity_recovered':
      return recoveredText(of(event.former), event)
    case 'succession_forked':
      return `the broker shows a second successor of the key of ${of(event.former)}, which is ignored (succession_forked)`
    case 'recovery_refused':
      return `the broker shows a new key of ${of(event.former)} that no device in the newest list of heirs has certified. It is ignored (recovery_refused)`
    case 'heirs_rolled_back':
      return `the broker shows an older list of heirs of ${of(event.user)} than before. The newest one counts (heirs_rolled_back)`
  }
}

export const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10)

export const ownPendingText = ({ label, successor, signedAtMs, followsAtMs }: KeyRecovery): string =>
  `your device ${escapeName(label)} has certified a new key ${fingerprint(successor)} on ${dayOf(signedAtMs)}, which may replace yours from ${dayOf(Math.min(followsAtMs, signedAtMs + 7 * CHECK_EVERY_MS))} on. If this was not you, run: sealpost key recover --cancel (recovery_pending)`

const pendingText = (name: string, { label, successor }: KeyRecovery): string =>
  `the device ${escapeName(label)} of ${name} has certified a new key ${fingerprint(successor)}. ${name} can object for seven days (recovery_pending)`

const recoveredText = (name: string, recovery: KeyRecovery): string =>
  `${name} has a new key ${fingerprint(recovery.successor)}, certified by the device ${escapeName(recovery.label)}: compare the fingerprint again${recovery.state === 'followed' ? '' : `, then run: sealpost peers --accept '${name}'`} (identity_recovered)`
