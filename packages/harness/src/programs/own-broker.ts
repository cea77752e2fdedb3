/** Starts a broker for a command, on loopback and a free port, unless `env` says otherwise. */
import { join } from 'node:path'
import { type BrokerProgram, startBroker } from '@sealpost/broker-program'
import { generateSigningKeys, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { type Teardown, temporaryFolder } from './teardown.ts'

export interface OwnBrokerOptions {
  readonly databaseUrl: string
  /** Settings that override the environment. Without `BROKER_KEY_FILE`, the broker creates a key. */
  readonly env?: Readonly<Record<string, string>>
  /** Arguments for Bun, such as `--cpu-prof`. */
  readonly runtimeArgs?: readonly string[]
  readonly onLine?: (line: string) => void
}

/**
 * Starts a broker for a command: `BROKER_BINARY`, or the source.
 * @throws OperatingError with the codes of `startBroker`
 */
export async function startOwnBroker(
  { databaseUrl, env = {}, ...options }: OwnBrokerOptions,
  teardown: Teardown,
): Promise<BrokerProgram> {
  const keyFile = env.BROKER_KEY_FILE ?? (await newBrokerKeyFile(teardown))
  const defaults = { HOST: '127.0.0.1', PORT: '0', ADMIN_PORT: '0', BROKER_KEY_FILE: keyFile }
  const environment = { ...process.env, ...defaults, ...env, DATABASE_URL: databaseUrl }
  const program = process.env.BROKER_BINARY || undefined
  return teardown.startingProgram(startBroker({ environment, program, ...options }))
}

/** Writes a broker key, which brokers on one database must share. @returns the path of the file */
export async function newBrokerKeyFile(teardown: Teardown): Promise<string> {
  await ready()
  const path = join(await temporaryFolder('broker-key', teardown), 'broker.json')
  await writeKeyFile(path, { kind: 'broker', signing: generateSigningKeys() })
  return path
}
