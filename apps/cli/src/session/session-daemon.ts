/**
 * Shares the connection of a profile's own key between commands. A key has only one connection, so a second command
 * would end the connection of the first. Instead, the first one executes the others' calls through a Unix socket in the
 * profile's folder (0700), which only the holder of a lock creates or removes. Of the profile's sessions, the host holds
 * this lock (docs/adr/0013-sessions.md).
 */
import { rename, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { dirname, join } from 'node:path'
import { SealpostError } from '@sealpost/sdk'
import { type StoreLock, tryLockStore } from '@sealpost/sdk/file-store'
import { OperatingError } from '@sealpost/std'
import type { Profile } from '../profile/profile.ts'
import type { PeerCalls } from './peer-calls.ts'

type Method = keyof PeerCalls
type Params<M extends Method> = Parameters<PeerCalls[M]>[0]
type Result<M extends Method> = Awaited<ReturnType<PeerCalls[M]>>

export interface SessionDaemon {
  /** Serves calls, also those already waiting. */
  serve(calls: PeerCalls): void
  /** Accepts no more calls. Resolves once all accepted ones are answered. */
  endCalls(): Promise<void>
  /** Releases the daemon. Call after `endCalls`. */
  release(): Promise<void>
}

/**
 * Starts the daemon. Returns null if another command holds it. @throws OperatingError `profile_unwritable`,
 * `profile_path_too_long`
 */
export async function startSessionDaemon(profile: Profile): Promise<SessionDaemon | null> {
  socketPath(profile)
  const lock = await lockSession(profile)
  return lock && serveUnder(profile, lock)
}

/**
 * Starts the daemon in the host of the profile's sessions, which holds the lock. @throws OperatingError
 * `profile_unwritable`, `profile_path_too_long`
 */
export function startHostDaemon(profile: Profile): Promise<SessionDaemon> {
  return serveUnder(profile, { release: async () => undefined })
}

async function serveUnder(profile: Profile, lock: StoreLock): Promise<SessionDaemon> {
  const path = socketPath(profile)
  const ready = Promise.withResolvers<PeerCalls>()
  ready.promise.catch(() => undefined) // each call reports the error
  const server = createServer((request, response) => void respond(request, response, ready.promise))
  try {
    await rm(path, { force: true }) // a killed process may have left the socket
    await listen(server, path)
  } catch (cause) {
    await lock.release()
    throw unwritable(profile, cause)
  }
  let ended: Promise<void> | undefined
  const endCalls = () => {
    ready.reject(new OperatingError('unreachable', 'The command that used the session of this profile has ended.'))
    ended ??= close(server, path)
    return ended
  }
  let released: Promise<void> | undefined
  const release = () => {
    released ??= endCalls().finally(lock.release)
    return released
  }
  return { serve: ready.resolve, endCalls, release }
}

function lockSession(profile: Profile): Promise<StoreLock | null> {
  return tryLockStore(join(profile.folder, 'session')).catch((error) => {
    throw unwritable(profile, error)
  })
}

function unwritable({ folder }: Profile, cause: unknown): OperatingError {
  return new OperatingError('profile_unwritable', `Can't create a socket in ${folder}.`, { cause })
}

/**
 * Calls the daemon. If the signal fires, the daemon learns that the caller is gone.
 * @throws OperatingError `daemon_gone` if no process accepted the call, `maybe_sent` if one may have, and the errors of
 * the call
 */
export async function callSessionDaemon<M extends Method>(
  profile: Profile,
  method: M,
  params: Params<M>,
  signal?: AbortSignal,
): Promise<Result<M>> {
  const said = await post({ path: socketPath(profile), method, body: JSON.stringify(params ?? null), signal })
  if ('result' in said) return said.result as Result<M>
  const { code, message, isRetryable } = said.error
  throw new OperatingError(code, message, { retryable: isRetryable })
}

/** Returns whether no process accepted the call, because the holder has ended. */
export function isDaemonGone(error: unknown): boolean {
  return error instanceof OperatingError && error.code === 'daemon_gone'
}

const PATH_BYTES_MAX = 103 // the shortest limit of all platforms

function socketPath(profile: Profile): string {
  const path = join(profile.folder, 'session.sock')
  if (Buffer.byteLength(path) <= PATH_BYTES_MAX) return path
  throw new OperatingError('profile_path_too_long', `The path ${profile.folder} is too long for a socket in it.`)
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(path, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

async function close(server: Server, path: string): Promise<void> {
  await serveWaitingClients(path).catch(() => undefined) // the folder may have been removed
  await new Promise<void>((resolve) => {
    server.close(() => resolve())
    server.closeIdleConnections()
  })
}

/**
 * Removes the socket, then serves the clients already connected. Without a reply, they would not know whether their
 * call was executed.
 */
async function serveWaitingClients(path: string): Promise<void> {
  const hidden = join(dirname(path), 'session.closing')
  await rename(path, hidden)
  await fetch('http://session/', { unix: hidden, method: 'HEAD' }) // queued behind all waiting clients
  await rm(hidden)
}

type Reply = { readonly result: unknown } | { readonly error: { code: string; message: string; isRetryable: boolean } }

async function respond(request: IncomingMessage, response: ServerResponse, ready: Promise<PeerCalls>): Promise<void> {
  response.setHeader('Connection', 'close')
  if (request.method !== 'POST') return void response.end()
  const gone = new AbortController()
  response.on('close', () => gone.abort())
  response.end(JSON.stringify(await resultOf(request, ready, gone.signal)))
}

type AnyCall = (params: unknown, gone: AbortSignal) => Promise<unknown>

async function resultOf(request: IncomingMessage, ready: Promise<PeerCalls>, gone: AbortSignal): Promise<Reply> {
  try {
    const params = await textOf(request)
    const calls = await ready
    const call = calls[request.url!.slice(1) as Method] as AnyCall | undefined
    if (!call)
      throw new OperatingError(
        'daemon_version',
        'The command that uses the session of this profile is another version of sealpost.',
      )
    return { result: await call(JSON.parse(params), gone) }
  } catch (error) {
    const { code = 'internal', message } = error as { code?: string; message: string }
    return { error: { code, message, isRetryable: error instanceof SealpostError && error.isRetryable } }
  }
}

async function textOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks).toString()
}

interface DaemonCall {
  readonly path: string
  readonly method: Method
  readonly body: string
  readonly signal: AbortSignal | undefined
}

/** The codes with which versions of Bun report that nobody accepted a connection. */
const UNTAKEN = ['ECONNREFUSED', 'ConnectionRefused', 'FailedToOpenSocket', 'ENOENT']

async function post({ path, method, body, signal = new AbortController().signal }: DaemonCall): Promise<Reply> {
  const terms = { unix: path, method: 'POST', body, keepalive: false, signal }
  try {
    const response = await fetch(`http://session/${method}`, terms)
    return (await response.json()) as Reply
  } catch (cause) {
    const { code } = cause as { code?: string }
    const isUntaken = code !== undefined && UNTAKEN.includes(code)
    throw isUntaken
      ? new OperatingError('daemon_gone', 'The daemon of this profile does not respond.', { retryable: true })
      : new OperatingError(
          'maybe_sent',
          'The command that used the session of this profile ended before it replied. It may have carried out the request.',
        )
  }
}
