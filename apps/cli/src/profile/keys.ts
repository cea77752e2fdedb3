/** `sealpost key` shows fingerprints, rotates, backs up and encrypts keys; `sealpost keygen` generates them. */
import { fingerprint, ready } from '@sealpost/identity'
import type { PeerKey } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { resolveRecipient } from '../members/member-list.ts'
import { escapeName } from '../output.ts'
import { callPeer } from '../session/peer-session.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { backupCommand, restoreCommand } from './backup.ts'
import { KEYCHAIN_OPTION } from './keychain.ts'
import { protectCommand, unprotectCommand } from './protect.ts'
import { heirsCommand, keepHeirs, recoverCommand } from './recover.ts'

export function keyCommand(run: RunAction): Command {
  return new Command('key')
    .description('Compare, rotate, back up, recover and encrypt your keys')
    .addCommand(fingerprintCommand(run))
    .addCommand(rotateCommand(run))
    .addCommand(heirsCommand(run))
    .addCommand(recoverCommand(run))
    .addCommand(backupCommand(run))
    .addCommand(restoreCommand(run))
    .addCommand(protectCommand(run))
    .addCommand(unprotectCommand(run))
    .addHelpText(
      'after',
      examples('sealpost key fingerprint bob', 'sealpost key rotate', 'sealpost key backup alice.sealpost'),
    )
}

function fingerprintCommand(run: RunAction): Command {
  return new Command('fingerprint')
    .description(
      'Print a fingerprint to read aloud and compare: your own, or that of the key that this profile has pinned for NAME',
    )
    .argument('[NAME]', 'a name, a fingerprint or a key (64 hex digits)')
    .addHelpText('after', examples('sealpost key fingerprint', 'sealpost key fingerprint bob --json'))
    .action(run(show))
}

async function show(shell: Shell, _options: object, word?: string): Promise<void> {
  await ready()
  const { output, profile } = shell
  const key = word === undefined ? await profile.readOwnKey() : await resolveRecipient(shell, word)
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
    .description('Generate a new box key and publish it. Your identity and your fingerprint stay the same.')
    .option(
      '--identity',
      'also generate a new identity key, which changes your fingerprint; other peers follow the change automatically',
    )
    .addHelpText(
      'after',
      `
You can still open messages that were sealed to the former key: it stays in the key file for 60 days. If you have a
backup, make a new one with "key backup". With --identity you keep your name, role, consent, devices and waiting messages. Groups list
keys, so their owners must add your new key. If the command is interrupted, run it again to resume.
${examples('sealpost key rotate', 'sealpost key rotate --identity')}`,
    )
    .action(run(rotate))
}

async function rotate(shell: Shell, { identity = false }: { identity?: boolean }): Promise<void> {
  if (identity) return rotateIdentity(shell)
  const boxEpoch = await callPeer(shell, { method: 'rotateBoxKey', params: null })
  if (shell.output.isJson) await shell.output.result({ boxEpoch }, () => '')
  else shell.output.info(`other peers now seal to your box key number ${boxEpoch}`)
}

async function rotateIdentity(shell: Shell): Promise<void> {
  const key = await keepHeirs(shell, () =>
    callPeer(shell, { method: 'rotateIdentity', params: null }).catch((error) => retryWithNextKeys(shell, error)),
  )
  const print = fingerprint(key)
  await shell.output.result({ key, fingerprint: print }, () => shell.output.facts([['your key now', print]]))
}

/**
 * If a rotation's reply was lost, retries with the next key: if the broker accepts it and refuses the former, the
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
  return profile.readOwnKey()
}

export function keygenCommand(run: RunAction): Command {
  return new Command('keygen')
    .description("Generate a profile's keys. Existing keys are never overwritten.")
    .option(
      '--passphrase',
      'encrypt the keys with a passphrase from a prompt, SEALPOST_PASSPHRASE or --passphrase-file',
    )
    .option(...KEYCHAIN_OPTION)
    .addHelpText(
      'after',
      examples(
        'sealpost keygen',
        'sealpost keygen --profile work --json',
        'sealpost keygen --passphrase',
        'sealpost keygen --keychain',
        'sealpost keygen --passphrase --passphrase-file ~/.sealpost-passphrase',
      ),
    )
    .action(run(keygen))
}

interface KeygenOptions {
  readonly passphrase?: boolean
  readonly keychain?: boolean
}

async function keygen({ profile, output }: Shell, { passphrase, keychain }: KeygenOptions): Promise<void> {
  if (passphrase && keychain) throw new OperatingError('usage', 'Set either --passphrase or --keychain.')
  const making = keychain ? profile.makeKeychainKeys() : passphrase ? profile.makeLockedKeys() : profile.makeKeys()
  const { signing } = await making
  const made = {
    profile: profile.name,
    key: signing.publicKey,
    fingerprint: fingerprint(signing.publicKey),
    file: profile.keyFile,
  }
  await output.result(made, () => output.facts(Object.entries(made)))
}
