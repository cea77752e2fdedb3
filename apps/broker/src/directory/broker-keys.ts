/** The broker's own key, read from its file or created at the first start, and its certificate by the cluster's key. */
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import {
  generateSigningKeys,
  normalizeAuthority,
  readShardCertificateText,
  type ShardCertificate,
  type SigningKeys,
} from '@sealpost/identity'
import { readKeyFile, writeKeyFile } from '@sealpost/identity/key-file'
import { OperatingError, type PeerKey } from '@sealpost/std'
import type { Config } from '../config/config.ts'
import type { Log } from '../telemetry/log.ts'

const DEFAULT_KEY_FILE = '.sealpost/broker.json'

export interface BrokerKeys extends SigningKeys {
  /** The key that peers pin: its own, or the one that signed its certificate. */
  readonly clusterKey: PeerKey
  readonly certificate: ShardCertificate | null
}

type Settings = Pick<Config, 'BROKER_KEY_FILE' | 'BROKER_CERTIFICATE_FILE' | 'PUBLIC_URL'>

/**
 * A configured key file must exist; otherwise the broker keeps a key of its own.
 * @throws OperatingError `key_file_missing`, `key_file_unreadable`, `key_file_malformed`, `key_file_wrong_kind`,
 *   `key_file_unwritable`, `certificate_unreadable`, `certificate_malformed`, `certificate_foreign`,
 * `certificate_expired`
 */
export async function readBrokerKeys(settings: Settings, log: Log): Promise<BrokerKeys> {
  const signing = await readSigningKeys(settings.BROKER_KEY_FILE, log)
  const certificate = readCertificate(settings, signing.publicKey)
  return { ...signing, clusterKey: certificate?.clusterKey ?? signing.publicKey, certificate }
}

async function readSigningKeys(path: string, log: Log): Promise<SigningKeys> {
  if (path === '' && !existsSync(DEFAULT_KEY_FILE)) await makeKeyFile(DEFAULT_KEY_FILE)
  const { contents, warning } = await readKeyFile(path || DEFAULT_KEY_FILE)
  if (contents.kind !== 'broker')
    throw new OperatingError('key_file_wrong_kind', `The key file ${path || DEFAULT_KEY_FILE} is not a broker's.`)
  if (warning) log.warn('key_file.exposed', { message: warning.message })
  return contents.signing
}

/** Refuses at startup a certificate that no peer would accept. */
function readCertificate(settings: Settings, shardKey: PeerKey): ShardCertificate | null {
  const { BROKER_CERTIFICATE_FILE: path, PUBLIC_URL } = settings
  if (path === '') return null
  const certificate = readShardCertificateText(textOf(path))
  const refuse = (code: string, what: string): never => {
    throw new OperatingError(`certificate_${code}`, `The certificate ${path} ${what}.`)
  }
  if (!certificate) return refuse('malformed', 'is none, or not as it was signed')
  if (certificate.shardKey !== shardKey) return refuse('foreign', "is not of this broker's key")
  if (PUBLIC_URL !== '' && !certificate.authorities.includes(normalizeAuthority(PUBLIC_URL)))
    return refuse('foreign', 'does not name the PUBLIC_URL of this broker')
  if (Date.now() > certificate.notAfterMs) return refuse('expired', 'has expired')
  return certificate
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (cause) {
    throw new OperatingError('certificate_unreadable', `The certificate ${path} can't be read.`, { cause })
  }
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
