/** `sealpost peers` lists the mesh's members, and whether their keys match the pinned ones. */
import { fingerprint, readFingerprint } from '@sealpost/identity'
import type { Availability, ConsentState, ConsentUpdate, MemberEntry, PeerKey, PresenceEntry } from '@sealpost/sdk'
import { forgetSessionRatchets, ratchetedPeersIn } from '@sealpost/sdk/sessions'
import { OperatingError } from '@sealpost/std'
import { Argument, Command } from 'commander'
import { labelOf } from '../messages/incoming-message.ts'
import { escapeName } from '../output.ts'
import { Contacts, isUsableName } from '../profile/contacts.ts'
import { type ShownStanding, standingsOf } from '../profile/proofs.ts'
import { acceptRecovery, noticeRecoveries } from '../profile/recovery-checks.ts'
import type { Directory } from '../session/peer-calls.ts'
import { callPeer } from '../session/peer-session.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { resolveRecipient, unknownMember } from './member-list.ts'
import { typedName } from './names.ts'

interface PeersOptions {
  readonly accept?: string
  readonly verify?: string
  readonly forgetRatchets?: string
}

export function peersCommand(run: RunAction): Command {
  return new Command('peers')
    .description('List the members of the mesh and their presence')
    .argument('[FINGERPRINT]', 'with --verify: the fingerprint that the peer showed you')
    .option('--accept <NAME>', 'replace the pinned key of NAME with the key that the broker now lists')
    .option(
      '--verify <NAME>',
      'mark NAME as verified, if FINGERPRINT belongs to its key. Get FINGERPRINT from the peer itself, who runs "sealpost key fingerprint", and not through Sealpost.',
    )
    .option(
      '--forget-ratchets <NAME>',
      'delete the ratchets with NAME, who has lost its keys or stopped using ratchets. Messages to and from NAME need no forward secrecy afterwards. Ask NAME first, because a broker can cause the same refusals.',
    )
    .addHelpText(
      'after',
      examples(
        'sealpost peers',
        'sealpost peers --verify bob NV2N-HQ7V-NFSH-5GNN-1A9Q-EFPN-TNHK-X3ET',
        'sealpost peers --accept bob',
        'sealpost peers --forget-ratchets bob',
      ),
    )
    .action(run(peers))
}

async function peers(
  shell: Shell,
  { accept, verify, forgetRatchets: forget }: PeersOptions,
  typed?: string,
): Promise<void> {
  if ((verify === undefined) !== (typed === undefined)) throw needsFingerprint()
  const { members, online } = await callPeer(shell, { method: 'directory', params: null })
  const contacts = await Contacts.read(shell.profile.contactsFile)
  if (accept !== undefined) return acceptKey(shell, { name: typedName(accept), members, contacts })
  if (verify !== undefined) return verifyKey(shell, { name: typedName(verify), members, contacts }, typed!)
  if (forget !== undefined) return forgetRatchets(shell, memberNamed(typedName(forget), members))
  await noticeRecoveries(shell)
  return listPeers(shell, { members, online, contacts: await Contacts.read(shell.profile.contactsFile) })
}

async function listPeers(
  shell: Shell,
  { members, online, contacts }: Directory & { contacts: Contacts },
): Promise<void> {
  const own = await shell.profile.readOwnKey()
  const standingOf = await standingsOf(shell, members)
  const sealingOf = await sealingsOf(shell)
  const present = new Map(online.map((entry) => [entry.peer, entry]))
  const rows = members.map((member) => ({
    ...member,
    known: knownAs(member, contacts, own),
    membership: standingOf(member.peer),
    sealing: sealingOf(member.peer),
    ...presenceOf(present.get(member.peer)),
  }))
  const { output } = shell
  await output.results(
    rows.map((row) => ({ ...row, fingerprint: fingerprint(row.peer), verified: row.known === 'verified' })),
    () =>
      output.table(
        ['NAME', 'ROLE', 'MEMBERSHIP', 'NOW', 'SEALING', 'FINGERPRINT', 'KNOWN'],
        rows.map(({ name, role, peer, known, membership, sealing, ...presence }) => [
          escapeName(name),
          role,
          shortStanding(membership),
          presenceText(presence),
          sealing,
          fingerprint(peer),
          known === 'CHANGED' ? output.paint.red(known) : known,
        ]),
      ),
  )
  for (const { name } of rows.filter(({ known }) => known === 'CHANGED')) {
    const which = contacts.isVerified(contacts.keyOf(name)!) ? 'the one that you verified' : 'the pinned one'
    output.warn(`The key of ${escapeName(name)} differs from ${which}. Compare fingerprints before you accept it.`)
  }
}

