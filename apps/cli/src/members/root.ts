/** `sealpost root` shows, adopts and trusts the root of the mesh, and certifies and revokes members with signatures. */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fingerprint, readFingerprint } from '@sealpost/identity'
import type { MemberEntry } from '@sealpost/sdk'
import type { MemberProofs, MemberStanding } from '@sealpost/sdk/members'
import { OperatingError, type PeerKey } from '@sealpost/std'
import { Command } from 'commander'
import { escapeName } from '../output.ts'
import { typedYes } from '../profile/passphrase.ts'
import { ensureRootKey, openProfileProofs, readRootKey, rootMissing } from '../profile/proofs.ts'
import { callPeer } from '../session/peer-session.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { unknownMember } from './member-list.ts'
import { typedName } from './names.ts'

const EXAMPLE = 'NV2N-HQ7V-NFSH-5GNN-1A9Q-EFPN-TNHK-X3ET'

export function rootCommand(run: RunAction): Command {
  return new Command('root')
    .description('Prove who is a member: the root of the mesh certifies its admins, and they certify the members')
    .addCommand(showCommand(run))
    .addCommand(adoptCommand(run))
    .addCommand(trustCommand(run))
    .addCommand(endorseCommand(run))
    .addCommand(revokeCommand(run))
    .addHelpText('after', examples('sealpost root show', 'sealpost root adopt', `sealpost root trust ${EXAMPLE}`))
}

function showCommand(run: RunAction): Command {
  return new Command('show')
    .description('Print the root of the mesh, and the members that are not proven')
    .addHelpText('after', examples('sealpost root show', 'sealpost root show --json'))
    .action(run(show))
}

function adoptCommand(run: RunAction): Command {
  return new Command('adopt')
    .description(
      'Create the root of this mesh and certify its present members, as an admin. The key is stored in root-key.json of the profile: keep a copy offline.',
    )
    .option('-y, --yes', 'do not ask whether the listed members are right')
    .option(
      '--replace',
      'replace the root, because its key was lost or stolen; each member must then trust the new one',
    )
    .addHelpText('after', examples('sealpost root adopt', 'sealpost root adopt --yes --json'))
    .action(run(adopt))
}

function trustCommand(run: RunAction): Command {
  return new Command('trust')
    .description('Pin the root that the broker shows, if it has this fingerprint')
    .argument('<FINGERPRINT>', 'the fingerprint, which an admin reads to you from "sealpost root show"')
    .addHelpText('after', examples(`sealpost root trust ${EXAMPLE}`))
    .action(run(trust))
}

function endorseCommand(run: RunAction): Command {
  return new Command('endorse')
    .description('Certify members that the broker lists, as an admin, with their listed names and roles')
    .argument('<NAME...>', 'the names of members')
    .addHelpText('after', examples('sealpost root endorse bob carol'))
    .action(run(endorse))
}

function revokeCommand(run: RunAction): Command {
  return new Command('revoke')
    .description(
      'Revoke a member and its devices permanently, with a signature that the broker cannot undo. Members that only this member certified are certified again by you.',
    )
    .argument('<NAME>', 'the name of the member')
    .addHelpText('after', examples('sealpost root revoke bob'))
    .action(run(revoke))
}

async function show(shell: Shell): Promise<void> {
  const { output } = shell
  const members = await listed(shell)
  await using proofs = await openProfileProofs(shell)
  const standings = await proofs.check(members)
  const { root } = proofs
  const unproven = members.filter(({ peer }) => standings.get(peer) !== 'proven')
  const own = await shell.profile.readOwnKey()
  const facts = {
    ...{ root, fingerprint: root && fingerprint(root), standing: standings.get(own) ?? 'no_certificate' },
    ...{ members: members.length, revocations: proofs.revocationCount },
    unproven: unproven.map(({ peer, name }) => ({ peer, name, standing: standings.get(peer) })),
  }
  await output.result(facts, () =>
    output.facts([
      ['root', root === null ? 'none: an admin adopts one with "sealpost root adopt"' : fingerprint(root)],
      ['you', standingText(facts.standing)],
      ['members', `${members.length - unproven.length} of ${members.length} are proven`],
      ['revocations', String(facts.revocations)],
      ...(root === null ? [] : unproven.map(({ peer, name }) => [escapeName(name), standings.get(peer)!] as const)),
    ]),
  )
}

export const standingText = (standing: MemberStanding | 'unknown'): string =>
  standing === 'proven' ? 'proven' : standing === 'unknown' ? 'unknown' : `unproven (${standing})`

interface AdoptOptions {
  readonly yes?: true
  readonly replace?: true
}

