/** Where the operators' interface of a broker is, and the token for it: of the environment, or what `sealpost up` left. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { addAdminToken, type Database, revokeAdminToken } from '@sealpost/db'
import { OperatingError } from '@sealpost/std'
import { isRecord, readJsonFile, writeJsonFile } from './json-file.ts'
import type { Settings } from './settings.ts'

export interface AdminAccess {
  /** http://host:port */
  readonly url: string
  readonly token: string
}

type KeptAccess = AdminAccess & { readonly tokenId: string }

const OWNER_TTL_SECONDS = 365 * 86_400
const fileIn = (folder: string): string => join(folder, 'admin.json')

/** @throws OperatingError `usage` when nothing names one */
export async function findAdminAccess({ environment, dataFolder }: Settings): Promise<AdminAccess> {
  const url = environment.SEALPOST_ADMIN_URL
  const token = tokenOf(environment)
  const kept = url && token ? undefined : await readJsonFile(fileIn(dataFolder), isKept)
  const access = { url: url ?? kept?.url, token: token ?? kept?.token }
  if (access.url && access.token && URL.canParse(access.url)) return { url: access.url, token: access.token }
  throw new OperatingError(
    'usage',
    'Set SEALPOST_ADMIN_URL to the private address of a broker, and SEALPOST_ADMIN_TOKEN to a token of `sealpost admin token create`.',
  )
}

function tokenOf({ SEALPOST_ADMIN_TOKEN, SEALPOST_ADMIN_TOKEN_FILE }: Settings['environment']): string | undefined {
  if (SEALPOST_ADMIN_TOKEN || !SEALPOST_ADMIN_TOKEN_FILE) return SEALPOST_ADMIN_TOKEN || undefined
  try {
    return readFileSync(SEALPOST_ADMIN_TOKEN_FILE, 'utf8').trim()
  } catch (cause) {
    throw new OperatingError('usage', "SEALPOST_ADMIN_TOKEN_FILE names a file that can't be read.", { cause })
  }
}

/** A token for whoever owns the folder, in the place of the one before; they can read the database's password there, too. */
export async function keepOwnerAccess(db: Database, folder: string, url: string): Promise<void> {
  const path = fileIn(folder)
  const former = await readJsonFile(path, isKept)
  if (former) await revokeAdminToken(db, former.tokenId)
  const terms = { name: 'sealpost up', scope: 'operate', meshId: null, ttlSeconds: OWNER_TTL_SECONDS } as const
  const { id, token } = await addAdminToken(db, terms)
  await writeJsonFile(path, { url, token, tokenId: id })
}

function isKept(value: unknown): value is KeptAccess {
  if (!isRecord(value)) return false
  return [value.url, value.token, value.tokenId].every((text) => typeof text === 'string')
}
