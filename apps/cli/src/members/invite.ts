/** `sealpost invite` creates, shows and revokes invites; `sealpost join` uses one. Creation is offline. */
import {
  createInvite,
  fingerprint,
  type Invite,
  isDeviceInvite,
  isDialable,
  nameRoot,
  nameRootForMany,
  type RootedInvite,
  readAnyInvite,
  readDeviceInvite,
  ready,
} from '@sealpost/identity'
import { join, joinAsDevice } from '@sealpost/sdk/join'
import { type InviteId, isHex, OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { renderUnicodeCompact } from 'uqr'
import { dialWarning } from '../broker/broker-supervisor.ts'
import { escapeName, type Output } from '../output.ts'
import { KEYCHAIN_OPTION } from '../profile/keychain.ts'
import { ensureKeys, userName } from '../profile/profile.ts'
import { openProfileProofs, rootMissing } from '../profile/proofs.ts'
import { callPeer } from '../session/peer-session.ts'
import { durationOption, parseInteger } from '../settings.ts'
import { abortable, examples, type RunAction, type Shell, withDeadline } from '../shell.ts'

export function inviteCommand(run: RunAction): Command {
  return new Command('invite')
    .description('Manage invites to the mesh. Only admins may create and revoke invites.')
    .addCommand(createCommand(run))
    .addCommand(showCommand(run))
    .addCommand(revokeCommand(run))
    .addHelpText('after', examples('sealpost invite create', 'sealpost invite revoke 0195…'))
}

interface CreateOptions {
  readonly uses: number
  readonly expires: number
  readonly role: 'member' | 'admin'
  readonly url?: string
  readonly qr: boolean
  readonly line?: '1' | '2' | '3'
}

function createCommand(run: RunAction): Command {
  return new Command('create')
    .description('Create an invite and print it as one line and as a QR code. Anyone who has the invite can use it.')
    .option('--uses <N>', 'how many peers can join with the invite', parseInteger(1, 65_535), 1)
    .addOption(durationOption('--expires <TIME>', 'how long the invite is valid, such as 2h or 7d', '24h'))
    .addOption(
      new Option('--role <ROLE>', 'the role of the peers that join').choices(['member', 'admin']).default('member'),
    )
    .option('--url <URL>', 'the URL of the broker in the invite; default: the URL that this profile uses')
    .addOption(
      new Option(
        '--line <FORM>',
        'the form of the invite: 1 can be read by all earlier versions; 2 names the root of the mesh; with 3, those who join an invite of several uses need no endorsement; default in a mesh with a root: 3 with --uses above 1, otherwise 2',
      ).choices(['1', '2', '3']),
    )
    .option('--no-qr', 'do not print a QR code')
    .addHelpText(
      'after',
      examples(
        'sealpost invite create',
        'sealpost invite create --uses 10 --expires 7d',
        'sealpost invite create --json',
      ),
    )
    .action(run(create))
}

async function create(shell: Shell, options: CreateOptions): Promise<void> {
  const { profile, output } = shell
  if (options.url !== undefined && !isDialable(options.url))
    throw new OperatingError('usage', '--url must be a URL such as wss://broker.example or ws://127.0.0.1:7450.')
  const { identity } = await profile.readKeys()
  const { meshId, url, brokerKey } = await profile.readMembership()
  const plain = createInvite(identity.signing, {
    meshId,
    url: options.url ?? url,
    brokerKey,
    notAfterMs: Date.now() + options.expires * 1000,
    usesMax: options.uses,
    role: options.role,
  })
  const text = options.line === '1' ? plain : await withRoot(shell, plain, options)
  const { invite, root, admission } = readAnyInvite(text)
  const qr = options.qr && !output.isJson && !output.isQuiet ? qrOf(text) : ''
  await output.result({ invite: text, ...factsOf(invite), root }, () => text)
  if (qr) output.show(qr)
  output.info(`admits ${uses(invite)} as ${invite.role} until ${timeOf(invite)}`)
  output.info(`to join:    sealpost join ${text.slice(0, 14)}…`)
  if (root !== null && invite.usesMax > 1 && admission === null)
    output.info(
      'to prove those who join with it:  sealpost root endorse NAME (an invite with one use needs no endorsement)',
    )
  output.info(`to revoke:  sealpost invite revoke ${invite.inviteId}`)
}

/** Names the root of the mesh in the invite, if this profile knows one. @throws OperatingError `root_missing` */
async function withRoot(shell: Shell, text: string, { line, uses }: CreateOptions): Promise<string> {
  const { identity } = await shell.profile.readKeys()
  await using proofs = await openProfileProofs(shell)
  const { root, revocationCount: revocations } = proofs
  const isForMany = line === undefined ? uses > 1 : line === '3'
  const named = isForMany ? nameRootForMany : nameRoot
  if (root !== null) return named(identity.signing, text, { root, revocations })
  if (line !== undefined) throw rootMissing()
  return text
}

function showCommand(run: RunAction): Command {
  return new Command('show')
    .description(
      'Print the contents of an invite. The command does not contact the broker and does not use up the invite.',
    )
    .argument('<INVITE>', 'the invite, which begins with sealpost1:, sealpost2: or sealpost3:')
    .addHelpText('after', examples('sealpost invite show sealpost1:…'))
    .action(run(show))
}

async function show({ output }: Shell, _options: object, text: string): Promise<void> {
  await ready()
  const { invite, root } = readAnyInvite(text)
  await output.result({ ...factsOf(invite), root }, () => describe({ invite, root }, output))
}

function revokeCommand(run: RunAction): Command {
  return new Command('revoke')
    .description('Revoke an invite. Members that joined with the invite remain members.')
    .argument('<ID>', 'the id of the invite, or the invite itself')
    .addHelpText('after', examples('sealpost invite revoke 0195f3c1a2b34d5e8f90a1b2c3d4e5f6'))
    .action(run(revoke))
}

async function revoke(shell: Shell, _options: object, word: string): Promise<void> {
  await ready()
  const inviteId = isHex(word, 16) ? (word as string as InviteId) : idOf(word)
  await callPeer(shell, { method: 'revokeInvite', params: inviteId })
  if (shell.output.isJson) await shell.output.result({ inviteId, revoked: true }, () => '')
  else shell.output.info(`revoked the invite ${inviteId}`)
}

/** Returns the id of an invite. @throws OperatingError `usage`, `invite_malformed` */
function idOf(word: string): InviteId {
  if (/^sealpost[123]:/.test(word.trim())) return readAnyInvite(word).invite.inviteId
  throw new OperatingError('usage', 'Give the id of the invite (32 hex digits) or the whole invite.')
}

function factsOf({ inviteId, meshId, url, brokerKey, issuer, role, usesMax, notAfterMs }: Invite) {
  return { inviteId, meshId, url, brokerKey, issuer, role, usesMax, notAfterMs }
}

function describe({ invite, root }: Pick<RootedInvite, 'invite' | 'root'>, output: Output): string {
  const remaining = invite.notAfterMs > Date.now() ? '' : output.paint.red(' (over)')
  return output.facts([
    ['id', invite.inviteId],
    ['broker', escapeName(invite.url)],
    ['broker key', fingerprint(invite.brokerKey)],
    ['mesh', invite.meshId],
    ['from', fingerprint(invite.issuer)],
    ['root', root === null ? 'not named' : fingerprint(root)],
    ['admits', `${uses(invite)} as ${invite.role}`],
    ['until', `${timeOf(invite)}${remaining}`],
  ])
}

const uses = ({ usesMax }: Invite): string => (usesMax === 1 ? 'one' : `up to ${usesMax}`)

const timeOf = ({ notAfterMs }: Invite): string => {
  const time = new Date(notAfterMs)
  return Number.isNaN(time.getTime()) ? 'no limit' : time.toLocaleString('sv-SE').slice(0, 16)
}

/** Draws two modules per character, with the light border that scanners need. */
const qrOf = (text: string): string => renderUnicodeCompact(text, { border: 2 })

interface JoinOptions {
  readonly name?: string
  readonly keychain?: boolean
  readonly timeout: number
}

export function joinCommand(run: RunAction): Command {
  return new Command('join')
    .description(
      'Join a mesh with an invite, or enrol this machine as one of your devices. If the profile has no keys, the command generates them.',
    )
    .argument('<INVITE>', 'the invite (sealpost1:… or sealpost2:…) or the enrolment code (sealpostdevice1:…)')
    .option(
      '-n, --name <NAME>',
      'your name in the mesh; default: the name of the profile, or of your account. A device is always named USER/LABEL',
    )
    .option(...KEYCHAIN_OPTION)
    .addOption(durationOption('--timeout <TIME>', 'how long to wait for the broker', '20s'))
    .addHelpText('after', examples('sealpost join sealpost1:… --name bob', 'sealpost join sealpost1:… --profile work'))
    .action(run(joinMesh))
}

async function joinMesh(asked: Shell, options: JoinOptions, invite: string): Promise<void> {
  await ready()
  if (invite.trim() === '')
    throw new OperatingError(
      'invite_malformed',
      'The invite is empty. The command that should have printed it probably failed.',
    )
  const isDevice = isDeviceInvite(invite)
  const { url: dialled } = isDevice ? readDeviceInvite(invite) : readAnyInvite(invite).invite // refuses an invalid invite before keys are generated
  const { profile, output } = asked
  const former = await profile.findMembership()
  if (former)
    throw new OperatingError(
      'profile_joined',
      `The profile ${profile.name} is already a member of the mesh ${former.meshId}. Choose another profile with --profile.`,
    )
  const warning = dialWarning(dialled)
  if (warning !== null) output.warn(escapeName(warning))
  const key = await ensureKeys(profile, options)
  const { identity } = await profile.readKeys()
  using shell = withDeadline(asked, options.timeout, `The broker did not respond within ${options.timeout} s.`)
  const name = options.name ?? (profile.name === 'default' ? userName() : profile.name)
  const joined = isDevice ? joinAsDevice({ invite, identity }) : join({ invite, identity, name })
  const membership = await abortable(joined, shell.signal)
  const { url, brokerKey, meshId, root, revocations = 0 } = membership
  const trusted = root === undefined ? {} : { root, revocations }
  await profile.writeMembership({ url, brokerKey, meshId, name: membership.name, ...trusted })
  await output.result({ profile: profile.name, key, name: membership.name, url, meshId, root: root ?? null }, () =>
    output.facts([
      ['name', escapeName(membership.name)],
      ['mesh', meshId],
      ...(root ? [['root', fingerprint(root)] as const] : []),
      ['broker', escapeName(url)],
      ['your key', fingerprint(key)],
    ]),
  )
}