async function adopt(shell: Shell, { yes, replace }: AdoptOptions): Promise<void> {
  const { output, profile } = shell
  const members = (await listed(shell)).filter(({ name }) => !name.includes('/')) // devices are proven by their users
  await using proofs = await openProfileProofs(shell)
  await proofs.check(members)
  const ownFile = proofs.root && (await findRootKeyFile(shell, proofs.root))
  if (proofs.root !== null && !replace && ownFile === null)
    throw new OperatingError(
      'root_differs',
      'This mesh already has a root. Replace it with --replace only if its key was lost or stolen.',
    )
  output.info('The root certifies these members. Compare the list with the people that you know:')
  for (const { name, role, peer } of members) output.info(`  ${escapeName(name)}  ${role}  ${fingerprint(peer)}`)
  if (!yes && process.stdin.isTTY && !(await typedYes('Are these the members of the mesh?', shell.signal)))
    throw new OperatingError('interrupted', 'Nothing was changed.')
  const former = proofs.root
  const path = replace ? newRootKeyFile(profile.rootKeyFile) : (ownFile ?? profile.rootKeyFile)
  const root = await ensureRootKey(path)
  await proofs.adopt(root, members, replace && former ? former : undefined)
  await profile.writeMembership({ ...(await profile.readMembership()), root: root.publicKey })
  await output.result(
    { root: root.publicKey, fingerprint: fingerprint(root.publicKey), members: members.length, keyFile: path },
    () =>
      output.facts([
        ['root', fingerprint(root.publicKey)],
        ['certified', `${members.length} members`],
        ['key', `${path}  (keep a copy offline)`],
      ]),
  )
}

/** Returns the key file of a root that this profile created, maybe in an interrupted adoption; null if there is none. */
async function findRootKeyFile({ profile }: Shell, root: PeerKey): Promise<string | null> {
  const names = (await readdir(profile.folder)).filter((name) => /^root-key(-\d+)?\.json$/.test(name))
  for (const path of names.map((name) => join(profile.folder, name)))
    if ((await readRootKey(path)).publicKey === root) return path
  return null
}

const newRootKeyFile = (path: string): string => `${path.replace(/\.json$/, '')}-${Date.now()}.json`

async function trust(shell: Shell, _: object, text: string): Promise<void> {
  const print = readFingerprint(text)
  if (!print)
    throw new OperatingError('usage', 'Give the whole fingerprint of the root: eight groups of four characters.')
  const { profile, output } = shell
  await using proofs = await openProfileProofs(shell)
  const shown = await proofs.shownRoot()
  if (shown === null) throw rootMissing()
  if (fingerprint(shown) !== print)
    throw new OperatingError(
      'fingerprint_differs',
      `THE FINGERPRINT DIFFERS. The broker shows the root ${fingerprint(shown)}. Someone may be impersonating members of this mesh.`,
    )
  proofs.trust(shown)
  await profile.writeMembership({ ...(await profile.readMembership()), root: shown })
  await output.result({ root: shown, trusted: true }, () =>
    output.facts([
      ['root', fingerprint(shown)],
      ['trusted', 'yes'],
    ]),
  )
}

async function endorse(shell: Shell, _: object, words: readonly string[]): Promise<void> {
  const members = await listed(shell)
  const named = words.map((word) => memberNamed(word, members))
  const { identity } = await shell.profile.readKeys()
  await using proofs = await rootedProofs(shell, members)
  await proofs.endorse(identity.signing, named)
  await shell.output.result({ endorsed: named.map(({ name }) => name) }, () =>
    named.map(({ name, peer }) => `endorsed ${escapeName(name)}  ${fingerprint(peer)}`).join('\n'),
  )
}

async function revoke(shell: Shell, _: object, word: string): Promise<void> {
  const members = await listed(shell)
  const { peer, name } = memberNamed(word, members)
  const { identity } = await shell.profile.readKeys()
  await using proofs = await rootedProofs(shell, members)
  const again = await proofs.revoke(identity.signing, peer, members)
  await callPeer(shell, { method: 'revokeMember', params: peer })
  await shell.output.result({ revoked: name, key: peer, endorsedAgain: again.map((each) => each.name) }, () =>
    [`revoked ${escapeName(name)}`, ...again.map((each) => `endorsed ${escapeName(each.name)} again`)].join('\n'),
  )
}

/** Opens the proofs of a mesh with a root. @throws OperatingError `root_missing` */
async function rootedProofs(shell: Shell, members: readonly MemberEntry[]): Promise<MemberProofs> {
  const proofs = await openProfileProofs(shell)
  await proofs.check(members)
  if (proofs.root !== null) return proofs
  await proofs.close()
  throw rootMissing()
}

const listed = (shell: Shell): Promise<readonly MemberEntry[]> => callPeer(shell, { method: 'members', params: null })

function memberNamed(word: string, members: readonly MemberEntry[]): MemberEntry {
  const name = typedName(word)
  const found = members.find((member) => member.name === name)
  if (found) return found
  throw unknownMember(name, members)
}