/** Returns how this profile and its sessions seal for a peer. */
export async function sealingsOf({ profile }: Shell): Promise<(peer: PeerKey) => 'ratchet' | 'box key'> {
  const ratcheted = await ratchetedPeersIn(profile.folder)
  return (peer) => (ratcheted.has(peer) ? 'ratchet' : 'box key')
}

/** The reason of an unproven member is in a warning, and in the JSON form. */
const shortStanding = (standing: ShownStanding): string =>
  standing === 'proven' || standing === 'unknown' ? standing : 'unproven'

interface Presence {
  readonly isOnline: boolean
  readonly availability: Availability | null
  readonly summary: string
}

function presenceOf(entry: PresenceEntry | undefined): Presence {
  if (!entry) return { isOnline: false, availability: null, summary: '' }
  return { isOnline: true, availability: entry.availability, summary: entry.summary }
}

/** Returns a peer's status; empty if it is offline. */
export const presenceText = ({ availability, summary }: Pick<Presence, 'availability' | 'summary'>): string =>
  availability === null ? '' : escapeName(summary ? `${availability}: ${summary}` : availability)

type Known = 'you' | 'verified' | 'yes' | '' | 'CHANGED'

export function knownAs({ name, peer }: MemberEntry, contacts: Contacts, own: string): Known {
  if (peer === own) return 'you'
  const pinned = contacts.keyOf(name)
  if (pinned === undefined) return ''
  if (pinned !== peer) return 'CHANGED'
  return contacts.isVerified(peer) ? 'verified' : 'yes'
}

interface Acceptance {
  readonly name: string
  readonly members: readonly MemberEntry[]
  readonly contacts: Contacts
}

async function acceptKey(shell: Shell, { name, members, contacts }: Acceptance): Promise<void> {
  const { output } = shell
  const { peer } = memberNamed(name, members)
  const former = contacts.keyOf(name)
  if (former) await acceptRecovery(shell, { former, successor: peer })
  const wasVerified = former !== undefined && former !== peer && contacts.isVerified(former)
  await contacts.accept(name, peer)
  await output.result({ name, key: peer, former: former ?? null, wasVerified }, () =>
    output.facts([
      ['name', escapeName(name)],
      ['key now', fingerprint(peer)],
      ['before', former ? fingerprint(former) + (wasVerified ? ', verified' : '') : 'unknown'],
    ]),
  )
  if (wasVerified) output.warn(`You verified the former key of ${escapeName(name)}. The new key is not verified yet.`)
}

/** Marks a contact as verified. @throws OperatingError `usage`, `name_unknown`, `name_unusable`, `fingerprint_differs` */
async function verifyKey({ output }: Shell, { name, members, contacts }: Acceptance, typed: string): Promise<void> {
  const print = readFingerprint(typed)
  if (!print) throw needsFingerprint()
  const { peer } = memberNamed(name, members)
  if (!isUsableName(name))
    throw new OperatingError('name_unusable', 'You can verify a member, not its devices: the member signs for them.')
  if (fingerprint(peer) !== print)
    throw new OperatingError(
      'fingerprint_differs',
      `THE FINGERPRINT DIFFERS. The broker lists ${fingerprint(peer)} for ${escapeName(name)}. Someone may be impersonating ${escapeName(name)}, so don't send them anything secret.`,
    )
  await contacts.verify(name, peer)
  await output.result({ name, key: peer, verified: true }, () =>
    output.facts([
      ['name', escapeName(name)],
      ['key', fingerprint(peer)],
      ['verified', 'yes'],
    ]),
  )
}

