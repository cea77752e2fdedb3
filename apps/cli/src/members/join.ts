/** `sealpost join`: becomes a member of the mesh that an invite is for. One profile belongs to one mesh. */
import { fingerprint, isDeviceInvite, readDeviceInvite, readInvite, ready } from '@sealpost/identity'
import { join, joinAsDevice } from '@sealpost/sdk/join'
import { OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { durationOption } from '../args.ts'
import { ensureKeys, userName } from '../broker/first-mesh.ts'
import { dialWarning } from '../broker/health.ts'
import { abortable, withDeadline } from '../deadline.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { escapeName } from '../terminal-text.ts'

interface JoinOptions {
  readonly name?: string
  readonly timeout: number
}

export function joinCommand(run: RunAction): Command {
  return new Command('join')
    .description('become a member by an invite, or a device of yours; keys are made unless the profile has some')
    .argument('<INVITE>', 'the line that begins with sealpost1: or sealpostdevice1:')
    .option(
      '-n, --name <NAME>',
      'what others shall call you; default: the name of the profile, or of your account. A device is called PERSON/LABEL',
    )
    .addOption(durationOption('--timeout <TIME>', 'how long to wait for the broker', '20s'))
    .addHelpText('after', examples('sealpost join sealpost1:… --name bob', 'sealpost join sealpost1:… --profile work'))
    .action(run(joinMesh))
}

async function joinMesh(asked: Shell, options: JoinOptions, invite: string): Promise<void> {
  await ready()
  if (invite.trim() === '')
    throw new OperatingError('invite_malformed', 'The invite is empty: the command that was to print it has failed.')
  const isDevice = isDeviceInvite(invite)
  const { url: dialled } = isDevice ? readDeviceInvite(invite) : readInvite(invite) // before keys are made for nothing
  const { profile, output } = asked
  const former = await profile.findMembership()
  if (former)
    throw new OperatingError(
      'profile_joined',
      `The profile ${profile.name} is a member of the mesh ${former.meshId} already: choose another with --profile.`,
    )
  const warning = dialWarning(dialled)
  if (warning !== null) output.warn(escapeName(warning))
  const key = await ensureKeys(profile)
  const { identity } = await profile.readKeys()
  using shell = withDeadline(asked, options.timeout, `The broker did not answer within ${options.timeout} s.`)
  const name = options.name ?? (profile.name === 'default' ? userName() : profile.name)
  const joined = isDevice ? joinAsDevice({ invite, identity }) : join({ invite, identity, name })
  const membership = await abortable(joined, shell.signal)
  const { url, brokerKey, meshId } = membership
  await profile.writeMembership({ url, brokerKey, meshId, name: membership.name })
  await output.result({ profile: profile.name, key, name: membership.name, url, meshId }, () =>
    output.facts([
      ['name', escapeName(membership.name)],
      ['mesh', meshId],
      ['broker', escapeName(url)],
      ['your key', fingerprint(key)],
    ]),
  )
}
