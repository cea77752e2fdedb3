/**
 * How to say where an embedded Postgres is without saying its password: terminals are scrolled back and copied, so the
 * password stays in the file it is in anyway, and a shell reads it there.
 */
import { join, relative } from 'node:path'
import type { EmbeddedPostgres } from '@sealpost/db/embedded'

/** In double quotes, for a shell in this folder. */
export function shellUrl({ url, dataDir }: Pick<EmbeddedPostgres, 'url' | 'dataDir'>): string {
  const { username, host, pathname } = new URL(url)
  return `"postgres://${username}:$(cat '${passwordFile(dataDir)}')@${host}${pathname}"`
}

/** Relative below this folder, absolute elsewhere. */
function passwordFile(dataDir: string): string {
  const path = join(dataDir, 'password')
  const fromHere = relative(process.cwd(), path)
  return fromHere.startsWith('..') ? path : fromHere
}
