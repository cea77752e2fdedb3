/** `sealpost key protect` encrypts the key files of a profile; `sealpost key unprotect` decrypts them. */
import { join } from 'node:path'
import { type KeyFileLock, readKeyFile, replaceKeyFile } from '@sealpost/identity/key-file'
import { localSessions } from '@sealpost/sdk/sessions'
import { OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { startSessionDaemon } from '../session/session-daemon.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { keyFilesOf } from './backup.ts'
import { deleteFromKeychain, newKeychainLock } from './keychain.ts'
import { Passphrase } from './passphrase.ts'
import type { Profile } from './profile.ts'

interface ProtectOptions {
  readonly keychain?: boolean
  readonly newPassphraseFile?: string
}

export function protectCommand(run: RunAction): Command {
  return new Command('protect')
    .description('Encrypt the keys of this profile and of its sessions, or change their passphrase')
    .option('--keychain', "keep a random passphrase in the operating system's keychain instead of choosing one")
    .option('--new-passphrase-file <FILE>', 'read the new passphrase from the first line of FILE')
    .addHelpText(
      'after',
      `
The new passphrase comes from --new-passphrase-file, SEALPOST_PASSPHRASE, --passphrase-file or a prompt. With --keychain,
nobody can read the keys without the keychain of this account, so make a backup with "key backup" first. Commands of other
users, of other machines and without a login session can't read the keychain.
${examples('sealpost key protect', 'sealpost key protect --keychain')}`,
    )
    .action(run(protect))
}

async function protect(shell: Shell, { keychain, newPassphraseFile }: ProtectOptions): Promise<void> {
  if (keychain && newPassphraseFile !== undefined)
    throw new OperatingError('usage', 'Set either --keychain or --new-passphrase-file.')
  const { profile } = shell
  await convert(shell, async () => {
    if (keychain) return newKeychainLock(profile.name)
    const file = newPassphraseFile
    return { passphrase: await (file === undefined ? profile.passphrase : new Passphrase({ file })).chooseNew() }
  })
}

export function unprotectCommand(run: RunAction): Command {
  return new Command('unprotect')
    .description('Decrypt the keys of this profile and of its sessions, and delete their entry in the keychain')
    .addHelpText('after', examples('sealpost key unprotect', 'sealpost key unprotect --profile work'))
    .action(run((shell: Shell) => convert(shell, async () => null)))
}

/** Changes the lock of the key files while no other command of the profile runs. */
async function convert(shell: Shell, chooseLock: () => Promise<KeyFileLock | null>): Promise<void> {
  const { profile, output } = shell
  const former = await profile.findLock()
  const daemon = await startSessionDaemon(profile)
  if (!daemon) throw inUse(profile)
  try {
    const sessions = await localSessions(profile.folder)
    if (sessions.some(({ isRunning }) => isRunning)) throw inUse(profile)
    const lock = await chooseLock()
    await relock(profile, former, lock)
    if (former?.keychain !== undefined) await deleteFromKeychain(former.keychain)
    const protection = protectionOf(lock)
    await output.result({ profile: profile.name, protection }, () => output.facts([['keys', SENTENCES[protection]]]))
  } finally {
    await daemon.release()
  }
}

type Protection = 'none' | 'passphrase' | 'keychain'

const SENTENCES: Readonly<Record<Protection, string>> = {
  none: 'not encrypted',
  passphrase: 'encrypted with a passphrase',
  keychain: "encrypted with a passphrase in the operating system's keychain",
}

/** Completes a sentence about a key file. */
export const sentenceOf = (lock: KeyFileLock | null): string => SENTENCES[protectionOf(lock)]

const protectionOf = (lock: KeyFileLock | null): Protection =>
  lock === null ? 'none' : lock.keychain === undefined ? 'passphrase' : 'keychain'

/**
 * Replaces the lock of all key files. A command finds the passphrase in the profile's own file, and reads other files
 * with it or without a passphrase. So other files are decrypted while that file changes, and a crash locks nobody out.
 */
async function relock(profile: Profile, former: KeyFileLock | null, lock: KeyFileLock | null): Promise<void> {
  const [own, ...others] = (await keyFilesOf(profile.folder)).map((path) => join(profile.folder, path))
  const rewrite = async (path: string, next: KeyFileLock | null) => {
    const { contents } = await readKeyFile(path, () => former?.passphrase ?? '')
    await replaceKeyFile(path, contents, next)
  }
  if (former) for (const path of others) await rewrite(path, null)
  await rewrite(own!, lock)
  if (lock) for (const path of others) await rewrite(path, lock)
}

function inUse({ name }: Profile): OperatingError {
  return new OperatingError(
    'profile_in_use',
    `A command or a session uses the profile ${name}. End it before you change how the keys are protected.`,
  )
}
