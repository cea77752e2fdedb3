/** `sealpost device` adds, lists and removes a user's devices, each with its own keys. */
import { fingerprint, readFingerprint } from '@sealpost/identity'
import type { PeerKey } from '@sealpost/sdk'
import type { Device } from '@sealpost/sdk/users'
import { Command, Option } from 'commander'
import { renderUnicodeCompact } from 'uqr'
import { escapeName } from '../output.ts'
import { isPeerKey } from '../profile/contacts.ts'
import { openProfileProofs } from '../profile/proofs.ts'
import { dropHeir } from '../profile/recover.ts'
import { callPeer } from '../session/peer-session.ts'
import { durationOption } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { resolveRecipient } from './member-list.ts'
import { typedName, unknownName } from './names.ts'

export function deviceCommand(run: RunAction): Command {
  return new Command('device')
    .description('Manage your other devices: each has its own keys and acts for you')
    .addCommand(addCommand(run))
    .addCommand(listCommand(run))
    .addCommand(removeCommand(run))
    .addHelpText('after', examples('sealpost device add phone', 'sealpost device list', 'sealpost device remove phone'))
}

interface AddOptions {
  readonly expires: number
  readonly qr: boolean
  readonly line?: '1'
}

function addCommand(run: RunAction): Command {
  return new Command('add')
    .description('Create a code that enrols another machine as your device. The code works once.')
    .argument('<LABEL>', 'the label of the device, which other members see as NAME/LABEL')
    .addOption(durationOption('--expires <TIME>', 'how long the code is valid, such as 10m or 2h', '1h'))
    .addOption(
      new Option(
        '--line <FORM>',
        'the form of the code: 1 can be read by earlier versions; default: the code names the root of the mesh, if there is one',
      ).choices(['1']),
    )
    .option('--no-qr', 'do not print a QR code')
    .addHelpText(
      'after',
      `
Anyone who gets the code before you use it can become this device, so transfer it yourself. Afterwards "device list" shows the device.
${examples('sealpost device add phone', 'sealpost device add laptop --expires 10m --no-qr')}`,
    )
    .action(run(add))
}

async function add(shell: Shell, { expires, qr, line }: AddOptions, label: string): Promise<void> {
  const { output } = shell
  const joinByMs = Date.now() + expires * 1000
  const root = line === '1' ? {} : await knownRoot(shell)
  const invite = await callPeer(shell, { method: 'inviteDevice', params: { label, joinByMs, ...root } })
  await output.result({ invite, label, joinByMs }, () => invite)
  if (qr && !output.isJson) output.show(renderUnicodeCompact(invite, { border: 2 }))
  output.info(`on the other machine: sealpost join ${invite.slice(0, 16)}…`)
}

/** Returns the root that this profile knows, for the device to pin. */
async function knownRoot(shell: Shell): Promise<{ root?: PeerKey; revocations?: number }> {
  await using proofs = await openProfileProofs(shell)
  const { root, revocationCount: revocations } = proofs
  return root === null ? {} : { root, revocations }
}

function listCommand(run: RunAction): Command {
  return new Command('list')
    .description('List the devices that a user has vouched for')
    .argument('[NAME]', 'the user whose devices to list; default: you')
    .addHelpText('after', examples('sealpost device list', 'sealpost device list bob --json'))
    .action(run(list))
}

async function list(shell: Shell, _options: object, word?: string): Promise<void> {
  const person = word === undefined ? null : await resolveRecipient(shell, word)
  const devices = await callPeer(shell, { method: 'devices', params: person })
  const { output } = shell
  await output.results(
    devices.map((device) => ({ ...device, fingerprint: fingerprint(device.key) })),
    () =>
      output.table(
        ['LABEL', 'FINGERPRINT', 'UNTIL'],
        devices.map(({ label, key, notAfterMs }) => [escapeName(label), fingerprint(key), dayOf(notAfterMs)]),
      ),
  )
}

function removeCommand(run: RunAction): Command {
  return new Command('remove')
    .description(
      'Remove one of your devices, immediately and permanently. Messages that are queued for the device are lost.',
    )
    .argument('<LABEL>', "the device's label, fingerprint or key (64 hex digits)")
    .addHelpText('after', examples('sealpost device remove phone'))
    .action(run(remove))
}

async function remove(shell: Shell, _options: object, word: string): Promise<void> {
  const device = await deviceNamed(shell, { person: null, word })
  await dropHeir(shell, device)
  await callPeer(shell, { method: 'removeDevice', params: device })
  if (shell.output.isJson) await shell.output.result({ device, removed: true }, () => '')
  else shell.output.info(`removed the device ${escapeName(word)}`)
}

/** Returns the device of this name. @throws OperatingError `unknown_device` */
async function deviceNamed(shell: Shell, { person, word }: { person: PeerKey | null; word: string }): Promise<PeerKey> {
  const devices: readonly Device[] = await callPeer(shell, { method: 'devices', params: person })
  const print = readFingerprint(word)
  const label = typedName(word)
  const isMeant = (device: Device) =>
    print ? fingerprint(device.key) === print : device.label === label || device.key === word
  const found = devices.find(isMeant)
  if (found) return found.key
  if (isPeerKey(word)) return word // the device may be removed already, so the broker decides
  throw unknownName('unknown_device', `You have no device ${escapeName(word)}. "device list" lists your devices.`, {
    word,
    names: devices.map((device) => device.label),
  })
}

const dayOf = (ms: number): string => new Date(Math.min(ms, 8e15)).toISOString().slice(0, 10)
