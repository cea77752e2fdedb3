/** `sealpost key heirs` names the devices that may certify a successor of your key; `sealpost key recover` does so on a device. */
import { fingerprint, generateBoxKeys, ready } from '@sealpost/identity'
import { SealpostError } from '@sealpost/sdk'
import type { Heir, LostKey, Recoveries } from '@sealpost/sdk/recoveries'
import { localSessions } from '@sealpost/sdk/sessions'
import { OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { typedName, unknownName } from '../members/names.ts'
import { escapeName } from '../output.ts'
import { callPeer } from '../session/peer-session.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { ensureKeys, Profile } from './profile.ts'
import { dayOf, openProfileRecoveries } from './recoveries.ts'

export function heirsCommand(run: RunAction): Command {
  return new Command('heirs')
    .description('Manage the devices that may certify a new key for you, if you lose the key of this profile')
    .addCommand(
      changeCommand(run, 'add', 'Allow devices to certify a new key for you. At most four devices can be heirs.'),
    )
    .addCommand(changeCommand(run, 'remove', 'Remove devices from your heirs'))
    .addCommand(listCommand(run))
    .addHelpText('after', examples('sealpost key heirs add laptop', 'sealpost key heirs list'))
}

function changeCommand(run: RunAction, verb: 'add' | 'remove', description: string): Command {
  return new Command(verb)
    .description(description)
    .argument('<LABEL...>', 'labels of your devices, from "sealpost device list"')
    .addHelpText('after', examples(`sealpost key heirs ${verb} laptop`))
    .action(run((shell, _options: object, labels: readonly string[]) => change(shell, verb, labels.map(typedName))))
}

function listCommand(run: RunAction): Command {
  return new Command('list')
    .description('List your heirs')
    .addHelpText('after', examples('sealpost key heirs list', 'sealpost key heirs list --json'))
    .action(
      run(async (shell) => {
        await using recoveries = await openProfileRecoveries(shell)
        await show(shell, await recoveries.heirs())
      }),
    )
}

const HEIRS_MAX = 4

async function change(shell: Shell, verb: 'add' | 'remove', labels: readonly string[]): Promise<void> {
  await checkIsUser(shell)
  await using recoveries = await openProfileRecoveries(shell)
  const heirs = await recoveries.heirs()
  const next = verb === 'add' ? await added(shell, heirs, labels) : removed(heirs, labels)
  if (next.length > HEIRS_MAX)
    throw new OperatingError('too_many_heirs', `At most ${HEIRS_MAX} devices can be heirs. Remove one first.`)
  await recoveries.nameHeirs(next)
  await show(shell, next)
}

/** @throws OperatingError `not_owner` */
async function checkIsUser({ profile }: Shell): Promise<void> {
  if ((await profile.readMembership()).name.includes('/'))
    throw new OperatingError('not_owner', 'This profile is a device. Run the command with the profile of the user.')
}

async function added(shell: Shell, heirs: readonly Heir[], labels: readonly string[]): Promise<Heir[]> {
  const devices = await callPeer(shell, { method: 'devices', params: null })
  const sessions = new Set((await localSessions(shell.profile.folder)).map(({ label }) => label))
  const named = labels.map((word) => {
    const device = devices.find(({ label }) => label === word)
    if (!device)
      throw unknownName('unknown_device', `You have no device ${escapeName(word)}.`, {
        word,
        names: devices.map(({ label }) => label),
      })
    if (sessions.has(word))
      throw new OperatingError(
        'heir_is_session',
        `${escapeName(word)} is a session of this profile. You would lose its keys together with the key of this profile, so it can't be an heir.`,
      )
    return { device: device.key, label: device.label }
  })
  return [...heirs.filter(({ device }) => !named.some((heir) => heir.device === device)), ...named]
}

function removed(heirs: readonly Heir[], labels: readonly string[]): Heir[] {
  for (const word of labels)
    if (!heirs.some(({ label }) => label === word))
      throw unknownName('unknown_device', `${escapeName(word)} is none of your heirs.`, {
        word,
        names: heirs.map(({ label }) => label),
      })
  return heirs.filter(({ label }) => !labels.includes(label))
}

async function show({ output }: Shell, heirs: readonly Heir[]): Promise<void> {
  await output.results(
    heirs.map(({ device, label }) => ({ label, key: device, fingerprint: fingerprint(device) })),
    () =>
      output.table(
        ['HEIR', 'FINGERPRINT'],
        heirs.map(({ device, label }) => [escapeName(label), fingerprint(device)]),
      ),
  )
}

/**
 * Rotates the identity key, and names the same heirs with the new key. A failure to name them is only a warning.
 * @throws the errors of `rotate`
 */
export async function keepHeirs<T>(shell: Shell, rotate: () => Promise<T>): Promise<T> {
  const heirs = await currentHeirs(shell)
  const result = await rotate()
  if (heirs.length === 0) return result
  await shell.profile.readKeyFile() // another process may have rotated the key
  try {
    await using recoveries = await openProfileRecoveries(shell)
    await recoveries.nameHeirs(heirs)
  } catch (error) {
    shell.output.warn(`your heirs are not named with the new key: ${(error as Error).message}`)
  }
  return result
}

/** Returns the heirs; none if the broker does not reply. */
async function currentHeirs(shell: Shell): Promise<readonly Heir[]> {
  try {
    await using recoveries = await openProfileRecoveries(shell)
    return await recoveries.heirs()
  } catch (error) {
    if (!(error instanceof SealpostError)) throw error
    return []
  }
}

/** Removes a device from the heirs of the profile's user, if it is one. Never throws. */
export async function dropHeir(shell: Shell, device: string): Promise<void> {
  try {
    await using recoveries = await openProfileRecoveries(shell)
    const heirs = await recoveries.heirs()
    const left = heirs.filter((heir) => heir.device !== device)
    if (left.length < heirs.length) await recoveries.nameHeirs(left)
  } catch (error) {
    shell.output.warn(`the device may still be an heir: ${(error as Error).message}`)
  }
}

export function recoverCommand(run: RunAction): Command {
  return new Command('recover')
    .description('On a device that is an heir: certify a new key for its user, who has lost the former one')
    .argument('[PROFILE]', 'the new profile of the user, on this machine; its keys are generated unless it has some')
    .option(
      '--cancel',
      'with the profile of the user: cancel a recovery permanently, and remove its device from the heirs',
    )
    .addHelpText(
      'after',
      `
The new key takes effect after seven days. Run the same command again then. Until then, the former key can cancel the recovery.
Messages that were sealed to the lost key can't be opened. Contacts have to compare your fingerprint again.
${examples('sealpost key recover alice --profile laptop', 'sealpost key recover --cancel')}`,
    )
    .action(run(recover))
}

async function recover(shell: Shell, { cancel }: { cancel?: true }, target?: string): Promise<void> {
  await ready()
  if ((cancel === undefined) === (target === undefined))
    throw new OperatingError('usage', 'Name the new PROFILE, or use --cancel.')
  await using recoveries = await openProfileRecoveries(shell)
  return target === undefined ? cancelRecovery(shell, recoveries) : recoverInto(shell, recoveries, target)
}

async function cancelRecovery(shell: Shell, recoveries: Recoveries): Promise<void> {
  await checkIsUser(shell)
  const { label, successor } = await recoveries.cancel()
  await shell.output.result({ cancelled: successor, heir: label }, () =>
    [
      `cancelled the recovery, and removed ${escapeName(label)} from your heirs`,
      `if the device was stolen, run: sealpost device remove '${escapeName(label)}'`,
    ].join('\n'),
  )
}

async function recoverInto(shell: Shell, recoveries: Recoveries, target: string): Promise<void> {
  const { settings, profile, output } = shell
  const next = new Profile(settings, target, profile.passphrase)
  if (await next.findMembership())
    throw new OperatingError('profile_joined', `The profile ${target} is already a member of a mesh. Name another one.`)
  if (!next.hasKeys || !recoveries.findBySuccessor(await next.readOwnKey()))
    await prepareKeys(next, await recoveries.lostKey())
  const { identity } = await next.readKeys()
  const { state, waitMs } = await recoveries.recover(identity)
  if (state === 'done') await joinAsUser(shell, next)
  const key = identity.signing.publicKey
  const untilMs = Date.now() + waitMs
  await output.result(
    { state, key, fingerprint: fingerprint(key), profile: target, ...(state === 'pending' && { untilMs }) },
    () =>
      output.facts([
        ['state', state === 'done' ? 'done: the new key is in force' : `pending until ${dayOf(untilMs)}`],
        ['new key', fingerprint(key)],
        ['profile', target],
        [
          'next',
          state === 'done' ? 'contacts compare your fingerprint again' : `run the same command after ${dayOf(untilMs)}`,
        ],
      ]),
  )
}

/** Generates the keys of the new profile. The epoch of its box key follows that of the lost one. */
async function prepareKeys(next: Profile, { boxEpoch }: LostKey): Promise<void> {
  await ensureKeys(next)
  const file = await next.readKeyFile()
  const { signing, box } = file.identity
  if (box.epoch <= boxEpoch)
    await next.replaceKeys({ ...file, identity: { signing, box: generateBoxKeys(boxEpoch + 1) } })
}

async function joinAsUser({ profile }: Shell, next: Profile): Promise<void> {
  const membership = await profile.readMembership()
  await next.writeMembership({ ...membership, name: membership.name.split('/', 1)[0]! })
}
