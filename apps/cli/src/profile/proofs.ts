/** Opens the proofs of the mesh's members for this profile, and reads and creates the keys of roots. */
import { existsSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { dirname } from 'node:path'
import { fingerprint, generateSigningKeys, type SigningKeys } from '@sealpost/identity'
import { readKeyFile, writeKeyFile } from '@sealpost/identity/key-file'
import type { MemberEntry, PeerKey } from '@sealpost/sdk'
import {
  type LogContradiction,
  type MemberProofs,
  type MemberStanding,
  type MembersEvent,
  openMemberProofs,
} from '@sealpost/sdk/members'
import type { Recoveries } from '@sealpost/sdk/recoveries'
import { OperatingError } from '@sealpost/std'
import { escapeName } from '../output.ts'
import type { Shell } from '../shell.ts'
import { SharedStore } from './contacts.ts'
import { openProfileRecoveries, warnOnce } from './recoveries.ts'

/**
 * Opens the proofs, which commands of the profile share. Sends no request. Events become warnings.
 * @throws OperatingError `profile_missing`, `not_joined`, and the errors of the store
 */
export async function openProfileProofs(shell: Shell): Promise<MemberProofs> {
  return openProofsWith(await openProfileRecoveries(shell), shell)
}

/** Opens the proofs with these recoveries, which then rely on the log of the mesh. Closing the proofs closes them. */
export async function openProofsWith(recoveries: Recoveries, shell: Shell): Promise<MemberProofs> {
  const { profile, output } = shell
  const { identity, formerKeys } = await profile.readKeys()
  const { brokerKey, meshId, root, revocations } = await profile.readMembership()
  return openMemberProofs({
    ...{ url: await profile.readUrls(), brokerKey, meshId, identity, root, revocations },
    ...(formerKeys && { formerKeys }),
    store: new SharedStore(profile.proofsFile),
    recoveries,
    onEvent: (event) => warnOnce(output, warningOf(event)),
  })
}

/** `unknown`: the broker did not answer. */
export type ShownStanding = MemberStanding | 'unknown'

/** Checks listed members. Never throws. */
export async function standingsOf(
  shell: Shell,
  members: readonly MemberEntry[],
): Promise<(peer: PeerKey) => ShownStanding> {
  try {
    await using proofs = await openProfileProofs(shell)
    const standings = await proofs.check(members)
    return (peer) => standings.get(peer) ?? 'unknown'
  } catch (error) {
    shell.output.warn(`can't check who is a member: ${(error as Error).message}`)
    return () => 'unknown'
  }
}

function warningOf(event: MembersEvent): string {
  switch (event.type) {
    case 'member_unproven': {
      const who = event.name === null ? fingerprint(event.peer) : escapeName(event.name)
      return `${who} is listed as a member, but is not proven: ${reasonText(event.reason)} (member_unproven). It receives no keys of groups, pools and spaces.`
    }
    case 'root_pinned':
      return `pinned the root of the mesh: ${fingerprint(event.root)}. Compare it with an admin once.`
    case 'root_differs':
      return `the broker shows ${event.root ? `the root ${fingerprint(event.root)}` : 'no root'}, which is not the pinned one (root_differs)`
    case 'revocations_rolled_back':
      return `the broker shows ${event.shown} revocations, but ${event.known} are known (revocations_rolled_back)`
    case 'log_forked':
    case 'log_rolled_back':
    case 'log_withheld':
      return contradictionText(event)
    case 'statement_not_logged':
      return `the broker shows a statement (${event.kind}) that is not in the log of the mesh (statement_not_logged)`
  }
}

/** Returns a sentence with the code of the contradiction, and what to do about it. */
export function contradictionText(event: LogContradiction): string {
  const { size } = event.known.checkpoint
  const accepted = 'No new statements are accepted until "sealpost audit --accept".'
  switch (event.type) {
    case 'log_forked':
      return `THE BROKER HAS SIGNED TWO LOGS OF THIS MESH, of ${size} and ${event.shown.checkpoint.size} entries, neither of which continues the other (log_forked). ${accepted}`
    case 'log_rolled_back':
      return `the log of the mesh has ${event.shown.checkpoint.size} entries, but had ${size} (log_rolled_back). ${accepted}`
    case 'log_withheld':
      return `the broker shows no valid log of the mesh, which had ${size} entries (log_withheld, ${event.code}). ${accepted}`
  }
}

const REASONS: Readonly<Record<string, string>> = {
  no_certificate: 'no certificate names its key',
  chain_broken: 'its certificate does not lead to the root',
  revoked: 'its key was revoked',
  name_differs: 'its certificate contains another name',
  role_differs: 'its certificate contains another role',
  revocations_missing: 'the broker withholds revocations',
  key_recovered: 'a device has certified its key, which you have not accepted',
}

export const reasonText = (reason: string): string => REASONS[reason] ?? reason

export const rootMissing = (): OperatingError =>
  new OperatingError('root_missing', 'This mesh has no root. An admin adopts one with `sealpost root adopt`.')

/** Reads the key of a root. @throws OperatingError `key_file_wrong_kind`, and the errors of opening the key file */
export async function readRootKey(path: string): Promise<SigningKeys> {
  const { contents } = await readKeyFile(path)
  if (contents.kind === 'root') return contents.signing
  throw new OperatingError('key_file_wrong_kind', `The file ${path} is not the key file of a root.`)
}

/** Returns the key of a root, which it creates if the file does not exist. @throws OperatingError `key_file_unwritable` */
export async function ensureRootKey(path: string): Promise<SigningKeys> {
  if (existsSync(path)) return readRootKey(path)
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  const signing = generateSigningKeys()
  await writeKeyFile(path, { kind: 'root', signing })
  return signing
}
