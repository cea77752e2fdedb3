/** A broker of a script's own, on loopback and any free port unless it is told another. */
import { type BrokerProgram, startBroker } from '@sealpost/broker/program'
import type { Teardown } from './teardown.ts'

export interface OwnBrokerOptions {
  readonly databaseUrl: string
  /** Over this process's own environment. */
  readonly env: Readonly<Record<string, string>>
  /** For the platform, before the program: `--cpu-prof` and the like. */
  readonly words?: readonly string[]
  readonly onLine?: (line: string) => void
}

/** It ends with the script. @throws OperatingError as `startBroker` */
export function startOwnBroker(
  { databaseUrl, env, ...options }: OwnBrokerOptions,
  teardown: Teardown,
): Promise<BrokerProgram> {
  const places = { HOST: '127.0.0.1', PORT: '0', ADMIN_PORT: '0' }
  const environment = { ...process.env, ...places, ...env, DATABASE_URL: databaseUrl }
  return teardown.starting(startBroker({ environment, ...options }), (started) => ({
    end: () => started.stop(),
    kill: () => started.kill(),
  }))
}
