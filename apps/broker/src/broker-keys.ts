/** The broker's own key, which peers pin: read from its file, or made at the first start. */
import { existsSync, mkdirSync } from 'node:fs'
import { dirname } from 'node:path'
import { generateSigningKeys, type SigningKeys } from '@sealpost/identity'
import { readKeyFile, writeKeyFile } from '@sealpost/identity/key-file'
import { OperatingError } from '@sealpost/std'
import type { Log } from './log.ts'

const DEFAULT_KEY_FILE = '.sealpost/broker.json'

/**
 * A file that is named must be there; without a name the broker keeps one of its own.
 * @throws OperatingError `key_file_missing`, `key_file_unreadable`, `key_file_malformed`, `key_file_wrong_kind`,
 *   `key_file_unwritable`
 */
export async function readBrokerKeys(path: string, log: Log): Promise<SigningKeys> {
  if (path === '' && !existsSync(DEFAULT_KEY_FILE)) await makeKeyFile(DEFAULT_KEY_FILE)
  const { contents, warning } = await readKeyFile(path || DEFAULT_KEY_FILE)
  if (contents.kind !== 'broker')
    throw new OperatingError('key_file_wrong_kind', `The key file ${path || DEFAULT_KEY_FILE} is not a broker's.`)
  if (warning) log.warn('key_file.exposed', { message: warning.message })
  return contents.signing
}

async function makeKeyFile(path: string): Promise<void> {
  const folder = dirname(path)
  try {
    mkdirSync(folder, { recursive: true })
  } catch (cause) {
    throw new OperatingError('key_file_unwritable', `No folder ${folder} for the broker's key can be made here.`, {
      cause,
    })
  }
  await writeKeyFile(path, { kind: 'broker', signing: generateSigningKeys() })
}
