/** Where the operators' interface of a broker is, and the token for it: of the environment, or what `sealpost up` left. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Database } from '@sealpost/pg'
import { OperatingError } from '@sealpost/std'
import { addAdminToken, revokeAdminToken } from '@sealpost/store'
import type { ZodType } from 'zod'
import { isRecord, readJsonFile, writeJsonFile } from '../profile/json-file.ts'
import type { Settings } from '../settings.ts'
import type { Shell } from '../shell.ts'

export interface AdminAccess {
  /** http://host:port */
  readonly url: string
  readonly token: string
}

type SavedAccess = AdminAccess & { readonly tokenId: string }

const OWNER_TTL_SECONDS = 365 * 86_400
const fileIn = (folder: string): string => join(folder, 'admin.json')

/** @throws OperatingError `usage` when nothing names one */
export async function findAdminAccess({ environment, dataFolder }: Settings): Promise<AdminAccess> {
  const url = environment.SEALPOST_ADMIN_URL
  const token = tokenOf(environment)
  const kept = url && token ? undefined : await readJsonFile(fileIn(dataFolder), isSavedAccess)
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
export async function saveOwnerAccess(db: Database, folder: string, url: string): Promise<void> {
  const path = fileIn(folder)
  const former = await readJsonFile(path, isSavedAccess)
  if (former) await revokeAdminToken(db, former.tokenId)
  const terms = { name: 'sealpost up', scope: 'operate', meshId: null, ttlSeconds: OWNER_TTL_SECONDS } as const
  const { id, token } = await addAdminToken(db, terms)
  await writeJsonFile(path, { url, token, tokenId: id })
}

function isSavedAccess(value: unknown): value is SavedAccess {
  if (!isRecord(value)) return false
  return [value.url, value.token, value.tokenId].every((text) => typeof text === 'string')
}

const ANSWER_WITHIN_MS = 30_000

export interface AdminRequest<T> {
  /** Below `/admin/v1`. */
  readonly path: string
  readonly answer: ZodType<T>
  readonly query?: Readonly<Record<string, string | number | undefined>>
  /** Makes it a change. */
  readonly body?: object
}

/** @throws OperatingError with the code of the interface, `unreachable`, `answer_malformed`, `usage` */
export async function callAdmin<T>(shell: Shell, { path, answer, query = {}, body }: AdminRequest<T>): Promise<T> {
  const access = await findAdminAccess(shell.settings)
  const url = new URL(`/admin/v1${path}`, access.url)
  for (const [name, value] of Object.entries(query)) if (value !== undefined) url.searchParams.set(name, String(value))
  const response = await fetch(url, {
    method: body ? 'POST' : 'GET',
    headers: { Authorization: `Bearer ${access.token}`, ...(body && { 'Content-Type': 'application/json' }) },
    ...(body && { body: JSON.stringify(body) }),
    redirect: 'error',
    signal: AbortSignal.any([shell.signal, AbortSignal.timeout(ANSWER_WITHIN_MS)]),
  }).catch((cause) => {
    shell.signal.throwIfAborted()
    throw new OperatingError('unreachable', `No operators' interface answers at ${url.origin}.`, { cause })
  })
  if (response.status === 204) return answer.parse({})
  const said: unknown = await response.json().catch(() => null)
  if (!response.ok) throw refusalOf(said)
  const parsed = answer.safeParse(said)
  if (parsed.success) return parsed.data
  throw new OperatingError('answer_malformed', 'The broker answers what this version does not know.')
}

function refusalOf(said: unknown): OperatingError {
  if (!isRecord(said)) return new OperatingError('answer_malformed', 'That is no operators’ interface.')
  const meaning = String(said.meaning ?? said.code).replaceAll('`', '')
  return new OperatingError(String(said.code), `${meaning.replace(/^./, (letter) => letter.toUpperCase())}.`)
}
