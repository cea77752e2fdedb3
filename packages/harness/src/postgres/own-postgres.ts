/** The Postgres of a command: an embedded one that ends with it, unless `DATABASE_URL` names another. */
import { join, relative } from 'node:path'
import { type EmbeddedOptions, type EmbeddedPostgres, startEmbedded } from '@sealpost/embedded-pg'
import { migrate } from '@sealpost/schema'
import type { Teardown } from '../programs/teardown.ts'

export function startOwnPostgres(teardown: Teardown, options: EmbeddedOptions = {}): Promise<EmbeddedPostgres> {
  return teardown.startingProgram(startEmbedded(options))
}

/** @returns the URL of a database with the current schema */
export async function openOwnDatabase(teardown: Teardown): Promise<string> {
  const url = process.env.DATABASE_URL || (await startOwnPostgres(teardown)).url
  await migrate(url)
  return url
}

/**
 * The URL of an embedded Postgres for a shell in this folder, in double quotes. The shell reads the password from its
 * file, so that no terminal shows it.
 */
export function shellUrl({ url, dataDir }: Pick<EmbeddedPostgres, 'url' | 'dataDir'>): string {
  const { username, host, pathname } = new URL(url)
  const path = join(dataDir, 'password')
  const fromHere = relative(process.cwd(), path)
  const passwordFile = fromHere.startsWith('..') ? path : fromHere
  return `"postgres://${username}:$(cat '${passwordFile}')@${host}${pathname}"`
}
