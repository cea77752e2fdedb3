/** Calls the operator API, with the address and token from the environment or `sealpost up`. Manages tokens. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fingerprint } from '@sealpost/identity'
import { wholeUnits } from '@sealpost/operator/texts'
import type { Database } from '@sealpost/pg'
import { type MeshId, OperatingError, type PeerKey } from '@sealpost/std'
import { ADMIN_SCOPES, type AdminScope, addAdminToken, listAdminTokens, revokeAdminToken } from '@sealpost/store'
import { Command, Option } from 'commander'
import type { ZodType } from 'zod'
import { escapeName, formatTime } from '../output.ts'
import { isRecord, readJsonFile, writeJsonFile } from '../profile/profile.ts'
import { durationOption, parseHex, type Settings } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { withDatabase } from './db.ts'

export const formatAge = (ms: number | null): string => (ms === null ? '' : wholeUnits(ms))

/** Returns the member's name, or else its fingerprint. */
export const nameOrFingerprint = (name: string | null, key: string): string =>
  name ? escapeName(name) : fingerprint(key as PeerKey)
export const formatMillis = (ms: number | null): string => (ms === null ? '–' : `${ms} ms`)

interface AdminAccess {
  /** The broker's address, as `http://host:port`. */
  readonly url: string
  readonly token: string
}

type SavedAccess = AdminAccess & { readonly tokenId: string }

const OWNER_TTL_SECONDS = 365 * 86_400
const fileIn = (folder: string): string => join(folder, 'admin.json')

/** Returns the operator API's address and token. @throws OperatingError `usage` if no broker is configured */
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
    throw new OperatingError('usage', "Can't read the file in SEALPOST_ADMIN_TOKEN_FILE.", { cause })
  }
}

/** Replaces the data folder's token, which only its owner can write. */
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

interface AdminRequest<T> {
  /** The path below `/admin/v1`. */
  readonly path: string
  readonly answer: ZodType<T>
  readonly query?: Readonly<Record<string, string | number | undefined>>
  /** The body of a change. */
  readonly body?: object
}

/** Calls the operator API. @throws OperatingError with the API's code, `unreachable`, `answer_malformed`, `usage` */
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
    throw new OperatingError('unreachable', `No operators' interface responds at ${url.origin}.`, { cause })
  })
  if (response.status === 204) return answer.parse({})
  const said: unknown = await response.json().catch(() => null)
  if (!response.ok) throw refusalOf(said)
  const parsed = answer.safeParse(said)
  if (parsed.success) return parsed.data
  throw new OperatingError(
    'answer_malformed',
    'The broker sent a response that this version of sealpost does not know.',
  )
}

function refusalOf(said: unknown): OperatingError {
  if (!isRecord(said))
    return new OperatingError('answer_malformed', 'The server at this URL is not an operators’ interface.')
  const meaning = String(said.meaning ?? said.code).replaceAll('`', '')
  return new OperatingError(String(said.code), `${meaning.replace(/^./, (letter) => letter.toUpperCase())}.`)
}

interface CreateOptions {
  readonly scope: AdminScope
  readonly mesh?: MeshId
  readonly ttl: number
}

export function tokenCommand(run: RunAction): Command {
  return new Command('token')
    .description("Manage operators' tokens. The commands need DATABASE_URL.")
    .addHelpText('after', examples('sealpost admin token create grafana', 'sealpost admin token list'))
    .addCommand(createCommand(run))
    .addCommand(new Command('list').description('List the tokens, without their secrets').addHelpText('after', examples('sealpost admin token list')).action(run(list))) // biome-ignore format: one thing
    .addCommand(
      new Command('revoke')
        .description('Revoke a token. Brokers may accept the token for three more seconds.')
        .argument('<ID>', 'the id of the token, from `admin token list`')
        .addHelpText('after', examples('sealpost admin token revoke 0123456789abcdef'))
        .action(run(revoke)),
    )
}

function createCommand(run: RunAction): Command {
  return new Command('create')
    .description("Create a token and print it. The token can't be printed again.")
    .argument('<NAME>', 'a name for the token, which the audit log shows')
    .addOption(new Option('--scope <SCOPE>', 'what the token can do: read allows only views, operate also allows changes').choices(ADMIN_SCOPES).default('read')) // biome-ignore format: one thing
    .option('--mesh <ID>', 'limit the token to this mesh (32 hex digits)', parseHex(16))
    .addOption(durationOption('--ttl <TIME>', 'how long the token is valid', '30d'))
    .addHelpText(
      'after',
      examples('sealpost admin token create grafana', 'sealpost admin token create ada --scope operate --ttl 12h'),
    )
    .action(run(create))
}

async function create(shell: Shell, { scope, mesh, ttl }: CreateOptions, name: string): Promise<void> {
  const terms = { name, scope, meshId: mesh ?? null, ttlSeconds: ttl }
  const issued = await withDatabase(shell, (db) => addAdminToken(db, terms))
  await shell.output.result({ ...issued, name, scope, meshId: terms.meshId }, () => issued.token)
}

async function list(shell: Shell): Promise<void> {
  const tokens = await withDatabase(shell, listAdminTokens)
  const { output } = shell
  await output.results(tokens, () =>
    output.table(
      ['ID', 'NAME', 'SCOPE', 'MESH', 'UNTIL (UTC)', 'LAST USED (UTC)', ''],
      tokens.map(({ id, name, scope, meshId, expiresAtMs, lastUsedAtMs, isRevoked }) => [
        ...[id, escapeName(name), scope, meshId ?? 'all'],
        ...[formatTime(expiresAtMs), formatTime(lastUsedAtMs), isRevoked ? 'revoked' : ''],
      ]),
    ),
  )
}

async function revoke(shell: Shell, _: object, id: string): Promise<void> {
  const isThere = await withDatabase(shell, (db) => revokeAdminToken(db, id))
  if (!isThere) throw new OperatingError('token_unknown', 'There is no admin token with this ID.')
  await shell.output.result({ id, isRevoked: true }, () => 'revoked')
}
