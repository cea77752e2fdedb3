/** Asks the operators' interface of a broker. */
import { OperatingError } from '@sealpost/std'
import type { ZodType } from 'zod'
import { findAdminAccess } from './admin-access.ts'
import { isRecord } from './json-file.ts'
import type { Shell } from './shell.ts'

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
export async function askAdmin<T>(shell: Shell, { path, answer, query = {}, body }: AdminRequest<T>): Promise<T> {
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
