/** Opens the recoveries of a profile, which warn about new keys of its user and of its contacts (docs/adr/0016). */
import { fingerprint } from '@sealpost/identity'
import { type KeyRecovery, openRecoveries, type Recoveries, type RecoveryEvent } from '@sealpost/sdk/recoveries'
import type { PeerKey } from '@sealpost/std'
import { escapeName, type Output } from '../output.ts'
import type { Shell } from '../shell.ts'
import { Contacts, SharedStore } from './contacts.ts'

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

const OBJECTION_MS = 7 * 86_400_000

/** Two parts of one command can report the same. */
const warned = new WeakMap<Output, Set<string>>()

export function warnOnce(output: Output, text: string): void {
  const known = warned.get(output) ?? new Set()
  warned.set(output, known)
  if (!known.has(text)) output.warn(text)
  known.add(text)
}

/** Reads the recoveries that the profile follows, to apply them to a peer before its first message arrives. */
export async function readRecoveries(shell: Shell): Promise<Recoveries> {
  await using recoveries = await openProfileRecoveries(shell)
  return recoveries
}

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
  `your device ${escapeName(label)} has certified a new key ${fingerprint(successor)} on ${dayOf(signedAtMs)}, which may replace yours from ${dayOf(Math.min(followsAtMs, signedAtMs + OBJECTION_MS))} on. If this was not you, run: sealpost key recover --cancel (recovery_pending)`

const pendingText = (name: string, { label, successor }: KeyRecovery): string =>
  `the device ${escapeName(label)} of ${name} has certified a new key ${fingerprint(successor)}. ${name} can object for seven days (recovery_pending)`

const recoveredText = (name: string, recovery: KeyRecovery): string =>
  `${name} has a new key ${fingerprint(recovery.successor)}, certified by the device ${escapeName(recovery.label)}: compare the fingerprint again${recovery.state === 'followed' ? '' : `, then run: sealpost peers --accept '${name}'`} (identity_recovered)`