/** Deletes the ratchets of the member, in the process that has its store open, and those of idle sessions. */
async function forgetRatchets(shell: Shell, { name, peer }: MemberEntry): Promise<void> {
  const { output, profile } = shell
  const hadRatchets = (await ratchetedPeersIn(profile.folder)).has(peer)
  await callPeer(shell, { method: 'forgetRatchets', params: peer })
  const sessionsInUse = await forgetSessionRatchets(profile.folder, peer)
  await output.result({ name, key: peer, hadRatchets, sessionsInUse }, () =>
    output.facts([
      ['name', escapeName(name)],
      ['key', fingerprint(peer)],
      ['ratchets', hadRatchets ? 'deleted' : 'there were none'],
    ]),
  )
  for (const label of sessionsInUse)
    output.warn(
      `The session ${escapeName(label)} keeps its ratchets with ${escapeName(name)}, because a process has it open. End that process, and run this command again.`,
    )
}

const needsFingerprint = (): OperatingError =>
  new OperatingError(
    'usage',
    'Give --verify NAME and the whole FINGERPRINT, which the peer reads to you from "sealpost key fingerprint".',
  )

/** @throws OperatingError `name_unknown` */
function memberNamed(name: string, members: readonly MemberEntry[]): MemberEntry {
  const member = members.find((entry) => entry.name === name)
  if (!member) throw unknownMember(name, members)
  return member
}

/**
 * `sealpost consent` shows and changes which peers may send to you. The broker enforces it even while you are offline.
 */
export function consentCommand(run: RunAction): Command {
  return new Command('consent')
    .description('Manage who may write to you')
    .addCommand(showCommand(run))
    .addCommand(setCommand(run))
    .addCommand(nameCommand(run, 'allow', 'Allow peers to write to you, even if the policy is contacts'))
    .addCommand(
      nameCommand(
        run,
        'block',
        "Block peers, so that they can't write to you. Their earlier messages stay in your queue.",
      ),
    )
    .addCommand(nameCommand(run, 'forget', 'Remove peers from the lists of allowed and blocked peers'))
    .addHelpText(
      'after',
      examples('sealpost consent show', 'sealpost consent set contacts', 'sealpost consent allow bob alice'),
    )
}

function showCommand(run: RunAction): Command {
  return new Command('show')
    .description('Print who can write to you, and the peers that you allow or block')
    .addHelpText('after', examples('sealpost consent show', 'sealpost consent show --json'))
    .action(run((shell) => update(shell, {})))
}

function setCommand(run: RunAction): Command {
  return new Command('set')
    .description(
      'Set who can write to you. With open, all peers except the peers that you block can write to you; with contacts, only the peers that you allow.',
    )
    .addArgument(new Argument('<POLICY>', 'who can write to you').choices(['open', 'contacts']))
    .addHelpText('after', examples('sealpost consent set contacts', 'sealpost consent set open'))
    .action(run((shell, _options: object, policy: 'open' | 'contacts') => update(shell, { policy })))
}

function nameCommand(run: RunAction, verb: 'allow' | 'block' | 'forget', description: string): Command {
  return new Command(verb)
    .description(description)
    .argument('<NAME...>', 'names, fingerprints or keys (64 hex digits) of peers')
    .addHelpText('after', examples(`sealpost consent ${verb} bob`))
    .action(
      run(async (shell, _options: object, words: readonly string[]) => {
        const keys: PeerKey[] = []
        for (const word of words) keys.push(await resolveRecipient(shell, word))
        await update(shell, { [verb]: keys })
      }),
    )
}

async function update(shell: Shell, params: ConsentUpdate): Promise<void> {
  const state = await callPeer(shell, { method: 'consent', params })
  const contacts = await Contacts.read(shell.profile.contactsFile)
  await shell.output.result(state, () => describe(shell, state, contacts))
}

function describe({ output }: Shell, { policy, allowed, blocked }: ConsentState, contacts: Contacts): string {
  const names = (keys: ConsentState['allowed']) =>
    keys.map((key) => escapeName(labelOf(contacts, key))).join(', ') || 'nobody'
  return output.facts([
    ['who can write to you', policy === 'open' ? 'all peers except blocked ones (open)' : 'allowed peers (contacts)'],
    ['allowed', names(allowed)],
    ['blocked', names(blocked)],
  ])
}
