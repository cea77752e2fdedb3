/**
 * Keeps the passphrases of key files in the keychain of the operating system: Keychain on macOS, the Secret Service on
 * Linux (libsecret), Credential Manager on Windows. Bun has the bindings built in, so the compiled program needs no
 * library and no other command.
 */
import type { KeyFileLock } from '@sealpost/identity/key-file'
import { type Millis, OperatingError, toBase64url, toHex } from '@sealpost/std'

const SERVICE = 'sealpost'
/** The keychain may ask the user to unlock it. */
const WITHIN_MS: Millis = 60_000
/** The passphrase has 256 random bits, so nobody can guess it at any cost. */
const NO_COST = { memoryKib: 8, passes: 1 }

export const KEYCHAIN_OPTION = [
  '--keychain',
  "encrypt new keys with a random passphrase, and keep it in the operating system's keychain",
] as const

/**
 * Stores a new random passphrase for the key files of this profile.
 * @returns the lock of the key files, which names the entry of the keychain
 * @throws OperatingError `keychain_unavailable`
 */
export async function newKeychainLock(profile: string): Promise<KeyFileLock & { readonly keychain: string }> {
  const random = (length: number) => crypto.getRandomValues(new Uint8Array(length))
  const [name, passphrase] = [`${profile} ${toHex(random(8))}`, toBase64url(random(32))]
  await answered(Bun.secrets.set({ service: SERVICE, name, value: passphrase }))
  if ((await answered(Bun.secrets.get({ service: SERVICE, name }))) !== passphrase)
    throw unavailable('it did not return the entry that it stored')
  return { keychain: name, passphrase, cost: NO_COST }
}

/** Returns a passphrase of the keychain. @throws OperatingError `keychain_unavailable`, `keychain_entry_missing` */
export async function readKeychain(name: string): Promise<string> {
  const passphrase = await answered(Bun.secrets.get({ service: SERVICE, name }))
  if (passphrase !== null) return passphrase
  throw new OperatingError(
    'keychain_entry_missing',
    `The keychain of this account has no entry "${name}" of the service ${SERVICE}, which encrypts the keys. Restore a backup with \`sealpost key restore\`.`,
  )
}

/** The lock of key files with this passphrase of the keychain. */
export const keychainLock = (keychain: string, passphrase: string): KeyFileLock => ({
  ...{ keychain, passphrase, cost: NO_COST },
})

/** Deletes an entry. @throws OperatingError `keychain_unavailable` */
export async function deleteFromKeychain(name: string): Promise<void> {
  await answered(Bun.secrets.delete({ service: SERVICE, name }))
}

async function answered<T>(reply: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(() => late.reject(unavailable(`no reply within ${WITHIN_MS / 1000} s`)), WITHIN_MS)
  try {
    return await Promise.race([reply, late.promise])
  } catch (error) {
    throw error instanceof OperatingError ? error : unavailable((error as Error).message, error)
  } finally {
    clearTimeout(timer)
  }
}

function unavailable(reason: string, cause?: unknown): OperatingError {
  return new OperatingError(
    'keychain_unavailable',
    `The keychain of this account is not available (${reason}). Start its service, or use a passphrase.`,
    { cause },
  )
}
