/** `sealpost key` shows fingerprints and rotates keys; `sealpost keygen` generates them. */
import { fingerprint, ready } from '@sealpost/identity'
import type { PeerKey } from '@sealpost/sdk'
import { Command } from 'commander'
import { resolveRecipient } from '../members/member-list.ts'
import { escapeName } from '../output.ts'
import { callPeer } from '../session/peer-session.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'

export function keyCommand(run: RunAction): Command {
  return new Command('key')
    .description('your keys: compare them, change them')
    .addCommand(fingerprintCommand(run))
    .addCommand(rotateCommand(run))
    .addHelpText('after', examples('sealpost key fingerprint', 'sealpost key fingerprint bob', 'sealpost key rotate'))
}

function fingerprintCommand(run: RunAction): Command {
  return new Command('fingerprint')
    .description('a key in a form to compare aloud; the key of NAME as this profile knows it, or your own')
    .argument('[NAME]', 'a name, a fingerprint, or a key of 64 hex digits')
    .addHelpText('after', examples('sealpost key fingerprint', 'sealpost key fingerprint bob --json'))
    .action(run(show))
}

async function show(shell: Shell, _options: object, word?: string): Promise<void> {
  await ready()
  const { output, profile } = shell
  const key =
    word === undefined ? (await profile.readKeys()).identity.signing.publicKey : await resolveRecipient(shell, word)
  const print = fingerprint(key)
  await output.result({ name: word ?? null, key, fingerprint: print }, () =>
    output.facts([
      ['of', word === undefined ? 'you' : escapeName(word)],
      ['fingerprint', print],
    ]),
  )
}

function rotateCommand(run: RunAction): Command {
  return new Command('rotate')
    .description('make a new box key and publish it; who you are, and your fingerprint, stay the same')
    .option('--identity', 'a new identity key, too: your fingerprint is another one then; others follow by themselves')
    .addHelpText(
      'after',
      `
Mail that was sealed to the key before is still opened: that key stays in the key file for 60 days. So make a new copy of
the key file if you keep one. With --identity your name, role, consent, devices and waiting mail stay yours; groups name keys,
so their owners put your new one in. Said again after it broke off, it resumes where it was.
${examples('sealpost key rotate', 'sealpost key rotate --identity')}`,
    )
    .action(run(rotate))
}

async function rotate(shell: Shell, { identity = false }: { identity?: boolean }): Promise<void> {
  if (identity) return rotateIdentity(shell)
  const boxEpoch = await callPeer(shell, { method: 'rotateBoxKey', params: null })
  if (shell.output.isJson) await shell.output.result({ boxEpoch }, () => '')
  else shell.output.info(`others seal to your box key number ${boxEpoch} from now on`)
}

async function rotateIdentity(shell: Shell): Promise<void> {
  const key = await callPeer(shell, { method: 'rotateIdentity', params: null }).catch((error) =>
    retryWithNextKeys(shell, error),
  )
  const print = fingerprint(key)
  await shell.output.result({ key, fingerprint: print }, () => shell.output.facts([['your key now', print]]))
}

/**
 * After a lost reply the broker may know the next key only. If it refuses the former key and accepts the next, the
 * rotation succeeded.
 */
async function retryWithNextKeys(shell: Shell, error: { code?: string }): Promise<PeerKey> {
  const { profile } = shell
  if (error.code !== 'auth_failed' || !(await profile.findNextKeys())) throw error
  await profile.swapKeys()
  try {
    await callPeer(shell, { method: 'sessionFacts', params: null })
  } catch {
    await profile.swapKeys()
    throw error
  }
  await profile.deleteNextKeys()
  return (await profile.readKeys()).identity.signing.publicKey
}

export function keygenCommand(run: RunAction): Command {
  return new Command('keygen')
    .description('make the keys of a profile; existing ones are never touched')
    .option('--passphrase', 'lock them with a passphrase: typed, from SEALPOST_PASSPHRASE, or from --passphrase-file')
    .addHelpText(
      'after',
      examples(
        'sealpost keygen',
        'sealpost keygen --profile work --json',
        'sealpost keygen --passphrase',
        'sealpost keygen --passphrase --passphrase-file ~/.sealpost-passphrase',
      ),
    )
    .action(run(keygen))
}

async function keygen({ profile, output }: Shell, { passphrase }: { readonly passphrase?: boolean }): Promise<void> {
  const { signing } = await (passphrase ? profile.makeLockedKeys() : profile.makeKeys())
  const made = {
    profile: profile.name,
    key: signing.publicKey,
    fingerprint: fingerprint(signing.publicKey),
    file: profile.keyFile,
  }
  await output.result(made, () => output.facts(Object.entries(made)))
}
